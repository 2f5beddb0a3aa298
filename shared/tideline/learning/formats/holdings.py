"""What a site holds: its training rows, its held-out rows, and the rule that splits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.core.step import Data, View

SHARE, VALIDATION = 0.2, 0.1  # of a domain's rows, to test and to select by, where its owner says nothing else
Rows = NDArray[np.int64]
Labels = NDArray[np.int64]


def none() -> Rows:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Sides:
    """Which rows of a domain are for what, each sorted; and the labels (int64) of the rows beside them, or None.

    train     for training: those with labels, or all if none has one or labels are dropped
    held      held out: those that a label can score, or all if none has one
    bare      for training, without labels beside labelled ones
    unscored  chosen to be held out, without labels beside labelled ones: they are left out, for nothing can score them
    chosen    those to train on that the data name for validation; None: they name none
    """

    train: Rows
    held: Rows
    y_train: Labels | None = None
    y_held: Labels | None = None
    bare: Rows = field(default_factory=none)
    unscored: Rows = field(default_factory=none)
    chosen: Rows | None = None

    def validation(self, share: float) -> Rows:
        """The places in `train` of the rows to select by: those that the data name, or a share of all rows."""
        if self.chosen is None:
            return carve(len(self.train), len(self), share)
        return np.flatnonzero(np.isin(self.train, self.chosen)).astype(np.int64)

    @property
    def filled(self) -> tuple[Rows, Rows, Rows]:
        """The rows whose samples are read."""
        return self.train, self.held, self.bare

    def __len__(self) -> int:
        return sum(map(len, (*self.filled, self.unscored)))


@dataclass(frozen=True)
class Holdings:
    """The data of one site, split. A target's `train.y` and `train.bare` are None, and every `held_out.bare` is.

    validation: which rows of `train` are to select by, (v,) int64, sorted; None: as `carve` has it. uncached: how many
    samples are decoded at each use, as there was no room to write them down.
    """

    train: Data
    held_out: Data
    validation: Tensor | None = None
    uncached: int = 0

    def view(self, view: View, role: Role) -> Data:
        """The rows that a step of this view may see; a target's training and validation rows come without labels."""
        if view is View.HELD_OUT:
            return self.held_out
        data = self.train if view is View.TRAIN else self.parted[view]
        return replace(data, y=None) if role is Role.TARGET else data

    @cached_property
    def parted(self) -> Mapping[View, Data]:
        """Views of the training rows: without those for validation, and these. Rows without labels are to train on."""
        chosen, n = self.validation, len(self.train)
        if chosen is None:
            chosen = torch.from_numpy(carve(n, n + len(self.held_out)))
        others = torch.ones(n, dtype=torch.bool)
        others[chosen] = False
        return {
            View.VALIDATION: taken(replace(self.train, bare=None), chosen),
            View.LEARN: taken(self.train, others.nonzero().flatten()),
        }


def taken(data: Data, rows: Tensor) -> Data:
    """Some of the rows (r,) int64; those without labels beside labelled ones stay."""
    units = None if data.units is None else data.units[rows]
    y = None if data.y is None else data.y[rows]
    return replace(data, x=data.x.at(rows), y=y, domain=data.domain[rows], units=units)


def parted(rows: tuple[Rows, Rows], y_train: Labels | None, y_held: Labels | None) -> Sides:
    """(train, held) with their labels; a row whose label is below 0 has none. Without `y_train` all rows stay together."""
    train, held = rows
    if y_train is None or y_held is None:
        return Sides(train, held, None, y_held)
    has, scored = y_train >= 0, y_held >= 0
    return Sides(
        train=train[has], held=held[scored], y_train=y_train[has], y_held=y_held[scored], bare=train[~has], unscored=held[~scored]
    )


def carve(train: int, rows: int, share: float = VALIDATION, seed: int = 1) -> Rows:
    """Which of so many training rows are for validation, sorted: about `share` of all rows of a domain, held-out ones among them.

    At least one, and never the last training row. Depends on the numbers alone, so a site selects by the same rows every time.
    """
    most = max(train - 1, 0)
    chosen = min(max(round(rows * share), 1), most) if share else 0
    return np.sort(legacy(seed).permutation(train)[:chosen].astype(np.int64))


def split_rows(n: int, seed: int = 0, share: float = SHARE) -> tuple[Rows, Rows]:
    """Row numbers (train, held out) of n rows, both sorted; about `share` of them, at least one, are held out.

    Depends on n, seed and share alone, so a site holds out the same rows every time. Raises DataRefused for fewer than two.
    """
    if n < 2:
        raise DataRefused(f"there are {n} rows, which cannot be split in two", "Give every domain at least 2 rows")
    held = min(max(round(n * share), 1), n - 1)
    order = legacy(seed).permutation(n).astype(np.int64)
    return np.sort(order[held:]), np.sort(order[:held])


def listed(n: int, given: NDArray[np.generic], name: str, what: str) -> Rows:
    """Row numbers that data list, sorted. Raises DataRefused unless they are (m,) distinct whole numbers in [0, n)."""
    if given.ndim != 1 or given.dtype.kind not in "iu":
        said = f"{name} is {given.dtype.name} of shape {given.shape}; it should be a list of whole numbers"
        raise DataRefused(said, "Save row numbers, counted from 0")
    rows = given.tolist()
    bad = [row for row in rows if not 0 <= row < n]
    if bad:
        raise DataRefused(f"{name} names row {bad[0]}; the rows are 0 to {n - 1}", "Count rows from 0")
    found = np.unique(np.array(rows, np.int64))
    if found.size < len(rows):
        raise DataRefused(f"{name} names a row twice", f"Name every {what} once")
    return found


def split_beside(n: int, held: Rows | None, chosen: Rows | None, share: float = SHARE) -> tuple[Rows, Rows]:
    """Row numbers (train, held out) where some may be named: those held out, and those of training that are for validation.

    If none is named to be held out, a share is, of the rows that are not for validation. Raises DataRefused where a row is for
    both, and for fewer than two rows to draw from.
    """
    if held is None and chosen is None:
        return split_rows(n, share=share)
    mine = np.empty(0, np.int64) if chosen is None else chosen
    every = np.arange(n, dtype=np.int64)
    if held is not None:
        if both := np.intersect1d(held, mine).tolist():
            what = f"row {both[0]} is named to be held out and for validation"
            raise DataRefused(what, "Name each row for one of the two")
        return np.setdiff1d(every, held), held
    others = np.setdiff1d(every, mine)
    if len(others) < 2:
        what = f"all rows but {len(others)} are named for validation, and none to be held out"
        raise DataRefused(what, "Name fewer rows for validation, or name the held-out rows, too")
    train, out = split_rows(len(others), share=share)
    return np.union1d(others[train], mine), others[out]


def split_marked(marked: NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """Row numbers (train, held out) where the marked rows (n,), which may be all or none, are held out."""
    return np.flatnonzero(~marked).astype(np.int64), np.flatnonzero(marked).astype(np.int64)


def legacy(seed: int) -> np.random.RandomState:
    """NumPy's frozen generator: newer ones may change their streams with a release, and the split with them."""
    return np.random.RandomState(seed)
