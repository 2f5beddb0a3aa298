"""The method and its baselines at the targets, best first: what each reached, and by how much it is above source-only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tideline.client.answers import RunResult, SiteResult
from tideline.report.meaning import FEW, Estimate, gain, rows_of, wilson
from tideline.report.paper.parts import percent, section, wide_table
from tideline.report.summary import accuracies

OWN, ALONE = "accuracy", "source_only"
NOTE = (
    "On held-out rows of each target, which training and selection never saw, with 95\u00a0% intervals where the number of rows"
    " is known. The last column is the mean gain over the targets. Its interval is of these rows alone: another seed may differ"
    " by more."
)


@dataclass(frozen=True)
class Line:
    """A method or a baseline: its metric, its accuracy at each target, the mean over them, and the mean gain on source-only."""

    metric: str
    at: tuple[Estimate | float | None, ...]
    mean: float
    gain: Estimate | None


def methods_table(result: RunResult) -> str:
    """A row for this run, for source-only and for each other accuracy that its targets told; empty without a baseline."""
    targets = [client for client in result["clients"] if client["role"] == "target"]
    found = lines(result, targets)
    if not {OWN, ALONE} <= {line.metric for line in found}:
        return ""
    shown = targets if len(targets) <= FEW else []
    heads = [("model", ""), *((escape(each["name"]), "n") for each in shown), ("mean", "n"), ("against source-only", "n")]
    rows = (row(result, line, bool(shown)) for line in sorted(found, key=lambda line: -line.mean))
    return section("The method and its baselines", NOTE, wide_table(heads, rows))


def lines(result: RunResult, targets: Sequence[SiteResult]) -> list[Line]:
    """One for each metric that every target has."""
    known = [accuracies(each) for each in targets]
    shared = set.intersection(*map(set, known)) if known else set()
    made = []
    for metric in sorted(shared):
        at = tuple(estimated(result, each, of[metric]) for each, of in zip(targets, known, strict=True))
        values = [of[metric] for of in known]
        made.append(Line(metric, at, sum(values) / len(values), None if metric == ALONE else mean_gain(result, targets, values)))
    return made


def estimated(result: RunResult, client: SiteResult, share: float) -> Estimate | float:
    """A share with its interval, where the number of rows is known."""
    rows = rows_of(result, client["name"])
    return wilson(share, rows) if rows else share


def mean_gain(result: RunResult, targets: Sequence[SiteResult], values: Sequence[float]) -> Estimate | None:
    """The mean of gains on source-only, whose errors at several targets are independent; None where one is not known."""
    gains = []
    for client, value in zip(targets, values, strict=True):
        rows, before = rows_of(result, client["name"]), client["source_only"]
        if rows is None or before is None:
            return None
        gains.append(gain(wilson(value, rows), wilson(before, rows)))
    n, mean = len(gains), sum(each.value for each in gains) / len(gains)
    down, up = (math.hypot(*ends) / n for ends in ([g.value - g.low for g in gains], [g.high - g.value for g in gains]))
    return Estimate(mean, mean - down, mean + up)


def row(result: RunResult, line: Line, shown: bool) -> str:
    cells = [
        *map(in_percent, line.at if shown else ()),
        percent(line.mean),
        in_points(line.gain) if line.metric != ALONE else "–",
    ]
    numbers = "".join(f"<td class='n'>{cell}</td>" for cell in cells)
    name = f"<b>{escape(named(result, line.metric))}</b>" if line.metric == OWN else escape(named(result, line.metric))
    return f"<tr><td>{name}</td>{numbers}</tr>"


def named(result: RunResult, metric: str) -> str:
    """What reached it."""
    if metric == ALONE:
        return "source-only: labelled sites alone, not adapted"
    return f"{result['method']}, this run" if metric == OWN else metric


def in_percent(of: Estimate | float | None) -> str:
    """56.0 % (51.2–60.7)."""
    if not isinstance(of, Estimate):
        return percent(of)
    return f"{percent(of.value)} ({100 * of.low:.1f}–{100 * of.high:.1f})"


def in_points(of: Estimate | None) -> str:
    """+4.1 points (0.2 to 8.0)."""
    return "–" if of is None else f"{100 * of.value:+.1f} points ({100 * of.low:+.1f} to {100 * of.high:+.1f})"
