"""Columns of a .parquet file as pandas and pyarrow write them: which types become numbers or categories, and how."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tideline.core.errors import DataRefused
from tideline.core.tables.columns import Column, Missing
from tideline.learning.formats.columns import encoding
from tideline.learning.formats.columns.encoding import Numbers, Vocabulary

if TYPE_CHECKING:
    from pyarrow import Array, DataType

Cell = object
DECLARE = "let the world declare its categories (columns), or leave it out: drop in transforms.toml"


def check_type(kind: DataType, place: int, name: str, declared: Column | None) -> None:
    """Raises DataRefused for a type that is no number, and no category that the world declares."""
    import pyarrow.types as kinds

    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    context = {"column": name[:40], "kind": str(kind)[:40]}
    if kinds.is_nested(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind):
        todo = "Make a column of numbers of each part, or leave the column out: drop in transforms.toml"
        raise DataRefused(f"column {place} holds no numbers", todo, **context)
    if declared is not None and not declared.number:
        return
    if kinds.is_temporal(kind):
        todo = "Turn dates into numbers, such as days since a date, or leave the column out: drop in transforms.toml"
        raise DataRefused(f"column {place} holds no numbers but dates or times", todo, **context)
    if kinds.is_boolean(kind) and declared is None:
        todo = f"Write 0 and 1, or {DECLARE}"
        raise DataRefused(f"column {place} holds no numbers but true and false", todo, **context)
    if declared is None and not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)):
        raise DataRefused(f"column {place} holds no numbers", f"Give words numbers, {DECLARE}", **context)


def values_of(cells: Array, column: Column, known: Vocabulary | None, start: int, place: int) -> Numbers:
    """One column's values (k,): numbers, NaN where they may be missing, or places of categories.

    Raises DataRefused with row and column of a cell that is neither.
    """
    import pyarrow.types as kinds

    cells = cells.dictionary_decode() if kinds.is_dictionary(cells.type) else cells
    if column.number and not is_text(cells):
        x = floats(cells)
        gaps = np.zeros(len(x), bool) if column.missing is Missing.REFUSE else np.isnan(x)
        if (bad := np.flatnonzero(~np.isfinite(x) & ~gaps)).size:
            at = int(bad[0])
            raise encoding.no_number(f"row {start + at}", place, column.name, word(cells[at].as_py()))
        return x
    words = [category_word(cell) for cell in cells_of(cells)]
    return encoding.values_of(column, words, known or Vocabulary(column), lambda i: f"row {start + i}", place)


def is_text(cells: Array) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_string(cells.type) or kinds.is_large_string(cells.type))


def floats(cells: Array) -> Numbers:
    """Numbers (k,), truth values among them; NaN for nulls."""
    import pyarrow

    if pyarrow.types.is_decimal(cells.type) or pyarrow.types.is_null(cells.type):
        cells = cells.cast(pyarrow.float64())
    if cells.null_count:
        return np.array([math.nan if value is None else float(value) for value in cells.to_pylist()], np.float64)
    x: Numbers = cells.to_numpy(zero_copy_only=False).astype(np.float64)
    return x


def cells_of(values: Array) -> list[Cell]:
    """A column's cells. Raises ValueError for times finer than a microsecond: Python has none, others need a library more."""
    import pyarrow

    coarser = {"time64[ns]": pyarrow.time64("us"), "duration[ns]": pyarrow.duration("us")}
    kind = values.type
    if pyarrow.types.is_timestamp(kind) and kind.unit == "ns":
        coarser[str(kind)] = pyarrow.timestamp("us", kind.tz)
    found: list[Cell] = values.cast(coarser.get(str(kind), kind)).to_pylist()
    return found


def word(value: Cell) -> str:
    """A cell as text, as a .csv would hold it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def category_word(value: Cell) -> str:
    """A cell as the word of a category: truth values as true and false."""
    return str(value).lower() if isinstance(value, bool) else word(value)
