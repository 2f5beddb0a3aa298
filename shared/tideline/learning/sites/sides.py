"""One dataset of a site, or arrays: its rows, and the labels of some of them."""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused, kind_of
from tideline.core.rows import MemoryRows, Rows
from tideline.learning.formats.kinds.shapes import MORE
from tideline.learning.formats.kinds.shapes import beyond as beyond_ids
from tideline.learning.formats.transforms import times
from tideline.learning.rows.dataset import WHITE, WHOLE_IDS, Dataset, DatasetRows, counted

NONE = -1  # of a row without a label
ANY = 1 << 20  # classes of a world whose number is not known yet
FORMS = "Give a Dataset with __len__ and __getitem__, arrays or tensors (x, y), or x alone"


class Side(Protocol):
    """n rows and their labels."""

    @property
    def rows(self) -> Rows: ...
    def __len__(self) -> int: ...
    def labels(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of the rows of these numbers, -1 where there is none. Raises DataRefused for what is no class, by the row."""

    def refused(self, row: int, what: str, todo: str) -> DataRefused: ...


def side_of(given: object, world: World, name: str) -> Side:
    """What an owner gives, as a side. Raises DataRefused for what is neither, and for arrays that do not fit."""
    arrays = arrays_in(given)
    if arrays is not None:
        return ArraySide(*arrays, world, name)
    if not (hasattr(given, "__getitem__") and not isinstance(given, (str, bytes, dict))):
        if hasattr(given, "__iter__") and not isinstance(given, (str, bytes, dict)):
            counted(cast("Dataset", given), name)
        raise DataRefused(f"{name} is {kind_of(given)}", FORMS)
    return DatasetSide(cast("Dataset", given), world, name)


def arrays_in(given: object) -> tuple[object, object | None] | None:
    """Arrays (x, y), y None where x is given alone; None for what is no array."""
    if isinstance(given, (np.ndarray, Tensor)):
        return given, None
    if isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], (np.ndarray, Tensor)):
        return (given[0], given[1]) if isinstance(given, tuple) or labelled(given[0], given[1]) else None
    return None


def labelled(x: np.ndarray[Any, Any] | Tensor, y: object) -> bool:
    """Whether a list of two is rows and their labels, not two rows."""
    return isinstance(y, (np.ndarray, Tensor)) and x.ndim > 1 and y.ndim == 1 and len(x) == len(y)


class DatasetSide:
    """Rows that a dataset gives when it is asked."""

    def __init__(self, dataset: Dataset, world: World, name: str) -> None:
        self.rows, self.world, self.n = DatasetRows(dataset, world.inputs, name, world.vocabulary), world, counted(dataset, name)

    def __len__(self) -> int:
        return self.n

    def labels(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([checked(self, row, self.rows.read(row)[1], self.world) for row in wanted.tolist()], np.int64)

    def refused(self, row: int, what: str, todo: str) -> DataRefused:
        return self.rows.refused(row, what, todo)


class ArraySide:
    """Rows that are arrays or tensors: x (n, *inputs), y (n,)."""

    def __init__(self, x: object, y: object | None, world: World, name: str) -> None:
        self.name, self.world = name, world
        self.rows = MemoryRows(self.numbers(x))
        self.y = None if y is None else self.whole(y)
        if self.y is not None and len(self.y) != len(self.rows):
            what = f"{name} has {len(self.rows)} rows x and {len(self.y)} labels y"
            raise DataRefused(what, "Give a label for each row; -1 stands for none")

    def __len__(self) -> int:
        return len(self.rows)

    def numbers(self, given: object) -> Tensor:
        """x as networks take it. Raises DataRefused for another shape, and for what is no finite number."""
        x = torch.from_numpy(np.ascontiguousarray(given)) if is_numbers(given) else given
        if not isinstance(x, Tensor) or x.is_complex():
            raise DataRefused(f"{self.name}: x is no array of numbers", "Give x as an array or a tensor of numbers")
        if not x.dim() or not len(x):
            raise DataRefused(f"{self.name} has no rows", "Give it one at least")
        inputs = self.world.inputs
        if tuple(x.shape[1:]) != inputs:
            what = f"row 0 of {self.name}: x is {times(tuple(x.shape[1:]))}; the world expects {times(inputs)}"
            raise DataRefused(what, "Give rows of the world's inputs, or ask for another world", row=0)
        if self.world.tokens:
            return self.ids(x.detach().cpu())
        white = WHITE if x.dtype == torch.uint8 and len(inputs) == 3 else 1.0
        x = x.detach().cpu().float() / white
        finite = torch.isfinite(x).flatten(1).all(1)
        if not bool(finite.all()):
            row = int((~finite).nonzero()[0])
            raise self.refused(row, "x holds NaN or infinity", "Remove or fill such rows")
        return x

    def ids(self, x: Tensor) -> Tensor:
        """Token ids, int64. Raises DataRefused for what is none, with the row."""
        if x.is_floating_point() or x.dtype is torch.bool:
            what = f"{self.name}: x is {str(x.dtype).removeprefix('torch.')}; the world expects token ids"
            raise DataRefused(what, WHOLE_IDS)
        x = x.long()
        bad = ((x < 0) | (x >= self.world.vocabulary)).flatten(1).any(1)
        if bool(bad.any()):
            row = int(bad.nonzero()[0])
            raise self.refused(row, beyond_ids(x[row], self.world.vocabulary), MORE)
        return x

    def whole(self, given: object) -> NDArray[np.float64]:
        """y (n,). Raises DataRefused for what is no list of numbers."""
        try:
            y = np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given)
        except ValueError:
            y = np.empty((0, 0))
        if y.ndim != 1 or y.dtype.kind not in "biuf":
            raise DataRefused(f"{self.name}: y is no list of whole numbers", "Give y of shape (n,): a class for each row")
        return y.astype(np.float64)

    def labels(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.y is None:
            return np.full(len(wanted), NONE, np.int64)
        y = self.y[wanted]
        odd = y != np.floor(y)
        if odd.any():
            raise self.refused(int(wanted[odd][0]), "the label is no whole number", "Give classes as whole numbers from 0")
        bad = (y < NONE) | (y >= self.world.classes)
        if bad.any():
            raise beyond(self, int(wanted[bad][0]), self.world)
        return y.astype(np.int64)

    def refused(self, row: int, what: str, todo: str) -> DataRefused:
        return DataRefused(f"row {row} of {self.name}: {what}", todo, row=row)


def is_numbers(given: object) -> bool:
    return isinstance(given, np.ndarray) and given.dtype.kind in "biuf"


def checked(side: Side, row: int, y: int | None, world: World) -> int:
    """A label; -1 for none. Raises DataRefused for what is no class of the world: it says the row, never the label."""
    if y is None or y == NONE:
        return NONE
    if not 0 <= y < world.classes:
        raise beyond(side, row, world)
    return y


def beyond(side: Side, row: int, world: World) -> DataRefused:
    if world.classes >= ANY:
        return side.refused(row, "the label is no class: below -1, or far too large", "Number the classes from 0; -1 is no label")
    what = f"the label is none of the classes 0 to {world.classes - 1}"
    return side.refused(row, what, "Number the classes from 0, or ask for a world with more classes")
