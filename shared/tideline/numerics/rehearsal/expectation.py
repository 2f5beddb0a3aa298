"""What an adaptation will gain at a site without labels, with a 90 % interval, from what it gained where it was rehearsed.

Two views of it are averaged: the mean gain of the rehearsals; and the gain of each row whose prediction the adaptation changed
there, times the share of rows that it changes here, which takes no label to count. The width of intervals was chosen on families
of data left out (benchmarks/README.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.stats import t as student_t  # type: ignore[import-untyped,unused-ignore]
from torch import Tensor

WIDTH = 1.5  # q: half an interval's width in units of what gains are off by
OF_CHANGE, OF_SITES, FLOOR = 0.1, 0.6, 0.01  # of the share that changes, of the sites' spread, and always
LONE = 0.05  # the spread of gains between sites where there is but one
FEW = 0.005  # of the rows changed: of fewer no gain of each is told


@dataclass(frozen=True)
class Expectation:
    """A gain of accuracy in -1..1, and the ends of its interval."""

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
    spread = float(g.std()) if len(g) > 1 else LONE
    sampling = max(here, FLOOR) / max(rows, 1)
    off = math.sqrt((OF_CHANGE * here) ** 2 + (OF_SITES * spread) ** 2 + sampling + FLOOR**2)
    return Expectation(value, max(value - WIDTH * off, -1.0), min(value + WIDTH * off, 1.0))
