"""A result in numbers: its accuracies side by side, its marks and its traffic by phase, as plain values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tideline.client.answers import ClosedRound, RunResult, SiteResult
from tideline.client.output import counted
from tideline.core.privacy import Exposure
from tideline.report.charts import ACCURACY, ALWAYS, Bar, Bars, average, families, label
from tideline.report.style import Row

Values = tuple[float | None, ...]
Way = Literal["bytes_down", "bytes_up"]
WAYS: tuple[Way, ...] = ("bytes_down", "bytes_up")


@dataclass(frozen=True)
class Scores:
    """The newest accuracies side by side. rows: (site, domain, role, a share or None per metric); means: over the targets.

    domains: (domain, its number of targets, means over them), where several targets share a domain and more than one is known.
    """

    metrics: tuple[str, ...]
    rows: tuple[tuple[str, str | None, str, Values], ...]
    means: Values
    domains: tuple[tuple[str, int, Values], ...] = ()


def scores(result: RunResult) -> Scores | None:
    """The accuracies of each scored site; None if no site was scored."""
    known = {c["name"]: accuracies(c) for c in result["clients"]}
    words = sorted({metric for each in known.values() for metric in each} - set(ALWAYS))
    metrics = tuple(m for m in (*ALWAYS, *words) if any(m in each for each in known.values()))
    scored = [c for c in result["clients"] if known[c["name"]]]
    rows = tuple((c["name"], c["domain"], c["role"], tuple(map(known[c["name"]].get, metrics))) for c in scored)
    targets = [(domain, values) for _, domain, role, values in rows if role == "target"]
    return Scores(metrics, rows, means(values for _, values in targets), by_domain(targets)) if rows else None


def means(rows: Iterable[Values]) -> Values:
    """The mean of each column; None if a row has no value."""
    return tuple(map(average, zip(*rows, strict=True)))


def by_domain(targets: Iterable[tuple[str | None, Values]]) -> tuple[tuple[str, int, Values], ...]:
    """Means over the targets of each known domain; empty if each target has a domain of its own, or all the same one."""
    rows_of: defaultdict[str, list[Values]] = defaultdict(list)
    for domain, values in targets:
        if domain:
            rows_of[domain].append(values)
    if len(rows_of) < 2 or all(len(rows) == 1 for rows in rows_of.values()):
        return ()
    return tuple((domain, len(rows), means(rows)) for domain, rows in sorted(rows_of.items()))


def accuracies(client: SiteResult) -> dict[str, float]:
    """A site's newest accuracies by metric."""
    metrics = client.get("metrics") or {}
    members = {name for family in families(metrics).values() for name in family.values()}
    newest = {m: v for m, v in metrics.items() if ACCURACY.fullmatch(m) and m not in members}
    # A reference run may know what this one does not.
    always = {"accuracy": client["accuracy"], "source_only": client["source_only"]}
    return {m: v for m, v in (newest | always).items() if v is not None}


def score_bars(result: RunResult) -> tuple[Bars, ...]:
    """The accuracies of each scored site as bars, if there are more than the two that every result has."""
    found = scores(result)
    if found is None or set(found.metrics) <= set(ALWAYS):
        return ()
    labels = {c["name"]: label(c) for c in result["clients"]}
    rows = tuple(Bar(site, role, labels[site], values) for site, _, role, values in found.rows)
    return (Bars("accuracies", "Accuracies side by side", found.metrics, rows),)


def generalized(result: RunResult) -> tuple[tuple[str, float], ...]:
    """The in-distribution and the out-of-distribution accuracy, each with what it is the mean of; empty if there is none."""
    accuracy = result.get("generalization")  # older coordinators have none
    if not accuracy:
        return ()
    own, unseen = accuracy["id"]["sites"], accuracy["ood"]["sites"]
    whose = f"{own} {'site' if own == 1 else 'sites'}'{'s' if own == 1 else ''} own held-out rows"
    return (
        (f"in-distribution (mean of {whose})", accuracy["id"]["accuracy"]),
        (f"out-of-distribution (mean of {counted(unseen, 'unseen target')})", accuracy["ood"]["accuracy"]),
    )


@dataclass(frozen=True)
class Marks:
    """In how many of the `rounds` with marks each site has each mark. rows: (site, a number per word)."""

    words: tuple[str, ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]
    rounds: int


def marks(result: RunResult) -> Marks | None:
    """What folds did with single sites, over all rounds; None if no round has marks."""
    rounds = [by_word for closed in result.get("phases") or () if (by_word := closed.get("marks"))]
    words = tuple(dict.fromkeys(word for each in rounds for word in each))
    names = [client["name"] for client in result["clients"]]
    counts = {name: tuple(sum(name in each.get(word, ()) for each in rounds) for word in words) for name in names}
    return Marks(words, tuple((name, each) for name, each in counts.items() if any(each)), len(rounds)) if rounds else None


@dataclass(frozen=True)
class Exchange:
    """A phase's traffic: mean bytes of one asked client in one exchange. `share`: of sending the model, where one is sent."""

    phase: str
    exchanges: int
    down: float
    up: float
    share: float | None


@dataclass(frozen=True)
class Traffic:
    """The traffic of each phase, in the order of the plan. `model`: the phase that 100 % stands for."""

    rows: tuple[Exchange, ...]
    model: str | None
    name: str = "traffic"
    title: str = "Bytes per client and exchange"

    def seen(self) -> str:
        most = max(self.rows, key=lambda row: row.down + row.up)
        return f"{self.title}: two bars for each phase, to a site and from it; the most is sent in the phase {most.phase}."

    def numbers(self) -> Iterator[Row]:
        yield "phase", "exchanges", "bytes_down", "bytes_up", "share_of_model"
        yield from ((r.phase, r.exchanges, r.down, r.up, "" if r.share is None else r.share) for r in self.rows)


def traffic(result: RunResult) -> Traffic | None:
    """The traffic of each phase that had any; None if none had."""
    phases: dict[str, list[ClosedRound]] = defaultdict(list)
    for closed in result.get("phases") or ():
        if closed.get("asked"):
            phases[closed["name"]].append(closed)
    means = {name: (mean(rounds, "bytes_down"), mean(rounds, "bytes_up")) for name, rounds in phases.items()}
    means = {name: ways for name, ways in means.items() if sum(ways)}  # a join sends facts, and these are not counted
    if not means:
        return None
    model = next((c["phase"] for c in result["contract"] if c["exposure"] == Exposure.WEIGHTS), None)
    # The first exchange: later a site may hold what it would be sent, and then it is not sent again.
    whole = sum(mean(phases[model][:1], way) for way in WAYS) if model in phases else 0.0
    rows = (
        Exchange(phase=name, exchanges=len(phases[name]), down=down, up=up, share=(down + up) / whole if whole else None)
        for name, (down, up) in means.items()
    )
    return Traffic(tuple(rows), model if whole else None)


def mean(rounds: Sequence[ClosedRound], way: Way) -> float:
    """Bytes of one direction per asked client and exchange."""
    return float(sum(r[way] for r in rounds) / sum(r.get("asked", 0) for r in rounds))
