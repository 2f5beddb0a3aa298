"""A line through samples that hang together in time, and how sure its slope is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

BLOCKS = 24  # samples that follow one another are much alike: means of so many stretches of time are taken for independent
SURE = 0.95


@dataclass(frozen=True)
class Slope:
    """Change a minute, the ends of its 95 % interval, and the largest value that was seen."""

    slope: float
    low: float
    high: float
    most: float


def slope_of(seconds: Sequence[float], values: Sequence[float]) -> Slope:
    """The slope of values over time; NaN for fewer than three samples."""
    if len(values) < 3:
        return Slope(float("nan"), float("nan"), float("nan"), max(values, default=float("nan")))
    if min(values) == max(values):
        return Slope(0.0, 0.0, 0.0, max(values))
    blocks = [(np.mean(t), np.mean(v)) for t, v in zip(parted(np.asarray(seconds) / 60), parted(np.asarray(values)), strict=True)]
    minutes, means = zip(*blocks, strict=True)
    line = stats.linregress(minutes, means)
    margin = float(stats.t.ppf((1 + SURE) / 2, len(blocks) - 2)) * line.stderr
    report = (line.slope, line.slope - margin, line.slope + margin, max(values))
    return Slope(*(round(float(each), 3) for each in report))


def parted(values: np.ndarray) -> list[np.ndarray]:
    """Stretches of about equal length."""
    return np.array_split(values, min(BLOCKS, len(values)))
