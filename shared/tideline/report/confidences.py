"""How confident predictions were, and how well calibrated, as plain values; report.figures draws them.

Of a result this knows the tables of scorings with confidences (core.phase.RIGHT and WRONG), and the metric `ece`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tideline.client.answers import ClosedRound, RunResult, SiteResult, TableData
from tideline.client.output import counted
from tideline.core.phase import RIGHT, WRONG
from tideline.report.style import Row

ECE = "ece"
BINS = 20  # of equal width over [0, 1], as numerics.calibration has them
Counts = tuple[int, ...]  # predictions for held-out rows, for each bin of confidence; several models may predict a row


@dataclass(frozen=True)
class Confidences:
    """Predictions for held-out rows of some sites. right, wrong: how many there are in each bin; top: of the axis."""

    name: str
    title: str
    right: Counts
    wrong: Counts
    top: float

    @property
    def predictions(self) -> int:
        return sum(self.right) + sum(self.wrong)

    @property
    def edges(self) -> tuple[float, ...]:
        """Where bins begin and end, in [0, 1]."""
        return tuple(b / len(self.right) for b in range(len(self.right) + 1))

    def shares(self, counts: Counts) -> tuple[float, ...]:
        return tuple(n / self.predictions for n in counts)

    def seen(self) -> str:
        sure = max(b for b, (r, w) in enumerate(zip(self.right, self.wrong, strict=True)) if r + w)
        there, right = self.right[sure] + self.wrong[sure], sum(self.right) / self.predictions
        return (
            f"{self.title}: two bars for each range of confidence, right ones and wrong ones."
            f" Of {self.predictions:,} predictions {100 * right:.1f}\u00a0% are right; of the {there:,} with a confidence above"
            f" {self.edges[sure]:.2f}, {100 * self.right[sure] / there:.1f}\u00a0%."
        )

    def numbers(self) -> Iterator[Row]:
        """The shares, and the counts behind them."""
        yield "confidence_from", "confidence_to", "right", "wrong", "right_count", "wrong_count"
        shares = self.shares(self.right), self.shares(self.wrong)
        yield from zip(self.edges[:-1], self.edges[1:], *shares, self.right, self.wrong, strict=True)


@dataclass(frozen=True)
class Calibrated:
    """A site's number of predictions for held-out rows, the share that is right, and its calibration error (None: unknown)."""

    site: str
    role: str
    predictions: int
    right: float
    error: float | None


@dataclass(frozen=True)
class Calibration:
    rows: tuple[Calibrated, ...]
    name: str = "calibration"

    def numbers(self) -> Iterator[Row]:
        yield "site", "role", "predictions", "right", ECE
        yield from ((c.site, c.role, c.predictions, c.right, "" if c.error is None else c.error) for c in self.rows)


def histograms_in(closed: ClosedRound) -> tuple[str, ...]:
    """The names of a round's two tables of confidences, if it has both, of the same sites, with a column for each bin."""
    tables = closed.get("tables") or {}
    if not {RIGHT, WRONG} <= tables.keys():
        return ()
    right, wrong = tables[RIGHT], tables[WRONG]
    same = right["rows"] == wrong["rows"] and right["columns"] == wrong["columns"] and len(right["columns"]) == BINS
    return (RIGHT, WRONG) if same else ()


def counted_sites(result: RunResult) -> list[tuple[SiteResult, Counts, Counts]]:
    """Each site that had rows, its right and its wrong, of the last round of each phase; of a site's phases the last."""
    last: dict[str, dict[str, TableData]] = {}
    for closed in result.get("phases") or ():
        if histograms_in(closed):
            last.pop(closed["name"], None)
            last[closed["name"]] = closed["tables"]
    counts: dict[str, tuple[Counts, Counts]] = {}
    for tables in last.values():
        right, wrong = ([tuple(map(round, line)) for line in tables[side]["values"]] for side in (RIGHT, WRONG))
        lines = zip(tables[RIGHT]["rows"], right, wrong, strict=True)
        counts |= {site: (r, w) for site, r, w in lines if sum(r) + sum(w)}
    return [(c, *counts[c["name"]]) for c in result["clients"] if c["name"] in counts]


def confidences(result: RunResult) -> tuple[Confidences, ...]:
    """The sites that are not targets together, and the targets together, on one scale."""
    found, made = counted_sites(result), []
    for target, name in ((False, "confidence-sites"), (True, "confidence-targets")):
        who = [(right, wrong) for c, right, wrong in found if (c["role"] == "target") is target]
        if who:
            right, wrong = (tuple(map(sum, zip(*counts, strict=True))) for counts in zip(*who, strict=True))
            made.append(Confidences(name=name, title=title(result, target, len(who)), right=right, wrong=wrong, top=0.0))
    top = max((share for each in made for side in (each.right, each.wrong) for share in each.shares(side)), default=0.0)
    return tuple(replace(each, top=top) for each in made)


def title(result: RunResult, target: bool, count: int) -> str:
    """Whose confidences they are: targets are called unseen where all of them are."""
    means = result.get("generalization")
    unseen = target and means is not None and means["ood"]["sites"] == count
    kind = ("unseen target" if unseen else "target") if target else "site"
    return f"Confidence on the held-out rows of {counted(count, kind)}"


def calibration(result: RunResult) -> Calibration | None:
    """A line for each site that has confidences; None if none has."""
    rows = []
    for c, right, wrong in counted_sites(result):
        n, error = sum(right) + sum(wrong), (c.get("metrics") or {}).get(ECE)
        rows.append(Calibrated(site=c["name"], role=c["role"], predictions=n, right=sum(right) / n, error=error))
    return Calibration(tuple(rows)) if rows else None
