"""The leaderboard's command: made sets in, a page out, and nothing twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks import leaderboard
from tests.acceptance.harness import ROOT
from tideline.algorithms import METHODS
from tideline.bench.grid import config_of, read_grid
from tideline.core.algorithm import resolve
from tideline.core.settings import parse
from tideline.written.files import ExperimentText

FEDAVG = {"method": "fedavg", "config": {"rounds": 1}}
CHOSEN = {"label": "chosen", "method": "gaussian_heads", "rehearse": {"candidates": [FEDAVG]}}
BOARD = {
    "sets": {"made": {"classes": 3, "what": "three clouds, moved"}},
    "groups": [
        {"name": "linear", "world": {"model": "linear"}, "methods": ["gaussian_heads", CHOSEN]},
        {"name": "mlp", "long": True, "world": {"model": "mlp"}, "methods": [{"method": "shot", "preset": "tiny"}]},
    ],
    "pooled": ["logistic regression", "CORAL"],
    "seeds": 1,
    "rows": 60,
}


def clouds(folder: Path) -> None:
    """Three domains of three classes each."""
    folder.mkdir(parents=True)
    for i, name in enumerate("abc"):
        y = np.arange(80) % 3
        x = np.random.default_rng(i).normal(size=(80, 5)) + 3 * np.eye(5)[y] + i / 3
        np.savez(folder / f"{name}.npz", x=x.astype(np.float32), y=y.astype(np.uint8))


def made(place: Path, *more: str) -> str:
    """What the command prints."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    options = ("--data", place, "--out", place / "out", "--board", place / "board.yaml", "--page", place / "page.md")
    command = [sys.executable, str(ROOT / "benchmarks" / "leaderboard.py"), *map(str, options), *more]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=400, env=os.environ | {"PYTHONPATH": path}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.nightly(job="benchmarks")
@pytest.mark.timeout(900)
@pytest.mark.processes
def test_a_page_is_made_and_nothing_is_run_twice(tmp_path: Path) -> None:
    """Rows of runs and of pooled data with intervals, the oracle, and how long the rest would take."""
    pytest.importorskip("skada")
    clouds(tmp_path / "made")
    (tmp_path / "board.yaml").write_text(yaml.safe_dump(BOARD))
    made(tmp_path, "--estimate")
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("<!-- This file is made by a command: python benchmarks/leaderboard.py")
    rows = [line.split(" | ")[0] for line in page.split("## made")[1].splitlines() if line.startswith("| ")]
    assert rows[:7] == [
        *("| method", "| ---", "| gaussian_heads", "| chosen", "| oracle (has seen the targets' labels)"),
        *("| logistic regression, pooled data", "| CORAL, pooled data"),
    ]
    assert "| row | d | target | chosen | expected gain | found | holds |" in page.split("What rehearsals expected")[1]
    assert "## Not run here" in page and "| shot | " in page.split("## Not run here")[1] and "## Failed" not in page
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").rglob("*.json") if file.name != "data.json"}
    again = made(tmp_path)
    assert "6 cells, 6 done, 0 to run" in again and (tmp_path / "page.md").read_text() == page.replace(" --estimate", "", 1)
    assert before == {file: file.stat().st_mtime_ns for file in (tmp_path / "out").rglob("*.json") if file.name != "data.json"}


def test_the_rows_of_the_leaderboard_are_settings_of_their_methods() -> None:
    board = parse(leaderboard.Board, yaml.safe_load((ROOT / "benchmarks" / "leaderboard.yaml").read_text()))
    for group in board.groups:
        given = {"folder": "x", "protocol": "adapt", "world": {**group.world, "inputs": [4]}, "methods": list(group.methods)}
        grid = read_grid(ExperimentText("grid", {**given, "baselines": list(group.baselines), "base": dict(group.base)}, {}))
        for method in grid.methods:
            resolve(METHODS, method.method).configure(config_of(grid, method), method.preset)
