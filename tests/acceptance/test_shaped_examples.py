"""examples/volumes and examples/sequences, exactly as their READMEs say: agents as processes, and figures as they are told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.shell import commands
from tests.acceptance.test_example import play
from tests.docs.manual import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]
TARGETS = {"volumes": "clinic-d", "sequences": "person-d"}
NEAR = 12.0  # percent that a figure may be off on another processor


@pytest.fixture(scope="module", params=[pytest.param("volumes", marks=pytest.mark.nightly(job="journeys")), "sequences"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder once every command of the README has run in it."""
    home = tmp_path_factory.mktemp("example")
    with commands(home) as first:
        yield from play(home / str(request.param), first, ROOT / "examples" / str(request.param))


def test_the_unlabelled_site_gains_what_the_readme_says(played: Path) -> None:
    found = {name: accuracy(played / f"{name}.json", TARGETS[played.name]) for name in ("fedavg", "adabn")}
    readme = (ROOT / "examples" / played.name / "README.md").read_text()
    said = {name: float(value) for name, value in re.findall(r"^\| `(\w+)\.yaml` \| ([\d.]+) % \|$", readme, flags=re.MULTILINE)}
    assert said.keys() == found.keys() and found["adabn"] > found["fedavg"] + 0.2, found
    assert all(abs(100 * found[name] - said[name]) < NEAR for name in said), (found, said)


def accuracy(file: Path, site: str) -> float:
    result = json.loads(file.read_text())
    return float(next(each["accuracy"] for each in result["clients"] if each["name"] == site))
