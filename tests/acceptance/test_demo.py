"""The demonstration as a person runs it: to its end, and interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.harness import ROOT, Net

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("as_users_do")]
INTERRUPTED = 130


def start(home: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start the demonstration in a process group of its own, its temporary folders in `home`."""
    with (home / "said").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "tideline", "demo", "--rounds", "1", "--agents", "3", "--out", str(home / "out"), *more],
            stdout=said,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"TMPDIR": str(home)},
        )


def documented(table: int) -> set[str]:
    """The keys that a table of the manual lists."""
    tables = (ROOT / "docs" / "result.md").read_text().split("| key | meaning |")[1:]
    rows = re.findall(r"^\| (`[^|]*`) \|", tables[table].split("\n\n")[0], re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def complete(home: Path, *more: str) -> dict[str, Any]:
    """The result of a demonstration that ran to its end."""
    assert start(home, "--json", *more).wait(300) == 0
    result: dict[str, Any] = json.loads((home / "out" / "result.json").read_text())
    assert json.loads((home / "said").read_text()) == result
    assert (home / "out" / "report.html").stat().st_size > 0
    assert not list(home.glob("tideline-demo-*"))
    return result


LATE = pytest.param(False, marks=pytest.mark.nightly(job="journeys"), id="as its sites work")


@pytest.mark.nightly(job="journeys")
def test_a_demonstration_expects_and_finds(tmp_path: Path) -> None:
    """What was expected stands beside what was found, in 100 columns; the last sentence has these numbers; the model predicts."""
    assert start(tmp_path).wait(600) == 0
    said = (tmp_path / "said").read_text()
    tables, below = said.split("\nresult  ")
    assert max(len(line.rstrip()) for line in (*tables.splitlines(), *below.split("in all")[1].splitlines())) <= 100
    heads = next(line for line in said.splitlines() if "expected (90 % interval)" in line)
    assert "found (95 % interval)" in heads and "used its rows" in said
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    target = next(client for client in result["clients"] if client["role"] == "target")
    name, share = target["name"], f"{100 * target['accuracy']:.1f} %"
    last = " ".join(said.split("\n\n")[-1].split())
    assert re.search(rf": {share} at {name}, .*baseline shown \(.*95 % interval .* over \d+ held-out rows\)", last)
    assert re.search(r"no(thing told what)? to expect|the expectation (held|did not hold)", last)
    assert "<h2>Verdict</h2>" in (tmp_path / "out" / "report.html").read_text()
    command = next(line for line in said.splitlines() if line.strip().startswith("tideline predict "))
    predicted = subprocess.run([sys.executable, "-m", *command.split(), "--json"], stdout=subprocess.PIPE, check=True)
    assert json.loads(predicted.stdout)["rows"] > 0


@pytest.mark.nightly(job="journeys")
def test_a_whole_demonstration(tmp_path: Path) -> None:
    """It exits with 0, and its result has exactly the keys of the manual."""
    result = complete(tmp_path, "--method", "feddadil")
    assert set(result) == documented(0)
    assert [set(client) for client in result["clients"]] == [documented(1)] * 3
    assert (result["status"], result["method"], result["rounds"]) == ("completed", "feddadil", 1)
    target = result["clients"][2]["metrics"]
    assert {"accuracy", "source_only", "accuracy_r", "accuracy_e", "accuracy_oracle", "distilled_20"} <= set(target)
    drawn = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert {"points-site-3.png", "points-site-3.csv", "traffic.png", "traffic.csv"} <= drawn
    page = (tmp_path / "out" / "report.html").read_text()
    assert "site-3 (usps): its own points" in page


@pytest.mark.nightly(job="journeys")
def test_a_demonstration_beside_its_reference(tmp_path: Path) -> None:
    """A method whose plan has no source-only model gets it from the run beside it."""
    result = complete(tmp_path, "--method", "fedprox")
    assert (result["method"], result["reference_status"]) == ("fedprox", "completed")
    assert all(0 <= client["source_only"] <= 1 for client in result["clients"])


@pytest.mark.parametrize("early", [pytest.param(True, id="as it starts"), LATE])
@pytest.mark.parametrize(
    "way", ["group", *(pytest.param(way, marks=pytest.mark.nightly(job="journeys")) for way in ("main", "twice", "terminated"))]
)
def test_an_interrupted_demonstration(tmp_path: Path, way: str, early: bool) -> None:
    """However and whenever it is interrupted, no process and no temporary folder is left."""
    begun = start(tmp_path)
    demo = psutil.Process(begun.pid)
    wanted = 1 if early else 5  # the coordinator; its worker, three agents, and by and by their trainers
    Net(tmp_path).until(lambda: len(demo.children(recursive=True)) >= wanted, "the children to start")
    children = demo.children(recursive=True)
    for _ in range(2 if way == "twice" else 1):
        if way == "group":
            os.killpg(demo.pid, signal.SIGINT)
        else:
            demo.send_signal(signal.SIGTERM if way == "terminated" else signal.SIGINT)
    assert begun.wait(30) == INTERRUPTED
    assert psutil.wait_procs(children, 5)[1] == []
    assert not list(tmp_path.glob("tideline-demo-*"))
