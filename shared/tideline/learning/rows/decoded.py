"""Rows that are made when they are asked for: decoded from files, say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from tideline.core.rows import Rows


@dataclass(frozen=True, eq=False)
class DecodedRows(Rows):
    """n rows by a function of one row's number in [0, n), which gives (*shape) of the type `of`.

    numbers: that nothing which the function holds or can reach leads to a label.
    """

    n: int
    sample: tuple[int, ...]
    decode: Callable[[int], Tensor]
    numbers: bool = False
    of: torch.dtype = torch.float32

    def __len__(self) -> int:
        return self.n

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sample

    @property
    def dtype(self) -> torch.dtype:
        return self.of

    @property
    def plain(self) -> bool:
        return self.numbers

    def batch(self, indices: Tensor, rng: Generator | None = None) -> Tensor:
        out = torch.empty((len(indices), *self.sample), dtype=self.of)
        for place, row in enumerate(indices.tolist()):
            if not 0 <= row < self.n:
                raise IndexError(f"row {row} of {self.n}")
            out[place] = self.decode(row)
        return out
