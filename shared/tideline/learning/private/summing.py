"""The sum of rows' gradients, each clipped and rounded to a grid, in memory that is used again and again.

A fresh array of some megabytes costs more to come by than to fill, so rows are clipped some at a time, in one that stays in the
processor's caches. A gradient that is a product of two vectors is rounded as these: both become whole numbers, so its norm is
that of one times that of the other, and a sum over rows is one product of matrices of whole numbers, exact in any order.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt

import torch
from torch import Tensor

from tideline.learning.private.gradients import Found, Outer
from tideline.numerics.privacy.discrete import MOST

WHOLE = 1 << 36  # steps of the grid that `clip` has
MOST_NOISE = MOST / WHOLE  # in clips: more steps of the grid than that are not drawn
SHORTER = 1 - 2.0**-20  # room for the rounding before the grid
CACHED, ON_GPU = 1 << 20, 1 << 24  # numbers that are clipped together
Pair = tuple[Tensor, Tensor]


class GridSum:
    """A sum over rows in steps of the grid, (d,) int64: of parameters by name, side by side in their order.

    short: how many of the rows were no longer than the clip. clip: of rows that come; it may be set while the sum is empty.
    """

    def __init__(self, parameters: Mapping[str, Tensor], clip: float, device: str) -> None:
        sizes, self.clip = [p.numel() for p in parameters.values()], clip
        ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
        self._places = {name: slice(*ends[i : i + 2]) for i, name in enumerate(parameters)}
        d = sum(sizes)
        self._most = max(d, CACHED if torch.device(device).type == "cpu" else ON_GPU)
        self._held = torch.empty(self._most, dtype=torch.float64, device=device)
        self._part = torch.zeros(d, dtype=torch.float64, device=device)
        self.total = torch.zeros(d, dtype=torch.int64, device=device)
        self._short = torch.zeros((), dtype=torch.int64, device=device)

    def clear(self) -> None:
        """Begin anew, at zero."""
        self.total.zero_()
        self._short.zero_()

    @property
    def short(self) -> int:
        return int(self._short)

    def add(self, gradients: Mapping[str, Found], m: int) -> None:
        """Add the first m rows of gradients, (n, *shape) of each parameter; m is 2^16 at most, for the sum to be exact."""
        outer = {name: each for name in self._places if isinstance(each := gradients[name], Outer)}
        lines = {name: each.flatten(1)[:m] for name in self._places if not isinstance(each := gradients[name], Outer)}
        self._add(list(lines.values()), [(each.column[:m], each.line[:m]) for each in outer.values()])
        self._into_total([*lines, *outer])

    def add_flat(self, rows: Tensor) -> None:
        """The same of rows (m, d) that are of one piece."""
        self._add([rows], [])
        self._into_total(list(self._places))

    def _add(self, lines: Sequence[Tensor], pairs: Sequence[Pair]) -> None:
        """Clip rows, made of lines (m, d) side by side and of the products of pairs, and add them up in that order."""
        kinds = Kinds(sum(each.shape[1] for each in lines), [(a.shape[1], b.shape[1]) for a, b in pairs])
        together = max(1, self._most // max(1, kinds.numbers))
        for parts in zip(*(torch.split(each, together) for each in (*lines, *itertools.chain(*pairs))), strict=True):
            rows, at = self._held[: len(parts[0]) * kinds.plain].view(len(parts[0]), kinds.plain), 0
            for each in parts[: len(lines)]:
                rows[:, at : (at := at + each.shape[1])] = each
            of_pairs = [each.to(torch.float64, copy=True) for each in parts[len(lines) :]]
            made = list(zip(of_pairs[::2], of_pairs[1::2], strict=True))
            self._short += clip_together(rows, made, kinds, self.clip)
            self._part[:at].addmv_(rows.t(), torch.ones(len(rows), dtype=rows.dtype, device=rows.device))
            for (a, b), (column, line) in zip(kinds.pairs, made, strict=True):
                self._part[at : (at := at + a * b)].view(a, b).addmm_(column.t(), line)

    def _into_total(self, names: Sequence[str]) -> None:
        """Move what was added up into the sum: numbers of these names, in their order."""
        at = 0
        for place in map(self._places.__getitem__, names):
            self.total[place] += self._part[at : (at := at + place.stop - place.start)].long()
        self._part.zero_()


@dataclass(frozen=True)
class Kinds:
    """What a row is made of: plain numbers, and products of vectors of so many numbers."""

    plain: int
    pairs: Sequence[tuple[int, int]] = ()

    def reach(self, whole: int) -> float:
        """The norm to which rows are scaled: rounding adds to it what is left to `whole`, at most.

        It adds sqrt(d) / 2 to d numbers. To a product it adds what it adds to either vector, times the other's norm, and both: a
        vector's norm is sqrt(whole) at most.
        """
        added = [sqrt(whole) * (sqrt(a) + sqrt(b)) / 2 + sqrt(a * b) / 4 for a, b in self.pairs]
        return whole * SHORTER - hypot(sqrt(self.plain) / 2, *added)

    @property
    def numbers(self) -> int:
        """How many whole numbers it becomes."""
        return self.plain + sum(a + b for a, b in self.pairs)


def clip_to_grid(rows: Tensor, clip: float, whole: int = WHOLE) -> Tensor:
    """Rows (m, d) float64, clipped and rounded in place: whole numbers, of a norm of `whole` at most in each row.

    Gives how many were no longer than the clip before, a scalar.
    """
    return clip_together(rows, (), Kinds(rows.shape[1]), clip, whole)


def clip_together(rows: Tensor, pairs: Sequence[Pair], kinds: Kinds, clip: float, whole: int = WHOLE) -> Tensor:
    """The same of rows each with the products of pairs (m, a), (m, b), which become whole numbers, too.

    One that is longer than `whole` in spite of its scale, or not finite, counts as zero.
    """
    lengths = norms(rows, pairs)
    scale = kinds.reach(whole) / lengths.clamp(min=clip)
    rows.mul_(scale[:, None]).round_()
    for column, line in pairs:
        round_pair(column, line, scale)
    true = norms(rows, pairs) * (1 + 2.0**-52 * (kinds.numbers + 16))  # any order of summation
    counted = true <= whole  # false for NaN and infinity, too
    if not bool(counted.all()):
        for each in (rows, *itertools.chain(*pairs)):
            each[~counted] = 0
    short: Tensor = (lengths <= clip).sum()
    return short


def norms(rows: Tensor, pairs: Sequence[Pair]) -> Tensor:
    """Of rows with the products of their pairs (m,). A product is as long as one vector times the other."""
    found: Tensor = torch.linalg.vector_norm(rows, dim=1)
    for pair in pairs:
        a, b = (torch.linalg.vector_norm(each, dim=1) for each in pair)
        found = torch.hypot(found, a * b)
    return found


def round_pair(column: Tensor, line: Tensor, scale: Tensor) -> None:
    """Vectors (m, a), (m, b) in place: their products are scaled by scale (m,), half of it in each, and both are rounded."""
    a, b = (torch.linalg.vector_norm(each, dim=1) for each in (column, line))
    there = (a > 0) & (b > 0)
    for vectors, by in ((column, b / a), (line, a / b)):
        vectors.mul_(torch.where(there, (scale * by).sqrt(), 0.0)[:, None]).round_()
