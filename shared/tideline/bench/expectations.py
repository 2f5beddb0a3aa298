"""What rehearsals expected of targets, and what was found there."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tideline.bench.grid import Cell
from tideline.client.answers import Interval, RunResult

Lines = tuple[list[str], list[list[str]]]  # a header, and the lines below it
BOTH_SIDES = 1.645  # standard deviations that 90 % lie within
SHOWN = 0.005  # of the weights: what rounds to nothing is left out
HEADER = ["row", "d", "target", "chosen", "expected gain", "found", "holds"]


@dataclass(frozen=True)
class Expected:
    """Of one target: the candidates' weights by name, and the gain expected over no adaptation, each with 90 % intervals.

    found: the gain on so many held-out rows, in -1..1. gain, accuracy: None where nothing could be rehearsed. changed: the share
    of rows predicted otherwise than without adaptation, as far as it is known.
    """

    chosen: Mapping[str, float]
    gain: Interval | None
    accuracy: Interval | None
    found: float
    rows: int
    changed: float

    @property
    def holds(self) -> bool:
        """Whether the expected gain's interval holds what was found, give or take what chance makes of so few rows."""
        return self.gain is not None and within(self.gain, self.found, self.changed / max(self.rows, 1))


def within(expected: Interval, found: float, variance: float) -> bool:
    """Whether an interval of 90 % holds what was found, which chance has moved with this variance."""
    off = (expected["value"] - expected["low"]) if found < expected["value"] else (expected["high"] - expected["value"])
    return abs(found - expected["value"]) <= math.hypot(off, BOTH_SIDES * math.sqrt(variance))


def expected_in(result: RunResult) -> Expected | None:
    """Of the only target of a run that rehearsed; None of other runs, and where nothing was found."""
    verdict = result.get("verdict")
    target = next((c for c in result["clients"] if c["role"] == "target"), None)
    if not verdict or target is None or target["accuracy"] is None or target["source_only"] is None:
        return None
    said = next((each for each in verdict["targets"] if each["name"] == target["name"]), None)
    if said is None:
        return None
    return Expected(
        chosen=said["chosen"],
        gain=said["gain"],
        accuracy=said["accuracy"],
        found=target["accuracy"] - target["source_only"],
        rows=result["scores"][target["name"]]["accuracy"]["rows"],
        changed=said.get("changed") or 0.0,
    )


def expected_and_found(cells: Sequence[tuple[Cell, Expected]]) -> Lines:
    """A line for each row, d and target: means over seeds, and in how many of them the interval holds."""

    def place(each: tuple[Cell, Expected]) -> tuple[str, int, str]:
        return each[0].label, each[0].domains, each[0].leave_out

    places = dict.fromkeys(map(place, cells))
    return HEADER, [line(*at, [each[1] for each in cells if place(each) == at]) for at in places]


def line(label: str, d: int, target: str, seeds: Sequence[Expected]) -> list[str]:
    gains = [each.gain for each in seeds if each.gain is not None]
    holds = f"{sum(each.holds for each in seeds)} of {len(gains)}" if gains else ""
    return [label, str(d), target, chosen(seeds), interval(gains), points(statistics.fmean(s.found for s in seeds)), holds]


def chosen(seeds: Sequence[Expected]) -> str:
    """Each candidate with its mean weight, the largest first."""
    names = dict.fromkeys(itertools.chain(*(each.chosen for each in seeds)))
    weights = {name: statistics.fmean(each.chosen.get(name, 0.0) for each in seeds) for name in names}
    shown = sorted(((w, name) for name, w in weights.items() if w >= SHOWN), key=lambda each: -each[0])
    return ", ".join(f"{name} {100 * w:.0f} %" for w, name in shown)


def interval(gains: Sequence[Interval]) -> str:
    if not gains:
        return ""
    value, low, high = (points(statistics.fmean(g[end] for g in gains)) for end in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def points(gain: float) -> str:
    return f"{100 * gain:+z.1f}"


def plain_of(cell: Cell, expected: Expected) -> dict[str, object]:
    """One cell's as JSON data."""
    place = {"label": cell.label, "left_out": cell.leave_out, "domains": cell.domains, "seed": cell.seed}
    return {**place, **asdict(expected), "holds": expected.holds}
