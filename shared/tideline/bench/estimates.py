"""What a grid that adapts says of its targets: accuracies with 95 % intervals, gains over the strongest baseline, and costs.

An interval is the wider one, on each side, of two: Student's over seeds, which draw a run's numbers and the rows that score; and
Wilson's over the rows that score a run, as results have it (docs/scores.md), its mean over seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tideline.bench.scores import Score
from tideline.report.charts import average

K = TypeVar("K", bound=Hashable)
LEVEL = 0.975  # both sides together leave out 5 %


@dataclass(frozen=True)
class Estimate:
    """The mean over `n` seeds of the `of` that were asked for, and its 95 % interval; None: neither seeds nor rows give one."""

    mean: float
    low: float | None
    high: float | None
    n: int
    of: int


@dataclass(frozen=True)
class TargetRow:
    """A method with d domains a client: accuracies in 0..1 of each target and in the mean, None where no seed is whole.

    gain: of the mean over the strongest baseline's, seed by seed; None of that itself. megabytes (10^6 bytes, of all messages),
    seconds: of a run, the mean.
    """

    label: str
    domains: int
    targets: Mapping[str, Estimate | None]
    all: Estimate | None
    gain: Estimate | None
    megabytes: float | None
    seconds: float | None


def target_rows(scores: Sequence[Score]) -> list[TargetRow]:
    """A row for each method and d, in the order of the scores."""
    made = []
    for d, cells in by(scores, lambda s: s.cell.domains).items():
        base = strongest(cells)
        for label, own in by(cells, lambda s: s.cell.label).items():
            made.append(
                TargetRow(
                    label=label,
                    domains=d,
                    targets={name: accuracy(each) for name, each in by(own, lambda s: s.cell.leave_out).items()},
                    all=accuracy(own),
                    gain=None if label == base else gain(own, [s for s in cells if s.cell.label == base]),
                    megabytes=mean_of(None if s.bytes is None else s.bytes / 1e6 for s in own),
                    seconds=mean_of(s.seconds for s in own),
                )
            )
    return made


def strongest(scores: Sequence[Score]) -> str:
    """The baseline with the best mean over targets and seeds, of equals the first; of none that is whole, nothing."""
    rows = by([s for s in scores if s.cell.baseline], lambda s: s.cell.label)
    means = {label: each.mean for label, own in rows.items() if (each := accuracy(own)) is not None}
    return max(means, key=means.__getitem__, default="")


def accuracy(scores: Sequence[Score]) -> Estimate | None:
    """Of one target, or of several: the mean over them first."""
    every = list(by_seed(scores).values())
    seeds = [cells for cells in every if mean_ood(cells) is not None]
    estimate = over_seeds([mean_ood(cells) for cells in every])
    if estimate is None or any(s.low is None or s.high is None for cells in seeds for s in cells):
        return estimate
    down, up = (statistics.fmean(by_rows(cells, side) for cells in seeds) for side in ("low", "high"))
    low, high = estimate.low, estimate.high
    return Estimate(
        mean=estimate.mean,
        low=max(min(estimate.mean - down, estimate.mean if low is None else low), 0.0),
        high=min(max(estimate.mean + up, estimate.mean if high is None else high), 1.0),
        n=estimate.n,
        of=estimate.of,
    )


def gain(scores: Sequence[Score], base: Sequence[Score]) -> Estimate | None:
    """The mean over seeds of the difference from a baseline, both on the same rows; its interval is over seeds alone."""
    ours, theirs = by_seed(scores), by_seed(base)
    values = [(mean_ood(cells), mean_ood(theirs.get(seed, []))) for seed, cells in ours.items()]
    return over_seeds([None if one is None or other is None else one - other for one, other in values])


def over_seeds(values: Sequence[float | None]) -> Estimate | None:
    """The mean of what is known and, of two or more, Student's interval."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean, n = statistics.fmean(known), len(known)
    if n == 1:
        return Estimate(mean=mean, low=None, high=None, n=1, of=len(values))
    from scipy.special import stdtrit  # type: ignore[import-untyped,unused-ignore]

    half = float(stdtrit(n - 1, LEVEL)) * statistics.stdev(known) / math.sqrt(n)
    return Estimate(mean=mean, low=mean - half, high=mean + half, n=n, of=len(values))


def mean_ood(scores: Sequence[Score]) -> float | None:
    return average([s.ood for s in scores]) if scores else None


def by_rows(scores: Sequence[Score], side: str) -> float:
    """How far the interval of the mean of some cells reaches, as their rows are drawn one by one."""
    return math.hypot(*((s.ood or 0.0) - getattr(s, side) for s in scores)) / len(scores)


def mean_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def by_seed(scores: Sequence[Score]) -> dict[int, list[Score]]:
    return by(scores, lambda s: s.cell.seed)


def by(scores: Sequence[Score], key: Callable[[Score], K]) -> dict[K, list[Score]]:
    """The scores in groups, in their order."""
    groups: dict[K, list[Score]] = {}
    for score in scores:
        groups.setdefault(key(score), []).append(score)
    return groups
