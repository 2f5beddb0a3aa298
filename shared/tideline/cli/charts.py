"""The curves that a result has to show, as plain values; cli.figures draws them.

Of the metrics only `accuracy`, `accuracy_WORD` and `source_only` are known by name: shares in 0..1. Metrics of one phase that
differ by a number at their end, such as line_0 to line_4, are a family: one curve over that number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ACCURACY = re.compile(r"accuracy(_\w+)?|source_only")
MEMBER = re.compile(r"(.+)_([0-9]{1,9})")
# These two have their place: the curve of every result, and beside it in the table.
ALWAYS = ("accuracy", "source_only")
ROUNDS = ("round", "round")
Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Line:
    """A site's points (x, y), by x, and how a legend names it."""

    site: str
    role: str
    label: str
    points: Points

    @property
    def target(self) -> bool:
        """Whether it is of those that adaptation is for."""
        return self.role == "target"


@dataclass(frozen=True)
class Curves:
    """A line per site. `name`: of its files; `x`, `y`: what is drawn, as in the numbers' header; `at`: x in words."""

    name: str
    title: str
    x: str
    at: str
    y: str
    lines: tuple[Line, ...]

    @property
    def share(self) -> bool:
        """Whether y is in 0..1 and shown in percent."""
        return bool(ACCURACY.fullmatch(self.y))

    def seen(self) -> str:
        """What is seen, in a sentence."""
        who = [line.points for line in self.lines if line.target] or [line.points for line in self.lines]
        first, last = ({points[i][0] for points in who} for i in (0, -1))
        begins, ends = (self.words(sum(points[i][1] for points in who) / len(who)) for i in (0, -1))
        kind = "target" if any(line.target for line in self.lines) else "site"
        whose = f"the mean of {len(who)} {kind}s" if len(who) > 1 else f"the {kind}"
        if first == last:
            return f"{self.title}: a mark for each site; {whose} has {ends}."
        places = [f" at {self.x} {xs.copy().pop()}" if len(xs) == 1 else " at first" for xs in (first, last)]
        places[1] = places[1].replace("first", "last")
        return f"{self.title}: a line for each site; {whose} has {begins}{places[0]} and {ends}{places[1]}."

    def words(self, y: float) -> str:
        """A value for people."""
        return f"{100 * y:.1f}\u00a0%" if self.share else f"{y:.3g}"

    def numbers(self) -> Iterator[tuple[Any, ...]]:
        """What is drawn, as rows under a header."""
        yield "site", "role", self.x, self.y
        for line in self.lines:
            yield from ((line.site, line.role, x, y) for x, y in line.points)


def accuracy_charts(result: Mapping[str, Any]) -> tuple[Curves, ...]:
    """Accuracy over the rounds, a chart for each phase that scores more than once; else one for the last that scores."""
    phases: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for point in result["curve"]:
        phases[point.get("phase", "")].append(point)
    often = [name for name, points in phases.items() if len({p["round"] for p in points}) > 1] or list(phases)[-1:]
    made = []
    for name in often:
        told = [(p["client"], p["round"], p["accuracy"]) for p in phases[name]]
        in_phase = f" in phase {name}" if len(often) > 1 else ""
        lines = lines_of(result, told)
        made.append(Curves(f"accuracy{'-' + name if in_phase else ''}", f"Accuracy{in_phase}", *ROUNDS, "accuracy", lines))
    return tuple(made)


def metric_charts(result: Mapping[str, Any]) -> tuple[Curves, ...]:
    """Every other metric over the rounds, a chart for each phase and metric that changed."""
    made = []
    for phase, metrics in by_phase(result).items():
        members = {name for family in families(metrics).values() for name in family.values()}
        for metric, told in metrics.items():
            lines = lines_of(result, told)
            if metric not in members and metric not in ALWAYS and any(changes(line.points) for line in lines):
                made.append(Curves(f"{phase}-{metric}", f"{metric} in phase {phase}", *ROUNDS, metric, lines))
    return tuple(made)


def family_charts(result: Mapping[str, Any]) -> tuple[Curves, ...]:
    """Each family's newest values over the number in its names."""
    made = []
    for phase, metrics in by_phase(result).items():
        for prefix, members in families(metrics).items():
            told = [
                (client, number, value)
                for number, metric in members.items()
                for client, (_, value) in newest(metrics[metric]).items()
            ]
            at = f"N in {prefix}_N"
            made.append(Curves(f"{phase}-{prefix}", f"{prefix}_N in phase {phase}", "number", at, prefix, lines_of(result, told)))
    return tuple(made)


def by_phase(result: Mapping[str, Any]) -> dict[str, dict[str, list[tuple[str, int, float]]]]:
    """The history as (client, round, value), by phase and metric in the order of their telling."""
    phases: dict[str, dict[str, list[tuple[str, int, float]]]] = {}
    for entry in result.get("history") or ():
        metrics = phases.setdefault(entry["phase"], {})
        for metric, value in entry["metrics"].items():
            if value is not None:  # the door's word for what is no number
                metrics.setdefault(metric, []).append((entry["client"], entry["round"], value))
    return phases


def families(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """The families among a phase's metrics: by prefix, then by number. One name alone is none."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        if member := MEMBER.fullmatch(name):
            found[member[1]][int(member[2])] = name
    return {prefix: dict(sorted(members.items())) for prefix, members in found.items() if len(members) > 1}


def newest(told: Iterable[tuple[str, int, float]]) -> dict[str, tuple[int, float]]:
    """Each client's last round and value."""
    return {client: (r, value) for client, r, value in sorted(told, key=lambda each: each[1])}


def changes(points: Points) -> bool:
    """Whether there is more to draw than a level line."""
    return len({y for _, y in points}) > 1


def lines_of(result: Mapping[str, Any], told: Iterable[tuple[str, int, float]]) -> tuple[Line, ...]:
    """A line for each site that told something, as (client, x, y): sites in the result's order, points by x."""
    points: dict[str, dict[int, float]] = defaultdict(dict)
    for client, x, y in told:
        points[client][x] = y
    return tuple(
        Line(c["name"], c["role"], label(c), tuple(sorted(points[c["name"]].items())))
        for c in result["clients"]
        if c["name"] in points
    )


def label(client: Mapping[str, Any]) -> str:
    """A site, as a legend names it."""
    return " ".join(filter(None, [client["name"], client["domain"], f"({client['role']})"]))
