"""docs/links.md: its example is run, and its tables have each key of what is asked and of what is answered."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.manual import DOCS, blocks, section, tables, ticked
from tideline.cli.app import app
from tideline.cli.coordinator.links import FLAGS
from tideline.planning.request import Device, LinksRequest, PhiWeights
from tideline_server.api.models import LinkPlan, PlannedLink, SweptPlan

PAGE = DOCS / "links.md"


def told(heading: str, place: int) -> dict[str, str]:
    """A table of the page: what stands beside each key."""
    return {key: row[1] for row in tables(section(PAGE, heading))[place] for key in ticked(row[0])}


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command says what the page prints, of the file that the page prints."""
    monkeypatch.chdir(tmp_path)
    Path("devices.yaml").write_text(blocks(PAGE, "yaml")[0])
    (block,) = blocks(PAGE, "console")
    line, _, printed = block.partition("\n")
    done = CliRunner().invoke(app, line.split()[2:], catch_exceptions=False)
    assert done.exit_code == 0
    assert [each.rstrip() for each in done.output.splitlines()] == printed.splitlines()


def test_the_keys_of_a_question() -> None:
    """Each with its default, where it has one."""
    asked, device = told("Request", 0), told("Request", 1)
    fields = {f.name: f for f in dataclasses.fields(LinksRequest)}
    assert set(fields) <= set(asked) and set(asked) - set(fields) <= {"error", "count", "labelled", "watts"}
    assert list(device) == [f.name for f in dataclasses.fields(Device)]
    assert set(ticked(asked["phi"])) == {f.name for f in dataclasses.fields(PhiWeights)}
    for name in ("solver", "weights", "complexity", "energy_mode"):
        assert set(fields[name].metadata["choices"]) <= set(ticked(asked[name]))
        assert asked[name].endswith(f"`{fields[name].default}`")


def test_the_keys_of_an_answer() -> None:
    """Each, with those inside, and each flag."""
    answered = told("Response", 0)
    assert list(answered) == list(LinkPlan.model_fields)
    assert ticked(answered["alpha"]) == [f.alias or name for name, f in PlannedLink.model_fields.items()]
    assert set(ticked(answered["sweep"])) == set(SweptPlan.model_fields)
    assert [each for each in ticked(answered["flags"]) if each in FLAGS] == list(FLAGS)
