"""What an adaptation will gain at a site without labels, and how accurate it will be, from where it was rehearsed.

Two views of the gain are averaged: the mean gain of the rehearsals; and the gain of each row whose prediction the adaptation
changed there, times the share of rows that it changes here, which takes no label to count. Of the accuracy, the confidence tells.
Intervals are of 90 %; their constants were chosen on families of data left out (benchmarks/README.md).

Shapes: s sites at which was rehearsed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.stats import t as student_t  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

WIDTH = 2.0  # q: half an interval's width in units of what gains are off by
OF_CHANGE, OF_SITES, FLOOR = 0.1, 0.6, 0.01  # of the share that changes, of the sites' spread, and always
FEW = 0.005  # of the rows changed: of fewer no gain of each is told
SLOPE = 1.75  # b: points of accuracy lost where one of confidence is
KNOWN = 8  # degrees of freedom that a usual spread between sites counts for beside that of the few sites there are


@dataclass(frozen=True)
class Usual:
    """The spread between sites that is usual, and that where there is but one site."""

    spread: float
    lone: float

    def variance(self, of: Tensor) -> float:
        """That of values (s,) at sites, beside the usual one."""
        s = len(of)
        return ((s - 1) * float(of.var()) + KNOWN * self.spread**2) / (s - 1 + KNOWN) if s > 1 else self.lone**2


GAINS, CONFIDENCES = Usual(0.01, lone=0.05), Usual(0.04, lone=0.1)


@dataclass(frozen=True)
class Expectation:
    """A gain of accuracy in -1..1, or an accuracy in 0..1, and the ends of its interval."""

    value: float
    low: float
    high: float


def over_sites(gained: Tensor, lost: Tensor, rows: Tensor) -> Expectation:
    """The mean gain over sites with a 95 % interval: by Student's t over them, and never narrower than their rows allow.

    gained, lost, rows (s,): rows that became right, that became wrong, and all. Of one site its rows alone tell (McNemar).
    """
    s = len(rows)
    gains = (gained - lost) / rows.clamp_min(1)
    of_rows = float(((gained + lost) / rows.clamp_min(1).square() - gains.square() / rows.clamp_min(1)).clamp_min(0).sum()) / s**2
    of_sites = float(gains.var()) / s if s > 1 else 0.0
    off = max(student_t.ppf(0.975, s - 1) * math.sqrt(of_sites) if s > 1 else 0.0, 1.96 * math.sqrt(of_rows))
    value = float(gains.mean())
    return Expectation(value, max(value - off, -1.0), min(value + off, 1.0))


def expected(gains: Tensor, changed: Tensor, likeness: Tensor, here: float, rows: int) -> Expectation:
    """The gain to expect of an adaptation that changes the share `here` of the predictions for `rows` rows of a target.

    gains, changed (s,): its gain and the share of predictions that it changed at each rehearsal; likeness (s,) sums to one.
    """
    g, c, a = gains.double(), changed.double(), likeness.double()
    each = max(-1.0, min(float(a @ (g / c.clamp_min(FEW))), 1.0))
    value = (float(a @ g) + each * here) / 2
    sampling = max(here, FLOOR) / max(rows, 1)
    off = math.sqrt((OF_CHANGE * here) ** 2 + OF_SITES**2 * GAINS.variance(g) + sampling + FLOOR**2)
    return Expectation(value, max(value - WIDTH * off, -1.0), min(value + WIDTH * off, 1.0))


def accuracy(confident: Tensor, right: Tensor, here: float, rows: int) -> Expectation:
    """The accuracy to expect where the mean confidence in `rows` predictions is `here`.

    confident, right (s,): mean confidence and accuracy of each rehearsal. Where confidence is lower than there, accuracy is by
    SLOPE times as much; that is 1 in Guillory et al., "Predicting with Confidence on Unseen Distributions", ICCV 2021.
    """
    excess = SLOPE * confident.double() - right.double()
    value, s = SLOPE * here - float(excess.mean()), len(excess)
    off = math.sqrt((1 + 1 / s) * CONFIDENCES.variance(excess) + 0.25 / max(rows, 1) + FLOOR**2)
    off *= student_t.ppf(0.95, s - 1 + KNOWN)
    return Expectation(*(min(max(each, 0.0), 1.0) for each in (value, value - off, value + off)))
