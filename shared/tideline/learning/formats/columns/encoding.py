"""Cells of declared columns as the inputs of a world: numbers, places of categories, and what stands for a missing cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import DataRefused
from tideline.core.tables.columns import Coding, Column, Missing, composed

MISSING: Final = frozenset(("", "na", "n/a", "nan", "null"))  # in small letters: a cell of these is missing
TRUTH: Final = {"true": "1", "false": "0"}
WHOLE = re.compile(r"[+-]?\d{1,18}\.0*", re.ASCII)  # as a table of floats has whole numbers
COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
UNSEEN, GAP = -1, -2  # for a category that is not declared, and a missing cell where none may be
FILL = "Fill or remove such rows, or let the world have a rule: missing: median, or indicator"
Numbers = NDArray[np.float64]


def is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


class Vocabulary:
    """The places of a column's categories by their words."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.code = lru_cache(maxsize=1 << 16)(self._code)

    @cached_property
    def listed(self) -> Mapping[str, int]:
        return {composed(word): i for i, word in enumerate(self.column.categories)}

    def _code(self, cell: str) -> int:
        """The place of a cell; UNSEEN or GAP where it has none."""
        column = self.column
        found = next((self.listed[form] for form in forms(composed(cell)) if form in self.listed), None)
        if found is not None:
            return found
        if is_missing(cell):
            return GAP if column.missing is Missing.REFUSE else column.places - 1
        return len(column.categories) if column.other else UNSEEN


def forms(word: str) -> Iterator[str]:
    """A word, and what else it may be written as: 1 for 1.0, and true or 1 for True."""
    yield word
    if WHOLE.fullmatch(word):
        yield str(int(word.partition(".")[0]))
    elif (small := word.lower()) in TRUTH:
        yield small
        yield TRUTH[small]


def values_of(column: Column, cells: Sequence[str], known: Vocabulary, name: Callable[[int], str], place: int) -> Numbers:
    """Numbers, NaN where they are missing, or places of categories: (k,). name(i): the row of the i-th cell.

    Raises DataRefused for the first cell that is neither.
    """
    if column.number:
        return numbers_of(column, cells, name, place)
    codes = np.array([known.code(cell) for cell in cells], np.float64)
    if (codes < 0).any():
        i = int(np.flatnonzero(codes < 0)[0])
        raise no_category(name(i), column, cells[i])
    return codes


def numbers_of(column: Column, cells: Sequence[str], name: Callable[[int], str], place: int) -> Numbers:
    """(k,), NaN where the world has a rule for missing cells."""
    try:
        x = np.array(cells, np.float64)
    except ValueError:
        x = np.array([number_in(cell) for cell in cells], np.float64)
    gaps = [] if column.missing is Missing.REFUSE else [i for i in np.flatnonzero(np.isnan(x)).tolist() if is_missing(cells[i])]
    bad = np.setdiff1d(np.flatnonzero(~np.isfinite(x)), gaps)
    if bad.size:
        raise no_number(name(int(bad[0])), place, column.name, cells[int(bad[0])])
    return x


def number_in(cell: str) -> float:
    """A cell's number; NaN where it is none."""
    try:
        return float(np.array([cell], np.float64)[0])
    except ValueError:
        return np.nan


def no_number(name: str, place: int, column: str, cell: str) -> DataRefused:
    """The refusal of one cell. Its contents and its column's name are for the owner only, in `context`."""
    context = {"column": column[:40], "cell": cell[:40]}
    if is_missing(cell):
        return DataRefused(f"{name}, column {place}: the value is missing", f"{FILL}, or leave the column out", **context)
    if COMMA.fullmatch(cell.strip()):
        todo = "Write numbers with a point, 1.5, and save the table again"
        return DataRefused(f"{name}, column {place}: not a finite number; it has a decimal comma", todo, **context)
    if cell.strip().lower() in TRUTH:
        todo = "Write 0 and 1, or let the world declare the column with its categories: [false, true] in quotes"
        return DataRefused(f"{name}, column {place}: not a finite number but true or false", todo, **context)
    todo = (
        "Give words numbers, let the world declare their categories (columns), or leave the column out: drop in transforms.toml"
    )
    return DataRefused(f"{name}, column {place}: not a finite number", todo, **context)


def no_category(name: str, column: Column, cell: str) -> DataRefused:
    """The refusal of a cell that is none of the categories. The world's name of the column is no secret; the cell is."""
    if is_missing(cell):
        return DataRefused(f"{name}, column {column.name}: the value is missing", FILL, cell=cell[:40])
    what = f"{name}, column {column.name}: the category is none of those that the world declares"
    todo = "Correct the cell, or let the world list this category, or have other: true for those that it does not list"
    return DataRefused(what, todo, cell=cell[:40])


def encoded(columns: Sequence[Column], values: Sequence[Numbers]) -> Numbers:
    """Values of each column (k,) as inputs (k, width), NaN where a median is to come."""
    parts = [part for column, own in zip(columns, values, strict=True) for part in inputs_of(column, own)]
    return np.stack(parts, axis=1) if parts else np.empty((0, 0))


def inputs_of(column: Column, values: Numbers) -> Iterator[Numbers]:
    """The inputs of one column."""
    if column.number and column.missing is Missing.INDICATOR:
        gaps = np.isnan(values)
        yield np.where(gaps, 0.0, values)
        yield gaps.astype(np.float64)
    elif column.number or column.coding is Coding.CODES:
        yield values
    else:
        yield from (values[:, None] == np.arange(column.places)).astype(np.float64).T
