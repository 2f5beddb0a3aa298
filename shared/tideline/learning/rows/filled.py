"""Rows whose missing cells, NaN until then, are filled by a number for each column.

x (n, d) float32; of the columns whose cells may be missing there are p, at `places` in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from tideline.core.asked.world import World
from tideline.core.record import field, record
from tideline.core.rows import Changed, MemoryRows, Rows
from tideline.core.tables.columns import filled_places


@record
class Medians:
    """What missing cells are filled by: (p,) float64."""

    values: Tensor = field(doc="a number for each column whose missing cells are filled")


def copied(by: Medians | None) -> Medians | None:
    return None if by is None else Medians(by.values.clone())


def same(one: Medians | None, other: Medians | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one.values, other.values))


def row_of(by: Medians, world: World) -> Tensor:
    """What a missing cell of each input is filled by, (d,) float32; 0 for those of which none is missing."""
    made = torch.zeros(world.inputs[0])
    made[list(filled_places(world.columns))] = by.values.float()
    return made


def filled(x: Tensor, by: Tensor) -> Tensor:
    """Rows x (n, d) with `by` (d,) where they are NaN."""
    return torch.where(torch.isnan(x), by.to(x.dtype), x)


def cells_of(parts: Iterable[Tensor], places: Sequence[int]) -> Tensor:
    """The columns at these places of rows that come in parts (b, d): (n, p) float64."""
    return torch.cat([torch.empty(0, len(places)), *(part[:, list(places)] for part in parts)]).double()


def medians_of(cells: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """Known cells, and their lower median, of each column: (n, p) -> (p,) int64, (p,) float64. Of fewer than `least`, none: 0."""
    known = (~torch.isnan(cells)).sum(0)
    enough = known >= least
    medians = torch.zeros(cells.shape[1], dtype=torch.float64)
    if enough.any():
        medians[enough] = cells[:, enough].nanmedian(0).values
    return torch.where(enough, known, 0), medians


@dataclass(frozen=True, eq=False)
class FilledRows(Changed):
    """Rows that are filled when they are read. by: (d,)."""

    by: Tensor

    def batch(self, indices: Tensor, rng: Generator | None = None) -> Tensor:
        return filled(self.raw.batch(indices, rng), self.by)

    def parts(self, size: int | None = None) -> Iterator[Tensor]:
        return (filled(part, self.by) for part in self.raw.parts(size))


@dataclass(frozen=True)
class Filler:
    """What makes rows filled ones. by: (d,)."""

    by: Tensor

    def rows(self, rows: Rows) -> Rows:
        """Rows in memory are filled once."""
        lazily = FilledRows(rows, self.by)
        return MemoryRows(lazily.all()) if isinstance(rows, MemoryRows) else lazily


class Filling(nn.Module):
    """The same before a network: x (n, d) -> like x."""

    by: Tensor

    def __init__(self, by: Tensor) -> None:
        super().__init__()
        self.register_buffer("by", by.clone())

    def forward(self, x: Tensor) -> Tensor:
        return filled(x, self.by)
