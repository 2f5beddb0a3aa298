"""How a site differs from the labelled sites together, and how much two sites differ from them alike.

A shift is two numbers: the mean over features of |mean here - mean there| in units of the spread there, and the mean of
|log(spread here / spread there)|. Two shifts are as far apart as their logarithms are, summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tideline.numerics.alignment.normalising import Moments

LEAST = 1e-3  # of a number whose logarithm is taken: what is less is no shift
REACH = 1.0  # h: at this distance a rehearsal weighs 1 / e of one at an equal shift
FAR = 1.0  # from all rehearsals: expectations were too high from here on (benchmarks/README.md)


@dataclass(frozen=True)
class Shift:
    """of_means and of_spreads, each 0 or more."""

    of_means: float
    of_spreads: float

    @property
    def logs(self) -> tuple[float, float]:
        return math.log(max(self.of_means, LEAST)), math.log(max(self.of_spreads, LEAST))


def shift(here: Moments, there: Moments) -> Shift:
    """Of a site against the labelled sites' pooled moments."""
    means = ((here.mean - there.mean) / there.spread).abs().mean()
    spreads = (here.spread / there.spread).log().abs().mean()
    return Shift(float(means), float(spreads))


def distance(one: Shift, other: Shift) -> float:
    return sum(abs(a - b) for a, b in zip(one.logs, other.logs, strict=True))


def likeness(target: Shift, rehearsed: Sequence[Shift], reach: float = REACH) -> Tensor:
    """How much each rehearsal tells of the target: exp(-distance / reach), summing to one; (sites,) float64."""
    nearest = min(distance(target, each) for each in rehearsed)
    w = torch.tensor([math.exp((nearest - distance(target, each)) / reach) for each in rehearsed], dtype=torch.float64)
    return w / w.sum()


def unlike(target: Shift, rehearsed: Sequence[Shift]) -> bool:
    """Whether no rehearsal was at a shift like the target's."""
    return min(distance(target, each) for each in rehearsed) >= FAR
