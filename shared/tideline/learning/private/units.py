"""Sums over units of several rows, such as patients: each unit is in them as the mean of its rows, so as much as one row is.

A unit's own sum is made in float64, its rows one after the other, some at a time: never are all rows' gradients held at once. A
mean is then clipped and rounded as a row's gradient is, so that one unit more or less moves the sum by clip at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tideline.core.asked.private import Privacy
from tideline.core.errors import DataRefused, StepFailed
from tideline.core.step import Data
from tideline.learning.loading.ahead import in_order, moved
from tideline.learning.private.gradients import Parameters, RowGradients, flat
from tideline.learning.private.summing import GridSum


def check_units(data: Data, privacy: Privacy | None) -> None:
    """Raises DataRefused where a run protects units, and the data do not say whose a row is, or say it of other units."""
    if privacy is None or privacy.unit is None or data.unit == privacy.unit:
        return
    has = f"say it by {data.unit}" if data.unit else "do not say which rows belong together"
    what = f"The run protects each {privacy.unit}, and the data of this site {has}"
    todo = f'Write unit = "{privacy.unit}" for each domain in transforms.toml, and name the column (docs/data.md, Units)'
    raise DataRefused(what, f"{todo}; or start the run without privacy.unit", path="privacy.unit")


def protected(data: Data, privacy: Privacy | None) -> int:
    """How many rows there are, with labels and without, or how many units where a run protects these."""
    if privacy is None or privacy.unit is None or data.units is None:
        return data.count
    return len(Units.of(data.units))


def units_in(data: Data, privacy: Privacy) -> Units | None:
    """The units of some rows; None where each row counts by itself. Raises DataRefused as `check_units` does,
    StepFailed for rows that a step chose without their units.
    """
    check_units(data, privacy)
    if privacy.unit is None or data.units is None:
        return None
    if len(data.units) != len(data):
        what = f"The step chose {len(data)} rows without their units"
        raise StepFailed(what, "Choose units with the rows: replace(data, ..., units=data.units[rows])")
    return Units.of(data.units)


SHARE = 1 << 20  # steps of the grid that a unit's share of 1 has, so that sums of shares are exact


@dataclass(frozen=True, eq=False)
class Units:
    """Rows by their units: order (n,), the rows of one unit after the other; ends (U,), where each unit's rows end in it."""

    order: Tensor
    ends: Tensor

    @classmethod
    def of(cls, units: Tensor) -> Units:
        """units (n,): a number for each row's unit."""
        _, number, sizes = torch.unique(units, return_inverse=True, return_counts=True)
        return cls(torch.argsort(number, stable=True), sizes.cumsum(0))

    def __len__(self) -> int:
        return len(self.ends)

    @cached_property
    def sizes(self) -> Tensor:
        """How many rows each unit has (U,)."""
        return torch.diff(self.ends, prepend=self.ends.new_zeros(1))

    def rows(self, unit: int) -> Tensor:
        """The rows of one."""
        end = int(self.ends[unit])
        return self.order[end - int(self.sizes[unit]) : end]

    def shares(self, values: Tensor) -> Tensor:
        """Of a number in [0, 1] for each row (n,) the mean of each unit (U,), float64, rounded down to steps of 1 / SHARE."""
        sums = torch.zeros(len(self), dtype=torch.float64)
        sums.index_add_(0, torch.arange(len(self)).repeat_interleave(self.sizes), values.double()[self.order])
        return (sums / self.sizes * SHARE).floor() / SHARE


def sum_units_up(
    total: GridSum,
    gradients: RowGradients,
    parameters: Parameters,
    data: Data,
    units: Units,
    chosen: Tensor,
    size: int,
) -> None:
    """Sum the chosen units' clipped mean gradients, made of those of `size` rows at once, of which the last are filled up."""
    total.clear()
    device = str(total.total.device)
    for sums, sizes in unit_sums(gradients, parameters, data, units, chosen, size, device):
        total.add_flat(sums / sizes[:, None])


def unit_sums(
    gradients: RowGradients,
    parameters: Parameters,
    data: Data,
    units: Units,
    chosen: Tensor,
    size: int,
    device: str,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each chosen unit the sum of its rows' gradients (k, d) float64, and how many rows it has (k,): some units at a time."""
    assert data.y is not None
    rows = torch.cat([units.rows(int(unit)) for unit in chosen]) if len(chosen) else chosen
    sizes = units.sizes[chosen]
    whose, ends = torch.arange(len(chosen)).repeat_interleave(sizes), sizes.cumsum(0)
    left, done = None, 0
    with closing(in_order(data.x, torch.split(rows, size) if len(rows) else (), device)) as fed:
        for part, x in fed:
            full = torch.arange(size, device=x.device).clamp(max=len(part) - 1)
            found = gradients(parameters, x[full], moved(data.y[part], device)[full])
            lines = torch.cat([flat(found[name])[: len(part)] for name in parameters], dim=1).double()
            own = whose[done : done + len(part)]
            done, first, last = done + len(part), int(own[0]), int(own[-1])
            sums = lines.new_zeros(last - first + 1, lines.shape[1])
            if left is not None:
                sums[0] = left
            sums.index_add_(0, (own - first).to(device), lines)
            whole = last - first + int(done == int(ends[last]))  # the last one may go on in the next part
            left = sums[whole].clone() if whole < len(sums) else None
            if whole:
                yield sums[:whole], sizes[first : first + whole].to(device)
