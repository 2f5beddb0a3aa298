"""Rows of a grid that are chosen by rehearsal: their cells, what is refused, and what was expected beside what was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_bench_grid import cells_of, written
from tests.cli.test_bench_tables import lay, result
from tests.cli.world import json_of, make_data, output_of, tide
from tideline.bench.expectations import Expected, expected_and_found
from tideline.bench.grid import Cell
from tideline.bench.scores import read_cell
from tideline.cli.guard import REFUSED
from tideline.engine.model.experiment import read_experiment
from tideline.written.yaml_lines import read_yaml

SITE = {"label": "site", "method": "fedavg", "world": {"normalise": "site"}}
REHEARSE: dict[str, Any] = {"candidates": ["gaussian_heads", SITE], "rule": "mean"}
ROW: dict[str, Any] = {"label": "chosen", "method": "fedavg", "rehearse": REHEARSE}
GRID: dict[str, Any] = {"protocol": "adapt", "methods": ["fedavg", ROW], "domains": 1, "seeds": 2, "leave_out": "a", "base": None}
GRID |= {"world": {"model": "linear", "inputs": [4], "classes": 3}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A place with four domains of few features."""
    make_data(tmp_path / "data", "abcd")
    return tmp_path


def test_a_cell_rehearses_and_runs(place: Path) -> None:
    """Its experiment says so; a candidate has what the grid says of it. The rows beside it are as they were."""
    found = cells_of(place, **GRID)
    plain, chosen = (read_experiment(read_yaml(cell.text, "cell").value) for cell in found[:2])
    assert plain.rehearse is None and plain.then == "nothing"
    assert chosen.rehearse is not None and chosen.then == "run" and chosen.rehearse.rule.value == "mean"
    assert [each.name for each in chosen.rehearse.candidates] == ["gaussian_heads", "site"]
    assert [cell.key for cell in cells_of(place, **{**GRID, "methods": ["fedavg"]})] == [cell.key for cell in found[::2]]


def row(**changed: Any) -> dict[str, Any]:
    """A grid's method whose `rehearse` is otherwise."""
    return {"methods": [{**ROW, "rehearse": {**ROW["rehearse"], **changed}}]}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"protocol": "generalise"}, "rehearse:", "methods[1].rehearse chooses for a target"),
    (row(rule="best"), "rule: best", "methods[0].rehearse.rule is 'best'"),
    (row(candidates=["fedavgg"]), "- fedavgg", "did you mean fedavg?"),
    (row(candidates=["fedprox", "fedprox"]), "- fedprox", "there are two candidates of the name fedprox"),
    (row(candidates=[{"method": "fedavg", "label": "x", "config": {"round": 1}}]), "round: 1", "round is not a known setting"),
    (row(candidates=[{**SITE, "world": {"classes": 4}}]), "classes: 4", "cannot differ between candidates"),
    (row(candidate=["fedavg"]), "candidate:", "methods[0].rehearse.candidate is not a known setting"),
    (row(on=0), "'on': 0", "rehearse.on is 0"),
    (row(mode="half"), "mode: half", "methods[0].rehearse.mode is 'half'"),
]


@pytest.mark.parametrize(("changed", "line", "words"), BAD, ids=lambda value: str(value)[:40])
def test_a_wrong_rehearsal_is_told_with_its_line(place: Path, changed: dict[str, Any], line: str, words: str) -> None:
    path = written(place, **{**GRID, **changed})
    ended = tide("bench", path, "--out", place / "out")
    assert ended.exit_code == REFUSED and words in ended.stderr, ended.stderr
    number = int(ended.stderr.removeprefix(f"Error: {path}:").partition(":")[0])
    assert path.read_text().splitlines()[number - 1].strip().removeprefix("- ").startswith(line.removeprefix("- ")), ended.stderr


def answered(ood: float, source_only: float, gain: tuple[float, float, float] | None) -> dict[str, Any]:
    """The result of a run that rehearsed: the runs that it compares have sent 5 MB."""
    made = result([None], ood)
    made["clients"][-1]["source_only"] = source_only
    interval = None if gain is None else dict(zip(("value", "low", "high"), gain, strict=True))
    chosen = {"site": 0.75, "no adaptation": 0.25}
    target = {"name": "unseen", "chosen": chosen, "gain": interval, "accuracy": None, "changed": 0.01}
    scores = {"unseen": {"accuracy": {"value": ood, "low": ood, "high": ood, "rows": 100}}}
    return {**made, "scores": scores, "verdict": {"targets": [target], "bytes": 5_000_000}}


def test_what_was_expected_beside_what_was_found(place: Path) -> None:
    """Means over seeds, and in how many of them the interval holds; megabytes are those of all runs."""
    found = {0: (0.62, 0.60, (0.03, 0.00, 0.06)), 1: (0.58, 0.60, (0.01, -0.01, 0.03))}
    for cell in cells_of(place, **GRID):
        told = result([0.8], 0.6) if cell.label == "fedavg" else answered(*found[cell.seed])
        lay(place / "out", cell, told)
    output_of(tide("bench", written(place, **GRID), "--out", place / "out", "--table"))
    text = (place / "out" / "table.md").read_text()
    assert "## Expected and found\n\n| row | d | target | chosen | expected gain | found | holds |" in text
    line = "| chosen | 1 | a | site 75 %, no adaptation 25 % | +2.0 (-0.5 to +4.5) | +0.0 | 1 of 2 |"
    assert line in text
    told = json_of(tide("bench", written(place, **GRID), "--out", place / "out", "--table", "--json"))
    assert [each["holds"] for each in told["expected"]] == [True, False]
    assert told["expected"][1]["found"] == pytest.approx(-0.02) and told["expected"][0]["seed"] == 0
    assert told["cells"][1]["bytes"] == 5_000_006


def test_where_nothing_could_be_rehearsed(place: Path) -> None:
    cell = cells_of(place, **GRID)[1]
    lay(place / "out", cell, answered(0.5, 0.4, None))
    score = read_cell(place / "out" / "cells" / cell.key, cell)
    assert score.expected is not None and score.expected.gain is None and score.expected.found == pytest.approx(0.1)
    assert lines([(cell, score.expected)]) == [["chosen", "1", "a", "site 75 %, no adaptation 25 %", "", "+10.0", ""]]


def lines(cells: list[tuple[Cell, Expected]]) -> list[list[str]]:
    return expected_and_found(cells)[1]


@pytest.mark.nightly(job="services")
def test_a_row_is_chosen(tmp_path: Path) -> None:
    """It runs to the end beside another one; what is done is not run again, and the one that is missing is."""
    (tmp_path / "data").mkdir()
    for i, name in enumerate("abcd"):
        y = np.arange(45) % 3
        x = np.random.default_rng(i).normal(size=(45, 4)) + 2 * np.eye(3, 4)[y] + i
        np.savez(tmp_path / "data" / f"{name}.npz", x=x.astype(np.float32), y=y)
    config = {"config": {"rounds": 2, "rate": 0.1}}
    file = written(tmp_path, **{**GRID, "methods": [{"method": "fedavg", **config}, {**ROW, **config}], "seeds": 1})
    told = json_of(tide("bench", file, "--out", tmp_path / "out", "--jobs", 2, "--json"))
    plain, chosen = told["cells"]
    assert chosen["status"] == "done" and chosen["id"] is None and chosen["rows"] == plain["rows"] == 9
    assert chosen["bytes"] > 8 * plain["bytes"], "of the runs of three candidates at three sites and at the target"
    (expected,) = told["expected"]
    home = tmp_path / "out" / "cells" / chosen["folder"] / "result.json"
    assert expected["found"] == pytest.approx(chosen["ood"] - source_only(home)) and sum(expected["chosen"].values()) == 1
    home.unlink()
    again = tide("bench", file, "--out", tmp_path / "out", "--json")
    assert "2 cells, 1 done, 1 to run" in again.stderr
    assert json.loads(again.stdout)["cells"][1]["state_digest"] == chosen["state_digest"]


def source_only(home: Path) -> float:
    """The target's accuracy without adaptation."""
    (target,) = [each for each in json.loads(home.read_text())["clients"] if each["role"] == "target"]
    return float(target["source_only"])
