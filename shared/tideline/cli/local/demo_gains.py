"""What a run bought, and what it took, in sentences of the result's own numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tideline.client.answers import RunResult, SiteResult
from tideline.client.output import counted, size
from tideline.core.run import Role
from tideline.report.graphs import costs_in
from tideline.report.verdict_rows import percent, signed

SOURCE_ONLY = "source-only"


class At(NamedTuple):
    """Accuracies in 0..1 of one target, over so many held-out rows."""

    accuracy: float
    baseline: float
    rows: int


@dataclass(frozen=True)
class Gain:
    """The mean over targets of accuracy less baseline, in -1..1, with its 95 % interval over their `rows`."""

    accuracy: float
    baseline: float
    low: float
    high: float
    rows: int

    @property
    def value(self) -> float:
        return self.accuracy - self.baseline

    @property
    def interval(self) -> str:
        return f"95 % interval {signed(self.low)} to {signed(self.high)} over {self.rows} held-out rows"


def gain_of(targets: Sequence[At]) -> Gain:
    """Of one target or more. Half-widths of independent targets add in squares."""
    from tideline.numerics.labels.scores import difference

    k = len(targets)
    ends = [difference(t.accuracy * t.rows, t.rows, t.baseline * t.rows, t.rows) for t in targets]
    gains = [t.accuracy - t.baseline for t in targets]
    below = math.hypot(*(gain - low for gain, (low, _) in zip(gains, ends, strict=True))) / k
    above = math.hypot(*(high - gain for gain, (_, high) in zip(gains, ends, strict=True))) / k
    accuracy, baseline = sum(t.accuracy for t in targets) / k, sum(t.baseline for t in targets) / k
    value = accuracy - baseline
    rows = sum(t.rows for t in targets)
    return Gain(accuracy=accuracy, baseline=baseline, low=value - below, high=value + above, rows=rows)


def bought(result: RunResult, rows: Mapping[str, int]) -> str:
    """A sentence: accuracy at targets against the best baseline shown, empty without both. rows: held-out ones of each site."""
    targets = [client for client in result["clients"] if client["role"] == Role.TARGET and client["accuracy"] is not None]
    found = gain_at(targets, rows)
    if found is None:
        return ""
    gain, best = found
    return f"{result['method']}: {percent(gain.accuracy)} at {named(targets, 'targets')}, {against(gain, best)}."


def at_labelled_sites(result: RunResult, rows: Mapping[str, int]) -> str:
    """The same sentence of the sites with labels, whose models may be their own: on rows that they hold out."""
    labelled = [client for client in result["clients"] if client["role"] != Role.TARGET and client["accuracy"] is not None]
    found = gain_at(labelled, rows)
    if found is None:
        return ""
    gain, best = found
    return f"With labels, {percent(gain.accuracy)} at {named(labelled, 'sites')}, {against(gain, best)}."


def named(clients: Sequence[SiteResult], what: str) -> str:
    return ", ".join(client["name"] for client in clients) if len(clients) < 3 else f"the {len(clients)} {what}"


def gain_at(clients: Sequence[SiteResult], rows: Mapping[str, int]) -> tuple[Gain, str] | None:
    """Over the best baseline that is shown at all of these scored sites, on average, and its name; None where none is."""
    known = [(client, column) for client in clients for column in [baselines(client)] if column]
    if not clients or len(known) < len(clients):
        return None
    best = max(known[0][1], key=lambda name: sum(column.get(name, 0.0) for _, column in known))
    if any(best not in column for _, column in known):
        return None
    return gain_of([At(client["accuracy"] or 0.0, column[best], rows[client["name"]]) for client, column in known]), best


def baselines(client: SiteResult) -> dict[str, float]:
    """The site's scores of models that were not adapted to it: by the run beside it, and by this one."""
    found = {SOURCE_ONLY: client["source_only"], "source_only of this run": (client.get("metrics") or {}).get("source_only")}
    return {name: value for name, value in found.items() if value is not None}


def against(gain: Gain, name: str) -> str:
    """How far above or below the baseline, and whether so many rows tell it from chance."""
    points = signed(abs(gain.value)).removeprefix("+")
    way = "above" if gain.value > 0 else "below"
    beside = f"the best baseline shown ({name}, {percent(gain.baseline)}; {gain.interval})"
    if gain.value == 0:
        return f"as much as {beside}"
    doubt = ", which so few rows do not tell from chance" if gain.low <= 0 <= gain.high else ""
    return f"{points} points {way} {beside}{doubt}"


def taken(result: RunResult, beside: RunResult | None = None) -> str:
    """A sentence: the traffic, beside that of the reference; what kinds of values left the sites; and links, where they cost."""
    up, down = traffic_of(result)
    kinds = ", ".join(dict.fromkeys(clause["exposure"] for clause in result["contract"]))
    sent = f"sites sent {size(up)}{kinds and f' ({kinds})'} and received {size(down)}"
    other = sum(traffic_of(beside)) if beside else 0
    share = f", {100 * (up + down) / other:.0f} % of the traffic of {SOURCE_ONLY}" if other else ""
    return f"What it took: {'; '.join([sent + share, *links_of(result)])}."


def traffic_of(result: RunResult) -> tuple[int, int]:
    """Bytes from the sites, and to them."""
    return sum(client["bytes_up"] for client in result["clients"]), sum(client["bytes_down"] for client in result["clients"])


def links_of(result: RunResult) -> Iterator[str]:
    """The newest links that cost joules, in words."""
    for costs in [found for closed in result["phases"] if (found := costs_in(closed))][-1:]:
        yield f"{counted(len(costs), 'link')}, {sum(costs.values()):.3g} J to use each of them once"
