"""The numbers of `tideline bench`, worked out by hand from made-up results: means, intervals, gains, choices and the oracle."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_bench_grid import cells_of, written
from tests.cli.world import json_of, output_of, tide
from tideline.bench.choices import ORACLE, choices, with_choices
from tideline.bench.estimates import Estimate, accuracy, target_rows
from tideline.bench.estimates import over_seeds as interval_over_seeds
from tideline.bench.grid import Cell
from tideline.bench.scores import Point, Score, Spread, Status, by_round, over_seeds, read_cell, rows
from tideline.bench.tables import COLUMNS, estimated, percent
from tideline.cli.guard import DONE, ENDED_BADLY

SMALL: dict[str, Any] = {"methods": ["fedavg", "local"], "domains": [1], "seeds": 2, "leave_out": ["a", "b"]}


def result(clients: list[float | None], unseen: float | None, seconds: float = 3.0) -> dict[str, Any]:
    """A completed run's result, as far as tables look at it: a first scoring at half the accuracies."""
    named = {**{f"client-{i + 1}": value for i, value in enumerate(clients)}, "unseen": unseen}
    closed = (("join", 1), ("train", 1), ("train", 2), ("score", 1), ("train", 3), ("score", 2))
    phases = [{"name": name, "round": r} for name, r in closed]
    curve = [
        {"client": name, "phase": "score", "round": r, "accuracy": value * r / 2}
        for r in (1, 2)
        for name, value in named.items()
        if value is not None
    ]
    roles = {name: "target" if name == "unseen" else "source" for name in named}
    sent = {"bytes_up": 2, "bytes_down": 1}
    told = [{"name": name, "role": roles[name], "accuracy": value, **sent} for name, value in named.items()]
    facts = {"status": "completed", "cause": "", "state_digest": "5" * 64, "seconds": seconds, "rounds": 3}
    return {**facts, "clients": told, "phases": phases, "curve": curve}


def lay(out: Path, cell: Cell, told: dict[str, Any] | None, failed: str = "") -> Path:
    """A cell's folder, as a bench would leave it."""
    home = out / "cells" / cell.key
    home.mkdir(parents=True)
    (home / "experiment.yaml").write_text(cell.text)
    if told is not None:
        (home / "result.json").write_text(json.dumps(told))
    if failed:
        (home / "failed.json").write_text(json.dumps({"code": 1, "cause": failed}))
    return home


def fill(place: Path) -> list[Cell]:
    """Eight cells: fedavg done, local done but for one that has failed."""
    cells = cells_of(place, **SMALL)
    ood = {("a", 0): 0.50, ("b", 0): 0.30, ("a", 1): 0.60, ("b", 1): 0.40}
    for cell in cells:
        at = cell.leave_out, cell.seed
        if cell.label == "fedavg":
            lay(place / "out", cell, result([0.8, ood[at]], ood[at]))
        elif at == ("b", 1):
            lay(place / "out", cell, None, "stalled: nobody came | at all")
        else:
            lay(place / "out", cell, result([0.25, 0.75], None))
    return cells


def test_tables_by_hand(place: Path) -> None:
    """The mean over left-out domains first, then over seeds, with the sample standard deviation; None is no zero."""
    cells = fill(place)
    scores = [read_cell(place / "out" / "cells" / cell.key, cell) for cell in cells]
    fedavg, local = rows(scores)
    assert (fedavg.label, fedavg.domains) == ("fedavg", 1)
    # ood: seed 0 (0.50 + 0.30) / 2 = 0.40, seed 1 (0.60 + 0.40) / 2 = 0.50
    assert fedavg.all["ood"] == Spread(pytest.approx(0.45), pytest.approx(statistics.stdev([0.4, 0.5])), 2, 2)
    # id: of each cell (0.8 + ood) / 2, so 0.60 and 0.65
    assert fedavg.all["id"] == Spread(pytest.approx(0.625), pytest.approx(0.05 / 2**0.5), 2, 2)
    assert fedavg.each["a"]["ood"] == Spread(pytest.approx(0.55), pytest.approx(0.1 / 2**0.5), 2, 2)
    assert fedavg.each["b"]["ood"] == Spread(pytest.approx(0.35), pytest.approx(0.1 / 2**0.5), 2, 2)
    assert local.all == {"id": Spread(0.5, None, 1, 2), "ood": None}, "of seed 1 a cell has failed"
    assert local.each["a"]["id"] == Spread(0.5, 0.0, 2, 2) and local.each["b"]["id"] == Spread(0.5, None, 1, 2)


def test_what_is_written(place: Path) -> None:
    """Tables, a line a cell, a line a scoring, and pictures; the failed one is told, and the command ends with 1."""
    cells = fill(place)
    ended = tide("bench", written(place, **SMALL), "--out", place / "out", "--table")
    assert ended.exit_code == ENDED_BADLY, ended.output
    assert "Failed: local, b left out, d = 1, seed 1: stalled: nobody came | at all" in ended.stdout
    text = (place / "out" / "table.md").read_text()
    assert "8 cells: 7 done, 1 failed, 0 waiting" in text
    assert "| fedavg | 62.5 ± 3.5 | 45.0 ± 7.1 |" in text and "| local | 50.0 (1 of 2) |  |" in text
    assert "| fedavg | 67.5 ± 3.5 | 55.0 ± 7.1 | 57.5 ± 3.5 | 35.0 ± 7.1 |" in text
    assert "| local, b left out, d = 1, seed 1 | stalled: nobody came \\| at all |" in text
    assert all(word in ended.stdout for word in ("62.5 ± 3.5", "45.0 ± 7.1", "50.0 (1 of 2)"))
    with (place / "out" / "results.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert tuple(found[0]) == COLUMNS and len(found) == 8
    by_key = {line["folder"]: line for line in found}
    for cell in cells:
        line = by_key[cell.key]
        assert (line["label"], line["left_out"], line["seed"]) == (cell.label, cell.leave_out, str(cell.seed))
        assert line["experiment_digest"] == cell.digest and (line["state_digest"] == "5" * 64) == (line["status"] == "done")
    first = by_key[cells[0].key]
    assert (float(first["id"]), float(first["ood"]), first["rounds"], first["seconds"]) == (0.65, 0.5, "3", "3.0")
    with (place / "out" / "curves.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    curves = [line for line in lines if (line["label"], line["left_out"], line["seed"]) == ("fedavg", "a", "0")]
    assert [(line["round"], float(line["id"]), float(line["ood"])) for line in curves] == [("2", 0.325, 0.25), ("3", 0.65, 0.5)]
    for name in ("scores", "curves-d1"):
        assert (place / "out" / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly(job="services")
def test_what_programs_are_told(place: Path) -> None:
    fill(place)
    ended = tide("bench", written(place, **SMALL), "--out", place / "out", "--table", "--json")
    assert ended.exit_code == ENDED_BADLY
    told = json.loads(ended.stdout)
    assert told["rows"][0]["ood"] == {"mean": 0.45, "std": pytest.approx(0.0707, abs=1e-4), "n": 2, "of": 2}
    assert told["rows"][1]["ood"] is None and told["rows"][1]["left_out"]["a"]["id"]["mean"] == 0.5
    assert [each["status"] for each in told["cells"]].count("done") == 7 and set(told["cells"][0]) == set(COLUMNS)
    assert {Path(file).name for file in told["files"]} >= {"results.csv", "table.md", "curves.csv", "scores.png"}


def test_nothing_is_done_yet(place: Path) -> None:
    output_of(tide("bench", written(place, **SMALL), "--out", place / "out", "--table"))
    assert "8 cells: 0 done, 0 failed, 8 waiting" in (place / "out" / "table.md").read_text()
    assert not (place / "out" / "figures").exists()


def test_a_cell_is_done_if_its_result_is_whole_and_its_experiment_the_same(place: Path) -> None:
    """What is cut off, not completed, of another experiment, or not there at all is run again."""
    cell = cells_of(place, **SMALL)[0]
    home = lay(place / "out", cell, result([0.5], 0.5))
    assert read_cell(home, cell).status is Status.DONE
    whole = (home / "result.json").read_text()
    for text in (whole[:-1], "", "[]", json.dumps(result([0.5], 0.5) | {"status": "stalled"})):
        (home / "result.json").write_text(text)
        assert read_cell(home, cell).status is Status.WAITING, text
    (home / "result.json").write_text(whole)
    (home / "experiment.yaml").write_text(cell.text.replace("rounds: 1", "rounds: 2"))
    assert read_cell(home, cell).status is Status.WAITING
    (home / "experiment.yaml").write_bytes(b"\xff")
    assert read_cell(home, cell).status is Status.WAITING


def test_rounds_of_a_curve() -> None:
    """A scoring stands at the largest number of any other phase that was closed before it."""
    first = [("join", 1), ("encode", 1), ("encode", 2), ("learn", 1), ("score", 1)]
    phases = [*first, ("learn", 2), ("learn", 3), ("score", 2), ("late", 1)]
    told = {
        "phases": [{"name": name, "round": r} for name, r in [*phases, ("score", 3)]],
        "curve": [{"client": "a", "phase": "score", "round": r, "accuracy": r / 10} for r in (1, 2, 3)],
    }
    assert list(by_round(told)) == [(2, {"a": 0.1}), (3, {"a": 0.3})], "of two scorings after one round the later one counts"


def test_a_mean_over_fewer_is_none(place: Path) -> None:
    cell = cells_of(place, **SMALL)[0]
    score = read_cell(lay(place / "out", cell, result([0.5, None], 0.25)), cell)
    assert (score.id, score.ood) == (None, 0.25)
    assert score.curve == (Point(2, None, 0.125), Point(3, None, 0.25))
    assert over_seeds([score]) == {"id": None, "ood": Spread(0.25, None, 1, 1)}


def test_numbers_for_people() -> None:
    """Percent with one digit, and how many seeds where some are missing."""
    words = {None: "", Spread(0.5, None, 1, 1): "50.0", Spread(0.5461, 0.0123, 3, 3): "54.6 ± 1.2"}
    words[Spread(0.5, 0.0, 2, 3)] = "50.0 ± 0.0 (2 of 3)"
    assert {spread: percent(spread) for spread in words} == words


STUDENT_1, STUDENT_2 = 12.706, 4.303  # t of 97.5 % with one and two degrees of freedom, as printed in tables
SWEPT = {"label": "prox", "method": "fedprox", "config": {"rounds": 1}, "sweep": {"mu": [0.1, 1.0]}}
GRID: dict[str, Any] = {"protocol": "adapt", "methods": ["fedavg", "fedgma", SWEPT], "baselines": ["fedavg", "fedgma"]}
GRID |= {"domains": 1, "seeds": 2, "leave_out": ["a", "b"]}
OOD = {  # of each row: target a and b with seed 0, a and b with seed 1
    "fedavg": (0.50, 0.30, 0.60, 0.40),
    "fedgma": (0.40, 0.40, 0.40, 0.40),
    "prox mu=0.1": (0.60, 0.40, 0.80, 0.60),
    "prox mu=1.0": (0.90, 0.10, 0.90, 0.10),
}
ID = {"prox mu=0.1": 0.7, "prox mu=1.0": 0.8}


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
    assert interval_over_seeds(values) == Estimate(
        pytest.approx(0.6), pytest.approx(0.6 - half, abs=1e-4), pytest.approx(0.6 + half, abs=1e-4), 3, 3
    )
    assert interval_over_seeds([0.5, None]) == Estimate(0.5, None, None, 1, 2) and interval_over_seeds([None]) is None


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
    ended = output_of(tide("bench", written(place, **GRID), "--out", place / "out", "--table"))
    text = (place / "out" / "table.md").read_text()
    assert "| method | a | b | mean | gain over fedavg | MB | seconds |" in text and "## Targets, d = 1" in text
    assert "| fedgma | 40.0 (30.0 to 50.0) | 40.0 (30.0 to 50.0) | 40.0 (32.9 to 47.1) | -5.0 (" in text
    assert f"| {ORACLE} | 1 | prox mu=1.0 | prox mu=0.1 |" in text and "labels that score" in text
    assert "gain over fedavg" in ended and ORACLE in ended
    told = json_of(tide("bench", written(place, **GRID), "--out", place / "out", "--table", "--json"))
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


def test_estimates_for_people() -> None:
    """Percent with one digit, and how many seeds where some are missing."""
    words = {None: "", Estimate(0.5, None, None, 1, 1): "50.0", Estimate(0.5461, 0.5, 0.6, 3, 3): "54.6 (50.0 to 60.0)"}
    assert {estimate: estimated(estimate, "") for estimate in words} == words
    gains = {Estimate(-0.0001, -0.02, 0.04, 3, 3): "+0.0 (-2.0 to +4.0)"}
    gains[Estimate(0.01, -0.02, 0.04, 2, 3)] = "+1.0 (-2.0 to +4.0) (2 of 3)"
    assert {estimate: estimated(estimate, "+") for estimate in gains} == gains


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
