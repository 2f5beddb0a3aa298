"""Rows of a torch `Dataset`, or of any object that has a length and gives x, or (x, y), for a number.

x is a tensor or an array of the world's inputs, or an image as Pillow opens it. Bytes (uint8) of three axes
are an image whose white is 255; other numbers are taken as they are. Images of Pillow are turned and resized like files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Generator, Tensor

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.rows import Rows
from tideline.core.step import Data
from tideline.learning.formats.images import pixels
from tideline.learning.formats.kinds.shapes import MORE, beyond
from tideline.learning.formats.surveys import SAID
from tideline.learning.formats.transforms import prepare, times
from tideline.learning.rows import scratch

WHITE = 255.0
WHOLE_IDS = "Give whole numbers (int64): token ids from 0"
NAME = "the site's dataset"
Sample: TypeAlias = tuple[Tensor, int | None]


class Dataset(Protocol):
    """What is read: n samples by number."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> object: ...


@dataclass(frozen=True, eq=False)
class DatasetRows(Rows):
    """The samples x of a dataset, read when they are asked for. A row that it cannot give is DataRefused, by its number."""

    dataset: Dataset
    sample: tuple[int, ...]
    name: str = NAME
    vocabulary: int = 0  # of token ids; 0: x are numbers
    lock: Lock = field(default_factory=Lock, repr=False)

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sample

    @property
    def dtype(self) -> torch.dtype:
        return torch.int64 if self.vocabulary else torch.float32

    @property
    def plain(self) -> bool:
        """A dataset may give labels, or hold them."""
        return False

    def batch(self, indices: Tensor, rng: Generator | None = None) -> Tensor:
        out = torch.empty((len(indices), *self.sample), dtype=self.dtype)
        for place, row in enumerate(indices.tolist()):
            if not 0 <= row < len(self):
                raise IndexError(f"row {row} of {len(self)}")
            out[place] = self.checked(row, self.given(row)[0])
        return out

    def read(self, row: int) -> Sample:
        """One sample, checked: x (*shape) float32, or int64 of token ids, and its label if it comes with one."""
        x, y = self.given(row)
        return self.checked(row, x), None if y is None else self.label(row, y)

    def given(self, row: int) -> tuple[object, object]:
        """What the dataset gives for a row: x, and its label or None. Raises DataRefused for what it cannot give."""
        try:
            with self.lock:  # nobody promised that several threads may ask it
                given = self.dataset[row]
        except Exception as error:
            # Its words may hold data: they are for the owner only.
            what, said = f"reading it raised {type(error).__name__}", str(error)[:SAID]
            raise self.refused(row, what, "Let the dataset give every row from 0 to its length - 1", said=said) from error
        several = tuple(given) if isinstance(given, tuple | list) else (given, None)
        if len(several) != 2:
            raise self.refused(row, f"{len(several)} things, not x or (x, y)", "Let the dataset give x, or x and its label")
        return several[0], several[1]

    def checked(self, row: int, given: object) -> Tensor:
        """x as the world takes it. Raises DataRefused for another shape, or what is no finite number."""
        x = self.numbers(row, given)
        if tuple(x.shape) != self.sample:
            what = f"x is {times(tuple(x.shape))}; the world expects {times(self.sample)}"
            raise self.refused(row, what, "Let the dataset give rows of the world's inputs, or ask for another world")
        if self.vocabulary and (wrong := beyond(x, self.vocabulary)):
            raise self.refused(row, wrong, MORE)
        if not bool(torch.isfinite(x).all()):
            raise self.refused(row, "x holds NaN or infinity", "Remove or fill such rows")
        return x

    def numbers(self, row: int, given: object) -> Tensor:
        image = None if self.vocabulary else pixels(given)
        if image is not None:
            try:
                return prepare(image[None], self.sample)[0]
            except DataRefused as error:
                raise self.refused(row, error.what, error.todo) from error
        if isinstance(given, np.ndarray) and given.dtype.kind in "biuf":
            given = torch.from_numpy(np.ascontiguousarray(given))
        if not isinstance(given, Tensor) or given.is_complex():
            what = f"x is of the type {type(given).__name__}"
            raise self.refused(row, what, "Let the dataset give a tensor, an array of numbers or a Pillow image")
        if self.vocabulary:
            if given.is_floating_point() or given.dtype is torch.bool:
                raise self.refused(row, f"x is {str(given.dtype).removeprefix('torch.')}, no token ids", WHOLE_IDS)
            return given.detach().cpu().long()
        x = given.detach().cpu().float()
        return x / WHITE if given.dtype == torch.uint8 and len(self.sample) == 3 else x

    def label(self, row: int, given: object) -> int:
        """A whole number. Raises DataRefused for anything else."""
        if isinstance(given, Tensor | np.ndarray | np.generic) and np.prod(given.shape) == 1:
            given = given.item()
        whole = isinstance(given, int) or (isinstance(given, float) and given.is_integer())
        if not whole:
            raise self.refused(row, "the label is no whole number", "Let the dataset give classes as whole numbers from 0")
        return int(given)  # type: ignore[call-overload,no-any-return]

    def refused(self, row: int, what: str, todo: str, **context: object) -> DataRefused:
        return DataRefused(f"row {row} of {self.name}: {what}", todo, row=row, **context)


def data_of(dataset: Dataset, world: World, *, labels: bool, name: str = NAME, held: int = scratch.HELD) -> Data:
    """A side of a site: the rows of a dataset, all read once here, so that each is known to be usable. Raises DataRefused.

    labels: as for training at a source, and for scoring. Without, as for training at a target, x alone is kept: it is poured
    into memory or, above `held` bytes, a scratch file, and neither the dataset nor a label is in what this gives.
    """
    rows = DatasetRows(dataset, world.inputs, name, world.vocabulary)
    n = counted(dataset, name)
    domain = torch.zeros(n, dtype=torch.int64)
    if not labels:
        return Data(scratch.poured(rows, held), None, domain, (name,))
    y = [checked_label(rows, row, world) for row in range(n)]
    return Data(rows, torch.tensor(y, dtype=torch.int64), domain, (name,))


def counted(dataset: Dataset, name: str) -> int:
    """Its length. Raises DataRefused for a stream, which has none, and for no rows."""
    try:
        n = len(dataset)
    except Exception as error:
        todo = "Give a dataset with __len__ and __getitem__; read a stream into one first"
        raise DataRefused(f"{name} has no length, so its rows cannot be asked for by number", todo) from error
    if not n:
        raise DataRefused(f"{name} has no rows", "Give it one at least")
    return n


def checked_label(rows: DatasetRows, row: int, world: World) -> int:
    """A row's label, its x being checked too.

    Raises DataRefused for no label, and for one that is no class of the world; it says the row, never the label.
    """
    _, y = rows.read(row)
    if y is None:
        raise rows.refused(row, "there is no label", "Let the dataset give (x, y), or make the site a target")
    if not 0 <= y < world.classes:
        what = f"the label is none of the classes 0 to {world.classes - 1}"
        raise rows.refused(row, what, "Number the classes from 0, or ask for a world with more classes")
    return y
