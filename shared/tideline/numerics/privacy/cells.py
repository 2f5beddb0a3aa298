"""Cells of whole numbers that a discrete Gaussian's draws are found in, drawn by Walker's alias method (1974) in whole numbers.

Cell c is [c w, (c + 1) w), w a power of two, and has the weight exp(-(c w)^2 / (2 sigma^2)), which no number in it exceeds.
Weights are rounded to 2^-192 of their sum: together that is less than 2^-181. Behind the last cell is less than 2^-180 of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import frexp

import numpy as np
from numpy.typing import NDArray

from tideline.numerics.privacy.streams import Stream

CELLS = 1 << 10  # and columns, each of which is shared by two cells at most
LOW, MORE = 54, 128  # bits of a word beside its column, and those that lengthen it
LOT = 20  # bits of the number that decides whether a draw is taken
SUM = 1 << (10 + LOW + MORE)  # of weights
WIDE = 6  # sigma is 2^5 to 2^6 cells where that is more than 2^6 steps


@dataclass(frozen=True, eq=False)
class Cells:
    """shift: log2 of a cell's width. kept: of each column, up to where a number of LOW + MORE bits is of its own cell; beyond it
    is `other`. edges: the first LOW of these bits. sure: of each cell, lots below it are taken wherever in the cell they are.
    """

    shift: int
    kept: Sequence[int]
    edges: NDArray[np.uint64]
    other: NDArray[np.int64]
    sure: NDArray[np.uint64]

    def drawn(self, many: int, stream: Stream) -> NDArray[np.int64]:
        """So many cells, each with the chance that is its share of all weights."""
        words = stream.words(many)
        column = (words >> np.uint64(LOW)).view(np.int64)
        low = words & np.uint64((1 << LOW) - 1)
        edges = self.edges.take(column)
        own = low < edges
        for i in np.flatnonzero(low == edges):
            more, last = stream.words(2)
            own[i] = (int(more) << 64) | int(last) < self.kept[column[i]] % (1 << MORE)
        return np.where(own, column, self.other.take(column))


@lru_cache(maxsize=16)
def cells(sigma: float) -> Cells:
    """Those of a width."""
    shift = max(0, frexp(sigma)[1] - WIDE)
    weights, sure = weighed((Fraction(1 << shift) / Fraction(sigma)) ** 2)
    kept, other = columns(weights)
    edges = np.array([each >> MORE for each in kept], dtype=np.uint64)
    lots = np.array(sure if shift else [1 << LOT] * CELLS, dtype=np.uint64)
    return Cells(shift=shift, kept=kept, edges=edges, other=np.array(other), sure=lots)


def weighed(square: Fraction) -> tuple[list[int], list[int]]:
    """Of each cell the weight, and the least chance to be taken in 2^-LOT; square: (w / sigma)^2."""
    found, sure = [], []
    with localcontext(Context(prec=100)):
        apart = Decimal(square.numerator) / Decimal(square.denominator)
        weight, falls, faster = Decimal(1), (-apart / 2).exp(), (-apart).exp()
        for _ in range(CELLS):
            found.append(weight)
            sure.append(int(falls * (1 << LOT)))
            weight, falls = weight * falls, falls * faster
        share = SUM / sum(found, Decimal())
        weights = [int(each * share) for each in found]
    weights[0] += SUM - sum(weights)
    return weights, sure


def columns(weights: Sequence[int]) -> tuple[list[int], list[int]]:
    """Weights in columns of equal height: how much of each is of the cell of its own number, and whose the rest is."""
    height, left = SUM // CELLS, list(weights)
    kept, other = [height] * CELLS, list(range(CELLS))
    low = [c for c, each in enumerate(left) if each < height]
    high = [c for c, each in enumerate(left) if each >= height]
    while low:
        c, full = low.pop(), high[-1]
        kept[c], other[c] = left[c], full
        left[full] -= height - left[c]
        if left[full] < height:
            low.append(high.pop())
    return kept, other
