"""Rows of a site as a lazy view: how many, of what shape, and batches of them; where they lie is their own affair. And how
images among them are changed at random where a run trains on them.

n rows of samples of `shape`, without the axis that counts them. Light: torch is loaded where rows are first read. And what rows
are in words, by their axes and their type; `Takes` is which of them a network or a method takes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING

from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.settings import setting

if TYPE_CHECKING:
    from torch import Generator, Tensor, dtype

    from tideline.core.asked.world import World

PART = 512  # rows that pass through a network at once, at most
NUMBERS = 1 << 22  # of their inputs: a first layer makes some twenty times as many
WHOLE = 2 << 30  # bytes of rows outside memory that a step may ask for at once
NEAR = 1 << 30  # bytes of rows in a mapped file of which the system is likely to hold all


def part_size(shape: Sequence[int]) -> int:
    """How many samples of this shape pass through a network at once: fewer of large images."""
    return max(1, min(PART, NUMBERS // max(1, math.prod(shape))))


class Rows(ABC):
    """n samples, all of one shape and dtype. Reading never changes them, and the same indices give the same bytes."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""

    @property
    def dtype(self) -> dtype:
        """float32, as the networks take it; int64 of token ids."""
        import torch

        return torch.float32

    @property
    @abstractmethod
    def plain(self) -> bool:
        """Whether there is nothing behind them but numbers: no file's name, and no object that could lead to a label."""

    @property
    def near(self) -> bool:
        """Whether to read them is to copy numbers, so that nothing is gained by doing it ahead."""
        return False

    @property
    def draws(self) -> bool:
        """Whether what `batch` gives depends on its generator."""
        return False

    @abstractmethod
    def batch(self, indices: Tensor, rng: Generator | None = None) -> Tensor:
        """The rows of these numbers: indices (b,) int64 in [0, n), in any order, also repeated or none -> (b, *shape).

        rng: for sources that draw at random, such as augmentation, which say so by `draws`. Several threads may ask at once.
        Raises IndexError for n or more.
        """

    def parts(self, size: int | None = None) -> Iterator[Tensor]:
        """All rows in order, (size, *shape) at a time, by default as many as a network takes; of no rows, one empty part."""
        import torch

        size = size or part_size(self.shape)
        for start in range(0, max(len(self), 1), size):
            yield self.batch(torch.arange(start, min(start + size, len(self))))

    def at(self, indices: Tensor) -> Rows:
        """These rows alone, by number, as a view. Nothing is read."""
        return Chosen(self, indices)

    def all(self, by: str = "this method") -> Tensor:
        """All rows at once (n, *shape). Raises DataRefused above WHOLE bytes, in the name of whoever cannot do with parts."""
        check_whole(len(self), self.shape, by, item=self.dtype.itemsize)
        import torch

        return torch.cat(list(self.parts()))


def check_whole(n: int, shape: Sequence[int], by: str, most: int = WHOLE, item: int = 4) -> None:
    """Raises DataRefused if n samples of this shape, of `item` bytes a number, take more than `most` bytes."""
    size = item * n * math.prod(shape)
    if size > most:
        what = (
            f"{n} rows of {' x '.join(map(str, shape))} take {size / 1e9:.1f} GB, and {by} wants them all at once, which ends at"
        )
        todo = "Keep fewer rows at the site, ask for a world with smaller inputs, or take a method that reads rows in batches"
        raise DataRefused(f"{what} {most / 1e9:.1f} GB", todo, rows=n)


@dataclass(frozen=True, eq=False)
class TensorRows(Rows):
    """Rows that are a tensor (n, *shape), wherever its numbers lie."""

    tensor: Tensor

    def __len__(self) -> int:
        return int(self.tensor.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[1:])

    @property
    def dtype(self) -> dtype:
        return self.tensor.dtype

    @property
    def plain(self) -> bool:
        return True

    @property
    def near(self) -> bool:
        return self.tensor.numel() * self.tensor.element_size() <= NEAR

    def batch(self, indices: Tensor, rng: Generator | None = None) -> Tensor:
        return self.tensor[indices]

    def parts(self, size: int | None = None) -> Iterator[Tensor]:
        import torch

        return iter(torch.split(self.tensor, size or part_size(self.shape)))


@dataclass(frozen=True, eq=False)
class Changed(Rows):
    """Rows of others that are changed when they are read; what lies behind both is the same."""

    raw: Rows

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.raw.shape

    @property
    def plain(self) -> bool:
        return self.raw.plain

    @property
    def near(self) -> bool:
        return self.raw.near

    @property
    def draws(self) -> bool:
        return self.raw.draws


class MemoryRows(TensorRows):
    """Rows that are a tensor (n, *shape) in memory."""

    @property
    def near(self) -> bool:
        return True

    def at(self, indices: Tensor) -> Rows:
        return MemoryRows(self.tensor[indices])

    def all(self, by: str = "") -> Tensor:
        return self.tensor


@dataclass(frozen=True, eq=False)
class Chosen(Rows):
    """Some rows of others, by number (m,)."""

    rows: Rows
    indices: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    @property
    def dtype(self) -> dtype:
        return self.rows.dtype

    @property
    def plain(self) -> bool:
        return self.rows.plain

    @property
    def near(self) -> bool:
        return self.rows.near

    @property
    def draws(self) -> bool:
        return self.rows.draws

    def batch(self, indices: Tensor, rng: Generator | None = None) -> Tensor:
        return self.rows.batch(self.indices[indices], rng)

    def at(self, indices: Tensor) -> Rows:
        return Chosen(self.rows, self.indices[indices])


@dataclass(frozen=True, eq=False)
class Joined(Rows):
    """Rows of several places, one after the other."""

    several: tuple[Rows, ...]
    starts: tuple[int, ...]

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.several[0].shape

    @property
    def dtype(self) -> dtype:
        return self.several[0].dtype

    @property
    def plain(self) -> bool:
        return all(each.plain for each in self.several)

    @property
    def near(self) -> bool:
        return all(each.near for each in self.several)

    @property
    def draws(self) -> bool:
        return any(each.draws for each in self.several)

    def batch(self, indices: Tensor, rng: Generator | None = None) -> Tensor:
        """Each place is asked once, for its own rows in the order of `indices`."""
        import torch

        out = torch.empty((len(indices), *self.shape), dtype=self.dtype)
        places = torch.tensor([self.place(int(i)) for i in indices], dtype=torch.int64)
        for number in sorted(set(places.tolist())):
            here = (places == number).nonzero().flatten()
            out[here] = self.several[number].batch(indices[here] - self.starts[number], rng)
        return out

    def place(self, row: int) -> int:
        """Which of the places a row is in."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return bisect_right(self.starts, row) - 1


def joined(several: Sequence[Rows]) -> Rows:
    """Rows of one or more places as one. Those in memory become one tensor. Raises ValueError for samples of two kinds."""
    if len({(each.shape, each.dtype) for each in several}) != 1:
        raise ValueError("rows that are joined are of one shape and type")
    if len(several) == 1:
        return several[0]
    if all(isinstance(each, MemoryRows) for each in several):
        import torch

        return MemoryRows(torch.cat([each.all() for each in several]))
    return Joined(tuple(several), (0, *accumulate(map(len, several))))


def dtype_of(world: World) -> dtype:
    """What a world's rows hold: float32, or int64 of token ids."""
    import torch

    return torch.int64 if world.tokens else torch.float32


def as_rows(x: Tensor | Rows) -> Rows:
    """Rows, of a tensor those in memory."""
    return x if isinstance(x, Rows) else MemoryRows(x)


class Flip(StrEnum):
    """Along which axes half of the images are mirrored."""

    NONE = "none"
    HORIZONTAL = "horizontal"
    VERTICAL = "vertical"
    BOTH = "both"


@dataclass(frozen=True)
class Colour:
    """How far colours move: factors drawn from [1 - a, 1 + a] each, and a turn of the hue from [-a, a] of a circle."""

    brightness: float = setting(0.0, low=0.0, high=1.0, doc="of all pixels")
    contrast: float = setting(0.0, low=0.0, high=1.0, doc="against the image's mean grey")
    saturation: float = setting(0.0, low=0.0, high=1.0, doc="against each pixel's grey; for three channels")
    hue: float = setting(0.0, low=0.0, high=0.5, doc="turn of the hue, in circles; for three channels")


@dataclass(frozen=True)
class RandAugment:
    """So many operations for each image, drawn among fourteen (Cubuk et al., CVPR workshops 2020)."""

    operations: int = setting(2, low=1, high=10, doc="operations for each image")
    magnitude: int = setting(9, low=0, high=30, doc="how strong they are")


@dataclass(frozen=True)
class Augment:
    """How images are changed at random whenever a run trains on them; never to score, to measure, or to predict."""

    flip: Flip = setting(Flip.NONE, doc="none, horizontal, vertical or both: half of the images are mirrored along each")
    crop: tuple[float, float] | None = setting(
        None, low=0.01, high=1.0, doc="least and largest share of the area that is kept, resized to the whole"
    )
    colour: Colour | None = setting(None, doc="brightness, contrast, saturation and hue: how far each moves")
    randaugment: RandAugment | None = setting(None, doc="operations for each image, and their magnitude")

    def __post_init__(self) -> None:
        """Raises ConfigRefused for a crop whose ends are the wrong way round."""
        if self.crop is not None and self.crop[0] > self.crop[1]:
            what = f"augment.crop is {list(self.crop)}, whose least share is above its largest"
            raise ConfigRefused(what, "Write [least, largest], such as [0.6, 1.0]", path="augment.crop")

    @property
    def on(self) -> bool:
        """Whether anything is changed."""
        return self != NO_AUGMENT

    @property
    def colours(self) -> bool:
        """Whether values of pixels are changed, which are then to lie in [0, 1]."""
        return self.colour is not None or self.randaugment is not None


NO_AUGMENT = Augment()


# By the number of axes of a sample, in the order of its sizes.
AXES = {
    1: "vectors (features)",
    2: "sequences (channels, steps)",
    3: "images (channels, height, width)",
    4: "volumes (channels, depth, height, width)",
    5: "volumes over time (five sizes)",
}
MOST_AXES = max(AXES)
EVERY = frozenset(AXES)
TOKENS = "token ids"


@dataclass(frozen=True)
class Takes:
    """Which rows a network or a method takes.

    ranks   numbers of axes of a sample
    floats  whether rows of numbers
    tokens  whether rows of token ids
    why     the reason why no others, in a sentence that goes on after "it"; empty: they do not fit
    """

    ranks: frozenset[int] = EVERY
    floats: bool = True
    tokens: bool = False
    why: str = ""

    def fits(self, world: World) -> bool:
        """Whether it takes the world's rows."""
        return len(world.inputs) in self.ranks and (self.tokens if world.tokens else self.floats)

    @property
    def words(self) -> str:
        """What it takes."""
        said = f"{TOKENS} (steps)" if not self.floats else named(self.ranks)
        return f"{said}, and {TOKENS}" if self.tokens and self.floats else said


ANYTHING = Takes(tokens=True)
ANY_NUMBERS = Takes()


def of_ranks(*ranks: int) -> Takes:
    """Rows of numbers with these numbers of axes."""
    return Takes(frozenset(ranks))


def named(ranks: Iterable[int]) -> str:
    """Kinds of rows in words."""
    known = sorted(ranks)
    return "numbers of any shape" if frozenset(known) == EVERY else " or ".join(AXES[rank] for rank in known)


def described(world: World) -> str:
    """What the rows of a world are, in words: images (channels, height, width)."""
    return f"{TOKENS}, world.dtype: int64" if world.tokens else AXES[len(world.inputs)]
