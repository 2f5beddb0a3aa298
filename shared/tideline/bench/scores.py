"""The results of cells on disk, and the numbers of the tables."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import cast

from tideline.bench.expectations import Expected, expected_in
from tideline.bench.grid import Cell
from tideline.client.answers import RunResult, SiteResult
from tideline.core.settings import Plain
from tideline.report.charts import average

EXPERIMENT, RESULT, FAILED = "experiment.yaml", "result.json", "failed.json"
METRICS = ("id", "ood")


class Status(StrEnum):
    DONE = "done"
    FAILED = "failed"
    WAITING = "waiting"


@dataclass(frozen=True)
class Point:
    """id and ood after some rounds; None if a site has no accuracy."""

    round: int
    id: float | None
    ood: float | None


@dataclass(frozen=True)
class Score:
    """A cell's result. id, ood in 0..1; cause: why it failed.

    rows: how many the accuracy ood is of, and its Wilson interval by them, low to high. bytes: of all messages, of a rehearsal
    those of all its runs. expected: of a rehearsal what it expected of the target.
    """

    cell: Cell
    status: Status
    cause: str = ""
    id: float | None = None
    ood: float | None = None
    state_digest: str | None = None
    seconds: float | None = None
    rounds: int | None = None
    curve: tuple[Point, ...] = ()
    rows: int | None = None
    low: float | None = None
    high: float | None = None
    bytes: int | None = None
    expected: Expected | None = None


@dataclass(frozen=True)
class Spread:
    """The mean over `n` seeds of the `of` that were asked for, and their sample standard deviation; None of a single one."""

    mean: float
    std: float | None
    n: int
    of: int


@dataclass(frozen=True)
class Row:
    """A method with d domains a client: id and ood over all left-out domains, and of each; None if no seed is whole."""

    label: str
    domains: int
    all: Mapping[str, Spread | None]
    each: Mapping[str, Mapping[str, Spread | None]]


def read_cell(home: Path, cell: Cell) -> Score:
    """The result in a cell's folder, if it is of this very experiment."""
    if text_of(home / EXPERIMENT) != cell.text:
        return Score(cell, Status.WAITING)
    result = json_of(home / RESULT)
    if result and result.get("status") == "completed":
        return scored(cell, cast("RunResult", result))
    failed = json_of(home / FAILED)
    return Score(cell, Status.FAILED, str(failed.get("cause", ""))) if failed else Score(cell, Status.WAITING)


def text_of(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def json_of(path: Path) -> dict[str, Plain] | None:
    """A file's JSON object; None if it is missing, or not whole."""
    try:
        value = json.loads(text_of(path) or "")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def scored(cell: Cell, result: RunResult) -> Score:
    """The numbers of a completed run (docs/result.md)."""
    own, unseen = means(result, {each["name"]: each["accuracy"] for each in result["clients"]})
    curve = tuple(Point(n, *means(result, shares)) for n, shares in by_round(result))
    interval = next((result.get("scores", {}).get(c["name"], {}).get("accuracy") for c in result["clients"] if target(c)), None)
    return Score(
        cell,
        Status.DONE,
        id=own,
        ood=unseen,
        state_digest=result["state_digest"],
        seconds=result["seconds"],
        rounds=result["rounds"],
        curve=curve,
        rows=interval and interval["rows"],
        low=interval and interval["low"],
        high=interval and interval["high"],
        bytes=bytes_of(result),
        expected=expected_in(result),
    )


def bytes_of(result: RunResult) -> int:
    """Of all messages; of a rehearsal its verdict tells those of the runs that it compares."""
    verdict = result.get("verdict")
    compared = verdict.get("bytes") if verdict else None
    return sum(c["bytes_up"] + c["bytes_down"] for c in result["clients"]) + (compared or 0)


def target(client: SiteResult) -> bool:
    return client["role"] == "target"


def means(result: RunResult, accuracy: Mapping[str, float | None]) -> tuple[float | None, float | None]:
    """id, the mean over sources, and ood, that over targets; None if one of them has no accuracy."""
    values = [[accuracy.get(c["name"]) for c in result["clients"] if c["role"] == role] for role in ("source", "target")]
    return average(values[0]), average(values[1])


def by_round(result: RunResult) -> Iterator[tuple[int, dict[str, float]]]:
    """The sites' accuracies of each scoring, by the rounds that were over: the largest number of any other phase until then."""
    shares: dict[tuple[str, int], dict[str, float]] = {}
    for point in result["curve"]:
        if point["client"] is not None:  # of very long runs there are means alone, over sites of every role
            shares.setdefault((point["phase"], point["round"]), {})[point["client"]] = point["accuracy"]
    scorings, rounds = {phase for phase, _ in shares}, 0
    merged: dict[int, dict[str, float]] = {}
    for phase in result["phases"]:
        if phase["name"] not in scorings:
            rounds = max(rounds, phase["round"] if phase["name"] != "join" else 0)
        elif (phase["name"], phase["round"]) in shares:
            merged[rounds] = {**merged.get(rounds, {}), **shares[phase["name"], phase["round"]]}
    yield from sorted(merged.items())


def rows(scores: Sequence[Score]) -> list[Row]:
    """A row for each method and d, in the grid's order. Over all left-out domains: the mean of each seed's, then over seeds."""
    labels, ds = (tuple(dict.fromkeys(values)) for values in zip(*((s.cell.label, s.cell.domains) for s in scores), strict=True))
    made = []
    for label, d in itertools.product(labels, ds):
        own = [s for s in scores if (s.cell.label, s.cell.domains) == (label, d)]
        names = dict.fromkeys(s.cell.leave_out for s in own)
        each = {name: over_seeds([s for s in own if s.cell.leave_out == name]) for name in names}
        made.append(Row(label, d, over_seeds(own), each))
    return made


def over_seeds(scores: Sequence[Score]) -> dict[str, Spread | None]:
    """The spread of each metric over seeds; a seed whose cells are not all done is left out."""
    seeds = dict.fromkeys(s.cell.seed for s in scores)
    values = {m: [average([getattr(s, m) for s in scores if s.cell.seed == seed]) for seed in seeds] for m in METRICS}
    return {metric: spread(each) for metric, each in values.items()}


def spread(values: Sequence[float | None]) -> Spread | None:
    """Mean and sample standard deviation of what is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known), len(values))
