"""examples/table, exactly as its README says: four agents with tables, a common model and an adapted one."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.acceptance.shell import commands
from tests.acceptance.test_example import play
from tests.docs.manual import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]
EXAMPLE = ROOT / "examples" / "table"
README = EXAMPLE / "README.md"


@pytest.fixture(scope="module", params=["forked", pytest.param("started", marks=pytest.mark.nightly(job="journeys"))])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder once every command of the README has run in it. Forked: `tideline` is another script, all else is the same."""
    home = tmp_path_factory.mktemp("table")
    with commands(home) if request.param == "forked" else nullcontext(Path(sys.executable).parent) as first:
        yield from play(home / "table", first, EXAMPLE)


def accuracy(played: Path, name: str) -> float:
    """Of predictions for new patients, by the labels of their table."""
    with (played / "new-patients" / "patients.csv").open(newline="", encoding="utf-8") as file:
        known = [row["outcome"] for row in csv.DictReader(file)]
    with (played / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        found = [row["class"] for row in csv.DictReader(file)]
    return 100 * sum(a == b for a, b in zip(known, found, strict=True)) / len(known)


def test_the_adapted_model_is_better_on_new_patients(played: Path) -> None:
    """By far, and as the README says; their table has its columns in another order."""
    share = {name: accuracy(played, name) for name in ("common", "adapted")}
    assert share["adapted"] > share["common"] + 10, share
    said = re.findall(r"^\| `(\w+)\.safetensors`.*\| (\d+) to (\d+) % \|$", README.read_text(), flags=re.MULTILINE)
    assert {name for name, *_ in said} == set(share)
    for name, low, high in said:
        assert float(low) < share[name] < float(high), share
