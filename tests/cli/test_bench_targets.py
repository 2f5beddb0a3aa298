"""Grids that adapt: intervals, gains, choices and the oracle, worked out by hand from made-up results; and one that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_bench_grid import cells_of, make_data, written
from tests.cli.test_bench_tables import lay, result
from tests.cli.world import json_of, tide
from tideline.bench.choices import ORACLE, choices, with_choices
from tideline.bench.estimates import Estimate, accuracy, over_seeds, target_rows
from tideline.bench.scores import Score, read_cell
from tideline.bench.tables import estimated
from tideline.cli.guard import DONE

STUDENT_1, STUDENT_2 = 12.706, 4.303  # t of 97.5 % with one and two degrees of freedom, as printed in tables
SWEPT = {"label": "prox", "method": "fedprox", "config": {"rounds": 1}, "sweep": {"mu": [0.1, 1.0]}}
GRID: dict[str, Any] = {
    "protocol": "adapt",
    "methods": ["fedavg", "fedgma", SWEPT],
    "baselines": ["fedavg", "fedgma"],
    "domains": 1,
    "seeds": 2,
    "leave_out": ["a", "b"],
}
OOD = {  # of each row: target a and b with seed 0, a and b with seed 1
    "fedavg": (0.50, 0.30, 0.60, 0.40),
    "fedgma": (0.40, 0.40, 0.40, 0.40),
    "prox mu=0.1": (0.60, 0.40, 0.80, 0.60),
    "prox mu=1.0": (0.90, 0.10, 0.90, 0.10),
}
ID = {"prox mu=0.1": 0.7, "prox mu=1.0": 0.8}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A place with three domains of few features."""
    make_data(tmp_path / "data")
    return tmp_path


def answered(label: str, ood: float, half: float) -> dict[str, Any]:
    """A result whose target has a score with an interval, and whose messages have a size."""
    made = result([ID.get(label, 0.5)], ood)
    made["clients"] = [{**client, "bytes_up": 1_000_000, "bytes_down": 500_000} for client in made["clients"]]
    return {**made, "scores": {"unseen": {"accuracy": {"value": ood, "low": ood - half, "high": ood + half, "rows": 20}}}}


def scores_of(place: Path, half: float = 0.1, **changed: Any) -> list[Score]:
    cells = cells_of(place, **{**GRID, **changed})
    for cell in cells:
        at = [("a", 0), ("b", 0), ("a", 1), ("b", 1)].index((cell.leave_out, cell.seed))
        lay(place / "out", cell, answered(cell.label, OOD[cell.label][at], half))
    return [read_cell(place / "out" / "cells" / cell.key, cell) for cell in cells]


def test_intervals_by_hand(place: Path) -> None:
    """Student's over seeds or Wilson's over rows, on each side what is wider; of several targets both of their mean."""
    rows = {row.label: row for row in target_rows(scores_of(place, half=0.1))}
    row = rows["fedgma"]  # the same with every seed: rows decide
    assert row.targets["a"] == Estimate(pytest.approx(0.4), pytest.approx(0.3), pytest.approx(0.5), 2, 2)
    half = 0.1 * 2**0.5 / 2  # of the mean of two targets
    assert row.all == Estimate(pytest.approx(0.4), pytest.approx(0.4 - half), pytest.approx(0.4 + half), 2, 2)
    row = rows["fedavg"]  # 0.5 and 0.6 at a: mean 0.55, half STUDENT_1 * 0.0707 / sqrt(2)
    assert row.targets["a"] is not None and row.targets["a"].high == 1.0, "an accuracy is at most 1"
    assert row.targets["a"].low == 0.0 and row.targets["a"].mean == pytest.approx(0.55)
    assert (row.megabytes, row.seconds) == (pytest.approx(3.0), 3.0)


def test_gains_are_seed_by_seed_over_the_strongest_baseline(place: Path) -> None:
    """fedavg has a mean of 45 %, fedgma of 40 %; the others gain over fedavg, the mean over targets first."""
    rows = {row.label: row for row in target_rows(scores_of(place))}
    assert rows["fedavg"].gain is None
    gain = rows["prox mu=0.1"].gain  # seed 0: 0.5 - 0.4; seed 1: 0.7 - 0.5
    assert gain is not None and gain.mean == pytest.approx(0.15)
    half = STUDENT_1 * np.std([0.1, 0.2], ddof=1) / 2**0.5
    assert (gain.low, gain.high) == (pytest.approx(0.15 - half, abs=1e-3), pytest.approx(0.15 + half, abs=1e-3))
    lost = rows["fedgma"].gain
    assert lost is not None and lost.mean == pytest.approx(-0.05)


def test_an_interval_over_three_seeds() -> None:
    values = [0.5, 0.6, 0.7]
    half = STUDENT_2 * 0.1 / 3**0.5
    assert over_seeds(values) == Estimate(
        pytest.approx(0.6), pytest.approx(0.6 - half, abs=1e-4), pytest.approx(0.6 + half, abs=1e-4), 3, 3
    )
    assert over_seeds([0.5, None]) == Estimate(0.5, None, None, 1, 2) and over_seeds([None]) is None


def test_a_seed_whose_cells_are_not_all_done_is_left_out(place: Path) -> None:
    scores = [s for s in scores_of(place) if s.cell.label == "fedavg"]
    waiting = [s if (s.cell.leave_out, s.cell.seed) != ("b", 1) else Score(s.cell, s.status) for s in scores]
    found = accuracy(waiting)
    assert found is not None and (found.mean, found.n, found.of) == (pytest.approx(0.4), 1, 2)
    (row,) = target_rows(waiting)
    assert row.targets["a"] is not None and row.targets["a"].n == 2
    assert accuracy([Score(s.cell, s.status) for s in scores]) is None


def test_what_is_chosen(place: Path) -> None:
    """Of a sweep by the sources' own held-out rows; by the oracle the best row of all at each target, which is marked."""
    scores = scores_of(place)
    by_id, oracle = choices(scores)
    assert (by_id.label, dict(by_id.picks)) == ("prox, chosen by id", {"a": "prox mu=1.0", "b": "prox mu=1.0"})
    assert (oracle.label, dict(oracle.picks)) == (ORACLE, {"a": "prox mu=1.0", "b": "prox mu=0.1"})
    rows = {row.label: row for row in target_rows(with_choices(scores, [by_id, oracle]))}
    assert [rows[by_id.label].targets[name] for name in "ab"] == [rows["prox mu=1.0"].targets[name] for name in "ab"]
    best = rows[ORACLE]
    assert best.all is not None and best.all.mean == pytest.approx((0.9 + 0.5) / 2)
    assert best.gain is not None and rows["fedavg"].gain is None, "an oracle is no baseline"


def test_nothing_is_chosen_before_a_row_is_whole(place: Path) -> None:
    scores = [s for s in scores_of(place) if s.cell.seed == 0]
    waiting = [Score(s.cell, s.status) if s.cell.leave_out == "b" else s for s in scores]
    assert list(choices(waiting)) == []


def test_tables_and_json_of_targets(place: Path) -> None:
    """What the command prints and writes of results that are there."""
    scores_of(place)
    ended = tide("bench", written(place, **GRID), "--out", place / "out", "--table")
    assert ended.exit_code == DONE, ended.output
    text = (place / "out" / "table.md").read_text()
    assert "| method | a | b | mean | gain over fedavg | MB | seconds |" in text and "## Targets, d = 1" in text
    assert "| fedgma | 40.0 (30.0 to 50.0) | 40.0 (30.0 to 50.0) | 40.0 (32.9 to 47.1) | -5.0 (" in text
    assert f"| {ORACLE} | 1 | prox mu=1.0 | prox mu=0.1 |" in text and "labels that score" in text
    assert "gain over fedavg" in ended.stdout and ORACLE in ended.stdout
    told = json.loads(tide("bench", written(place, **GRID), "--out", place / "out", "--table", "--json").stdout)
    assert [each["label"] for each in told["targets"]] == [*OOD, "prox, chosen by id", ORACLE]
    assert told["targets"][1]["targets"]["a"]["mean"] == pytest.approx(0.4) and told["chosen"][1]["picks"]["b"] == "prox mu=0.1"
    assert told["cells"][0]["rows"] == 20 and told["cells"][0]["bytes"] == 3_000_000


def test_a_sweep_without_targets_is_chosen_by_id_alone(place: Path) -> None:
    cells = cells_of(place, **{**GRID, "protocol": "generalise", "baselines": None})
    for cell in cells:
        lay(place / "out", cell, answered(cell.label, 0.5, 0.1))
    told = tide(
        "bench", written(place, **{**GRID, "protocol": "generalise", "baselines": None}), "--out", place / "out", "--table"
    )
    text = (place / "out" / "table.md").read_text()
    assert told.exit_code == DONE and "| prox, chosen by id | 80.0 ± 0.0 | 50.0 ± 0.0 |" in text and "oracle" not in text


@pytest.mark.parametrize(
    ("estimate", "sign", "words"),
    [
        (None, "", ""),
        (Estimate(0.5, None, None, 1, 1), "", "50.0"),
        (Estimate(0.5461, 0.5, 0.6, 3, 3), "", "54.6 (50.0 to 60.0)"),
        (Estimate(-0.0001, -0.02, 0.04, 3, 3), "+", "+0.0 (-2.0 to +4.0)"),
        (Estimate(0.01, -0.02, 0.04, 2, 3), "+", "+1.0 (-2.0 to +4.0) (2 of 3)"),
    ],
)
def test_estimates_for_people(estimate: Estimate | None, sign: str, words: str) -> None:
    """Percent with one digit, and how many seeds where some are missing."""
    assert estimated(estimate, sign) == words


@pytest.mark.nightly(job="services")
def test_two_methods_adapt_to_two_targets(tmp_path: Path) -> None:
    """A method that adapts, and one that does not, run to the end; done again nothing runs."""
    (tmp_path / "data").mkdir()
    for i, name in enumerate("abc"):
        y = np.arange(45) % 3
        x = np.random.default_rng(i).normal(size=(45, 4)) + 2 * y[:, None] + i
        np.savez(tmp_path / "data" / f"{name}.npz", x=x.astype(np.float32), y=y)
    methods = ["fedavg", {"method": "shot", "preset": "tiny"}]
    file = written(tmp_path, protocol="adapt", methods=methods, domains=1, seeds=1, leave_out=["a", "b"], base=None)
    cells = json_of(tide("bench", file, "--out", tmp_path / "out", "--jobs", 2, "--json"))["cells"]
    assert [(c["label"], c["left_out"], c["status"], c["rows"]) for c in cells] == [
        (label, target, "done", 9) for target in "ab" for label in ("fedavg", "shot")
    ]
    results = [json.loads((tmp_path / "out" / "cells" / c["folder"] / "result.json").read_text()) for c in cells]
    adapted = next(client for client in results[1]["clients"] if client["name"] == "unseen")
    assert adapted["samples"] == 36, "all rows of the target that do not score it"
    again = tide("bench", file, "--out", tmp_path / "out")
    assert again.exit_code == DONE and "4 cells, 4 done, 0 to run" in again.stderr
