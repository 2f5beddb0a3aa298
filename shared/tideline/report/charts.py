"""The curves and bars of a result, as plain values; report.figures draws them.

Of the metrics only these are known by name: `accuracy`, `accuracy_WORD` and `source_only`; and what begins with `accuracy` or
`distilled` is shown in percent where all of it is in 0..1. Metrics of one phase that differ by a number at their end, such as
line_0 to line_4, are a family: one curve over that number.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from tideline.client.answers import Point, RunResult, SiteResult
from tideline.client.output import counted
from tideline.report.style import Row

ACCURACY = re.compile(r"accuracy(_\w+)?|source_only")
SHARE = ("accuracy", "distilled")
MEMBER = re.compile(r"(.+)_([0-9]{1,9})")
# These two are in every result's table; charts of other metrics leave them out.
ALWAYS = ("accuracy", "source_only")
ROUNDS = ("round", "round")
MOST = 24  # sites that bars are drawn of
LEGEND = 12  # lines that a legend names
MOST_BANDS = 3  # that are drawn over one another
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Line:
    """A site's points (x, y), by x, and how a legend names it. `place`: in the run's roster; it looks the same in every chart."""

    site: str
    role: str
    label: str
    points: Points
    place: int = 0

    @property
    def target(self) -> bool:
        return self.role == "target"


@dataclass(frozen=True)
class Band:
    """What a rehearsal let expect at a target: y from low to high."""

    site: str
    low: float
    high: float


@dataclass(frozen=True)
class Curves:
    """A line per site. `name`: of its files; `x`, `y`: what is drawn, as in the numbers' header; `at`: x in words.

    bands: drawn behind the lines, in the colours of their sites.
    """

    name: str
    title: str
    x: str
    at: str
    y: str
    lines: tuple[Line, ...]
    bands: tuple[Band, ...] = ()

    @property
    def drawn(self) -> tuple[Line, ...]:
        return self.lines

    @property
    def named(self) -> int:
        """With more lines than this a legend names only the targets, and with more targets none."""
        return LEGEND

    @property
    def share(self) -> bool:
        """Whether y is an accuracy in 0..1, and shown in percent."""
        return self.y.startswith(SHARE) and all(0 <= y <= 1 for line in self.lines for _, y in line.points)

    @property
    def axis(self) -> str:
        """Words for y."""
        if not self.share:
            return self.y
        return f"{self.y}, %" if self.y.startswith("accuracy") else f"accuracy ({self.y}), %"

    def seen(self) -> str:
        who = [line.points for line in self.lines if line.target] or [line.points for line in self.lines]
        first, last = ({points[i][0] for points in who} for i in (0, -1))
        begins, ends = (self.words(sum(points[i][1] for points in who) / len(who)) for i in (0, -1))
        kind = "target" if any(line.target for line in self.lines) else "site"
        whose = f"the mean of {counted(len(who), kind)}" if len(who) > 1 else f"the {kind}"
        expected = " A band shows what the rehearsal let expect." if self.bands else ""
        if first == last:
            return f"{self.title}: a mark for each site; {whose} has {ends}.{expected}"
        at = [f"{self.x} {min(xs)}" if len(xs) == 1 else word for xs, word in ((first, "first"), (last, "last"))]
        return f"{self.title}: a line for each site; {whose} has {begins} at {at[0]} and {ends} at {at[1]}.{expected}"

    def words(self, y: float) -> str:
        return f"{100 * y:.1f}\u00a0%" if self.share else f"{y:.3g}"

    def numbers(self) -> Iterator[Row]:
        yield "site", "role", self.x, self.y
        for line in self.lines:
            yield from ((line.site, line.role, x, y) for x, y in line.points)


@dataclass(frozen=True)
class Means(Curves):
    """One line for all sites."""

    def seen(self) -> str:
        (line,) = self.lines
        begins, ends = (self.words(line.points[i][1]) for i in (0, -1))
        return f"{self.title}: the {line.label} is {begins} at first and {ends} at last."


@dataclass(frozen=True)
class Bar:
    """A site's shares, one for each metric of its chart; None is not known."""

    site: str
    role: str
    label: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Bars:
    """Accuracies side by side: a group of bars for each site, a bar for each metric."""

    name: str
    title: str
    metrics: tuple[str, ...]
    rows: tuple[Bar, ...]

    @property
    def drawn(self) -> tuple[Bar, ...]:
        targets = tuple(row for row in self.rows if row.role == "target")
        return self.rows if len(self.rows) <= MOST else (targets or self.rows)[:MOST]

    def seen(self) -> str:
        who = [row for row in self.rows if row.role == "target"] or list(self.rows)
        kind = "target" if who[0].role == "target" else "site"
        means = map(average, zip(*(row.values for row in who), strict=True))
        pairs = zip(self.metrics, means, strict=True)
        known = " and ".join(f"{100 * mean:.1f}\u00a0% ({metric})" for metric, mean in pairs if mean is not None)
        whose = f"the mean of {len(who)} {kind}s" if len(who) > 1 else f"the {kind}"
        which = "each site" if len(self.drawn) == len(self.rows) else f"{len(self.drawn)} of {len(self.rows)} sites"
        return f"{self.title}: bars for {which}; {whose} has {known or 'no value that all report'}."

    def numbers(self) -> Iterator[Row]:
        yield "site", "role", *self.metrics
        yield from ((row.site, row.role, *("" if v is None else v for v in row.values)) for row in self.rows)


def average(values: Sequence[float | None]) -> float | None:
    """The mean; None if a value is missing, since the mean of fewer sites cannot be compared."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def accuracy_charts(result: RunResult) -> tuple[Curves | Bars, ...]:
    """Accuracy over the rounds, a chart for each phase that scores a site more than once; else bars of the last that scores."""
    phases: dict[str, list[Point]] = defaultdict(list)
    for point in result["curve"]:
        phases[point.get("phase", "")].append(point)
    often = [name for name, points in phases.items() if scores_often(points)]
    if phases and not often:
        return (scored_once(result, list(phases.values())[-1]),)
    made = []
    for name in often:
        file, title = (f"accuracy-{name}", f"Accuracy in phase {name}") if len(often) > 1 else ("accuracy", "Accuracy")
        kind, lines = accuracy_lines(result, phases[name])
        bands = expected_at(result, {line.site for line in lines})
        made.append(kind(name=file, title=title, x="round", at="round", y="accuracy", lines=lines, bands=bands))
    return tuple(made)


def expected_at(result: RunResult, sites: Set[str]) -> tuple[Band, ...]:
    """The bands of these sites that a rehearsal named; none where there are more than a reader tells apart."""
    verdict = result.get("verdict")
    expected = [(each["name"], each["accuracy"]) for each in verdict["targets"]] if verdict else []
    bands = tuple(Band(name, of["low"], of["high"]) for name, of in expected if of is not None and name in sites)
    return bands if len(bands) <= MOST_BANDS else ()


def accuracy_lines(result: RunResult, points: Sequence[Point]) -> tuple[type[Curves], tuple[Line, ...]]:
    """A line for each site; or one for all of them, where there are means alone."""
    means = tuple((float(p["round"]), p["accuracy"]) for p in points if p["client"] is None)
    if means:
        most = max(p.get("sites", 0) for p in points)
        return Means, (Line(site="", role="", label=f"mean of {counted(most, 'site')}", points=means),)
    return Curves, lines_of(result, ((p["client"], p["round"], p["accuracy"]) for p in points if p["client"] is not None))


def scores_often(points: Iterable[Point]) -> bool:
    """Whether a site has points in more than one round."""
    return max(Counter(client for client, _ in {(p["client"], p["round"]) for p in points}).values()) > 1


def scored_once(result: RunResult, points: Iterable[Point]) -> Bars:
    """Each site's only accuracy, beside that of the source-only model where it is known."""
    last = {p["client"]: p["accuracy"] for p in points if p["client"] is not None}
    if not last:  # there is a mean alone
        last = {c["name"]: c["accuracy"] for c in result["clients"] if c["accuracy"] is not None}
    scored = [c for c in result["clients"] if c["name"] in last]
    metrics = ALWAYS if any(c["source_only"] is not None for c in scored) else ALWAYS[:1]
    rows = (Bar(c["name"], c["role"], label(c), (last[c["name"]], c["source_only"])[: len(metrics)]) for c in scored)
    return Bars("accuracy", "Accuracy", metrics, tuple(rows))


def metric_charts(result: RunResult) -> tuple[Curves, ...]:
    """Every other metric over the rounds, a chart for each phase and metric that changed."""
    made = []
    for phase, metrics in by_phase(result).items():
        members = {name for family in families(metrics).values() for name in family.values()}
        for metric, values in metrics.items():
            lines = lines_of(result, values)
            changed = any(len({y for _, y in line.points}) > 1 for line in lines)
            if changed and metric not in members and metric not in ALWAYS:
                name, title = f"{phase}-{metric}", f"{metric} in phase {phase}"
                made.append(Curves(name=name, title=title, x="round", at="round", y=metric, lines=lines))
    return tuple(made)


def family_charts(result: RunResult) -> tuple[Curves, ...]:
    """Each family's newest values over the number in its names."""
    made = []
    for phase, metrics in by_phase(result).items():
        for prefix, members in families(metrics).items():
            newest = [(n, sorted(metrics[metric], key=lambda each: each[1])) for n, metric in members.items()]
            lines = lines_of(result, ((client, n, value) for n, values in newest for client, _, value in values))
            name, title = f"{phase}-{prefix}", f"{prefix}_N in phase {phase}"
            made.append(Curves(name=name, title=title, x="number", at=f"N in {prefix}_N", y=prefix, lines=lines))
    return tuple(made)


def by_phase(result: RunResult) -> dict[str, dict[str, list[tuple[str, int, float]]]]:
    """The history as (client, round, value), by phase and metric in the order of the replies."""
    phases: dict[str, dict[str, list[tuple[str, int, float]]]] = {}
    for entry in result.get("history") or ():
        metrics = phases.setdefault(entry["phase"], {})
        for metric, value in entry["metrics"].items():
            if value is not None:  # not a number
                metrics.setdefault(metric, []).append((entry["client"], entry["round"], value))
    return phases


def families(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """The families among a phase's metrics: by prefix, then by number. One name alone is not a family."""
    members: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        if member := MEMBER.fullmatch(name):
            members[member[1]][int(member[2])] = name
    return {prefix: dict(sorted(names.items())) for prefix, names in members.items() if len(names) > 1}


def lines_of(result: RunResult, values: Iterable[tuple[str, int, float]]) -> tuple[Line, ...]:
    """A line for each site that has values (client, x, y): sites in the result's order, points by x."""
    points: dict[str, dict[int, float]] = defaultdict(dict)
    for client, x, y in values:
        points[client][x] = y
    return tuple(
        Line(site=c["name"], role=c["role"], label=label(c), points=tuple(sorted(points[c["name"]].items())), place=place)
        for place, c in enumerate(result["clients"])
        if c["name"] in points
    )


def label(client: SiteResult) -> str:
    return " ".join(filter(None, [client["name"], client["domain"], f"({client['role']})"]))
