"""A site's values as whole numbers in a row, and their sum over sites as values again.

In the row are the tensors by name, then each metric, and last how many numbers the site has clipped. A metric m, below 2^32,
takes two numbers, floor(m / 2^16) and the rest, both over 2^16: so its sum is as fine as the tensors', however large it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from tideline.core.errors import StepFailed
from tideline.numerics.privacy.discrete import discrete_gaussian
from tideline.numerics.privacy.streams import Stream
from tideline.secure.fixed_point import WORDS, Grid, Words, finest

HALF = 2.0**16
FINEST_NOISE = 39  # log2 of the widest noise that is drawn, in steps
Shapes = Mapping[str, tuple[int, ...]]


def grid_for(sites: int, bits: int) -> Grid:
    """For values between -1 and 1 of so many sites. Raises RangeRefused."""
    return finest(1.0, sites, bits)


@dataclass(frozen=True)
class Summed:
    """What sums are: tensors (float64) by name, the mean of each metric, and how many numbers were clipped."""

    tensors: Mapping[str, Tensor]
    means: Mapping[str, float]
    clipped: int


@dataclass(frozen=True)
class Row:
    """What is in a row: shapes of tensors by name, and names of metrics."""

    shapes: Shapes
    metrics: tuple[str, ...]

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each tensor lies."""
        found, at = dict[str, slice](), 0
        for name in sorted(self.shapes):
            found[name] = slice(at, at + math.prod(self.shapes[name]))
            at = found[name].stop
        return found

    @property
    def tensors(self) -> int:
        """How many numbers the tensors have."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def length(self) -> int:
        """How many whole numbers are added up."""
        return self.tensors + 2 * (len(self.metrics) + 1)

    def encode(self, values: Mapping[str, Tensor], metrics: Mapping[str, float], grid: Grid) -> Tensor:
        """A site's row, of int32: (n,), or (2 n,) for 64 bits. Raises StepFailed for other tensors than were said, and
        ValuesRefused for NaN.
        """
        given = {name: tuple(value.shape) for name, value in values.items()}
        if given != dict(self.shapes):
            odd = sorted(given.items() ^ self.shapes.items())[0][0]
            raise StepFailed(f"What is to be summed has {odd} in another shape than was said", "Mend the method")
        row, clipped = grid.zeros(self.length), 0
        for name, place in self.places.items():
            made = grid.encode(values[name].detach().cpu().contiguous().numpy().reshape(-1))
            row[place], clipped = made.values, clipped + made.clipped
        halves = [half for name in self.metrics for half in halved(metrics[name])]
        made = grid.encode(np.array([*halves, *halved(clipped + sum(abs(h) > 1 for h in halves))]))
        row[self.tensors :] = made.values
        return row_of(row)

    def encode_noised(
        self, values: Mapping[str, Tensor], shared: tuple[str, ...], bound: float, noise: float, grid: Grid, stream: Stream
    ) -> Tensor:
        """The same without metrics, and shortened to `bound`, with a share of noise of this standard deviation, in steps both.
        shared: names of what is the same at all sites.

        Rounding n numbers adds no more than sqrt(n) / 2 to their length, so they are shortened to that much less before.
        """
        own = [name for name in self.places if name not in shared]
        count = sum(math.prod(self.shapes[name]) for name in own)
        coarser = max(0, math.ceil(math.log2(noise)) - FINEST_NOISE)  # powers of two by which steps of 64 bits are too fine
        coarse = Grid(grid.clip, grid.sites, grid.bits, grid.exponent - coarser)
        length = math.sqrt(sum(float(values[name].double().square().sum()) for name in own)) * 2.0**coarse.exponent
        most = bound / 2.0**coarser - math.sqrt(count) / 2
        if most <= 0:
            what = f"{count} numbers are rounded to steps that are together longer than secure_sums.norm"
            raise StepFailed(what, "Write bits: 64 in secure_sums, or raise norm")
        by = min(1.0, most / length) if length > 0 else 1.0
        made = {name: values[name] if name in shared else values[name].double() * by for name in self.places}
        steps = coarse.steps(words_of(self.encode(made, dict.fromkeys(self.metrics, 0.0), coarse), grid.bits)).astype(np.int64)
        steps[self.tensors :] = 0
        for name in own:
            place = self.places[name]
            steps[place] += discrete_gaussian(noise / 2.0**coarser, place.stop - place.start, stream)
        np.clip(steps, -coarse.most, coarse.most, out=steps)
        return row_of((steps << coarser).astype(WORDS[grid.bits][1]).view(grid.dtype))

    def decode(self, total: Words, grid: Grid, count: int) -> Summed:
        """What is in the sum of the rows of so many sites."""
        ends = [joined(high, low) for high, low in grid.decode(total[self.tensors :]).reshape(-1, 2)]
        return Summed(
            {name: torch.from_numpy(grid.decode(total[at])).reshape(self.shapes[name]) for name, at in self.places.items()},
            {name: end / count for name, end in zip(self.metrics, ends, strict=False)},
            round(ends[-1]),
        )


def halved(number: float) -> tuple[float, float]:
    high = math.floor(number / HALF)
    return high / HALF, (number - high * HALF) / HALF


def joined(high: float, low: float) -> float:
    return float((high * HALF + low) * HALF)


def row_of(words: Words) -> Tensor:
    """Whole numbers as they travel, of int32. Nothing is copied."""
    return torch.from_numpy(words.view(np.int32))


def words_of(row: Tensor, bits: int) -> Words:
    """The inverse. Nothing is copied."""
    return row.contiguous().numpy().view(np.uint32 if bits == 32 else np.uint64)
