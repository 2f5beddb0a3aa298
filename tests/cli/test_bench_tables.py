"""The numbers of `tideline bench`, worked out by hand from results that were made up."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_bench_grid import cells_of, make_data, written
from tests.cli.world import output_of, tide
from tideline.bench.grid import Cell
from tideline.bench.scores import Point, Spread, Status, by_round, over_seeds, read_cell, rows
from tideline.bench.tables import COLUMNS, percent
from tideline.cli.guard import ENDED_BADLY

SMALL: dict[str, Any] = {"methods": ["fedavg", "local"], "domains": [1], "seeds": 2, "leave_out": ["a", "b"]}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A place with three domains of few features."""
    make_data(tmp_path / "data")
    return tmp_path


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


@pytest.mark.parametrize(
    ("spread", "words"),
    [
        (None, ""),
        (Spread(0.5, None, 1, 1), "50.0"),
        (Spread(0.5461, 0.0123, 3, 3), "54.6 ± 1.2"),
        (Spread(0.5, 0.0, 2, 3), "50.0 ± 0.0 (2 of 3)"),
    ],
)
def test_numbers_for_people(spread: Spread | None, words: str) -> None:
    """Percent with one digit, and how many seeds where some are missing."""
    assert percent(spread) == words
