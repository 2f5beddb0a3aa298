"""The sum of rows' gradients, each clipped and rounded to a grid, in memory that is used again and again.

A fresh array of some megabytes costs more to come by than to fill, so rows are clipped a few at a time, in one that stays in the
processor's cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import torch
from torch import Tensor

WHOLE = 1 << 28  # steps of the grid that `clip` has
SHORTER = 1 - 2.0**-20  # room for the rounding before the grid
CACHED, ON_GPU = 1 << 18, 1 << 24  # numbers that are clipped together


class GridSum:
    """A sum over rows in steps of the grid, (d,) int64: of parameters by name, side by side in their order.

    short: how many of the rows were no longer than the clip. clip: of rows that come; it may be set while the sum is empty.
    """

    def __init__(self, parameters: Mapping[str, Tensor], clip: float, device: str) -> None:
        self._sizes, self.clip = {name: p.numel() for name, p in parameters.items()}, clip
        d = sum(self._sizes.values())
        together = max(1, (CACHED if torch.device(device).type == "cpu" else ON_GPU) // max(1, d))
        self._rows = torch.empty(together, d, dtype=torch.float64, device=device)
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

    def add(self, gradients: Mapping[str, Tensor], m: int) -> None:
        """Add the first m rows of gradients, (n, *shape) of each parameter; m is 2^24 at most, for the sum to be exact."""
        found = {name: gradients[name].flatten(1) for name in self._sizes}
        for first in range(0, m, len(self._rows)):
            rows, at = self._rows[: m - first], 0
            for name, size in self._sizes.items():
                rows[:, at : at + size] = found[name][first : first + len(rows)]
                at += size
            self.clip_and_add(rows)
        self.total += self._part.long()
        self._part.zero_()

    def add_flat(self, rows: Tensor) -> None:
        """The same of rows (m, d) that are of one piece."""
        for some in torch.split(rows, len(self._rows)):
            made = self._rows[: len(some)]
            made.copy_(some)
            self.clip_and_add(made)
        self.total += self._part.long()
        self._part.zero_()

    def clip_and_add(self, rows: Tensor) -> None:
        """Clip some rows (m, d) in place, and add them up."""
        self._short += clip_to_grid(rows, self.clip)
        self._part.addmv_(rows.t(), torch.ones(len(rows), dtype=rows.dtype, device=rows.device))


def clip_to_grid(rows: Tensor, clip: float, whole: int = WHOLE) -> Tensor:
    """Rows (m, d) float64, clipped and rounded in place: whole numbers, of a norm of `whole` at most in each row.

    Gives how many were no longer than the clip before, a scalar.

    Rounding adds sqrt(d) / 2 to a norm at most, so rows are scaled to end below `whole` by that much. One that is longer in spite
    of it, or not finite, counts as zero.
    """
    d = rows.shape[1]
    reach = whole * SHORTER - sqrt(d) / 2
    norms = torch.linalg.vector_norm(rows, dim=1)
    scale = reach / norms.clamp(min=clip)
    rows.mul_(scale[:, None]).round_()
    true = torch.linalg.vector_norm(rows, dim=1) * (1 + 2.0**-52 * (d + 8))  # any order of summation
    counted = true <= whole  # false for NaN and infinity, too
    if not bool(counted.all()):
        rows[~counted] = 0
    short: Tensor = (norms <= clip).sum()
    return short
