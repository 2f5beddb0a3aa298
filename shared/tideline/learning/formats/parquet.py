"""Domains that are `.parquet` files: columns of numbers. Read twice, never whole. Needs pyarrow (`tideline[parquet]`)."""

from __future__ import annotations

import functools
import math
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import DataRefused
from tideline.core.run import Role, World
from tideline.learning.formats import tables
from tideline.learning.formats.classes import UNKNOWN
from tideline.learning.formats.holdings import Rows
from tideline.learning.formats.surveys import Piece, Place, Survey, at, readable
from tideline.learning.formats.tables import Columns, Marks

if TYPE_CHECKING:
    from pathlib import Path

    from pyarrow import Array, RecordBatch
    from pyarrow.parquet import ParquetFile

ROWS = 1024  # that are taken together
# pyarrow's own errors are among them: ArrowInvalid is a ValueError, and so on.
DAMAGE = (OSError, ValueError, TypeError, LookupError, NotImplementedError, RuntimeError, MemoryError, ArithmeticError)
AS = (DAMAGE, "a .parquet file", "Write the file again; if it is whole, the machine may lack memory")
Cell = str | float | bool | None


def survey(place: Place, world: World, role: Role) -> Survey:
    with at(place.path), readable(place.path, *AS):
        columns = columns_of(place)
        tables.check_table(place, world, columns)
        marks = mark(place, columns)
        sides = tables.place_labels(place, columns, marks, role)
    return Survey(place, sides, lambda: pieces(place, columns), marks.name)


def opened(path: Path) -> ParquetFile:
    """The file, its footer read. Raises DataRefused if pyarrow is not installed."""
    try:
        import pyarrow.parquet
    except ImportError:
        todo = "Install it: pip install 'tideline[parquet]'; or save the table as .csv or .npz"
        raise DataRefused("Parquet files need the package pyarrow", todo) from None
    return pyarrow.parquet.ParquetFile(path)


def columns_of(place: Place) -> Columns:
    """What each column is. Raises DataRefused for features that are not numbers."""
    with readable(place.path, *AS), opened(place.path) as file:
        schema = file.schema_arrow
    import pyarrow.types as kinds

    columns = tables.choose([str(name) for name in schema.names], place.transform)
    for at_column, name in zip(columns.places, columns.features, strict=True):
        kind = schema.field(name).type
        if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
            todo = "Give words numbers, or leave the column out: drop in transforms.toml"
            raise DataRefused(f"column {at_column} holds no numbers", todo, column=name[:40], kind=str(kind)[:40])
    return columns


def batches(place: Place, names: tuple[str, ...]) -> Iterator[tuple[int, RecordBatch]]:
    """Some rows of some columns at a time, with the number of the first row."""
    start = 0
    with readable(place.path, *AS), opened(place.path) as file:
        for batch in file.iter_batches(batch_size=ROWS, columns=list(names), use_threads=False):
            yield start, batch
            start += batch.num_rows


def mark(place: Place, columns: Columns) -> Marks:
    """The first pass: read each row's label and its side of the split."""
    codes, held = array("q"), bytearray()
    number = functools.lru_cache(maxsize=ROWS)(place.classes.number)
    wanted = tuple(name for name in (columns.label, columns.held_out) if name is not None)
    n = count(place)
    for start, batch in batches(place, wanted) if wanted else ():
        if columns.label is not None:
            codes.extend(number(word(value)) for value in cells_of(batch.column(columns.label)))
        if columns.held_out is not None:
            cells = enumerate(cells_of(batch.column(columns.held_out)), start)
            held.extend(tables.held_word(word(cell), f"row {i}", columns.held_out) for i, cell in cells)
    codes = codes if columns.label is not None else array("q", [UNKNOWN]) * n
    return Marks(codes, held or bytearray(n), lambda row: f"row {row}")


def labels(place: Place) -> Iterator[str] | None:
    """Each row's label as text; None if the table has no labels."""
    label = columns_of(place).label
    return None if label is None else words(place, label)


def words(place: Place, name: str) -> Iterator[str]:
    with readable(place.path, *AS):
        for _, batch in batches(place, (name,)):
            yield from map(word, cells_of(batch.column(name)))


def count(place: Place) -> int:
    with readable(place.path, *AS), opened(place.path) as file:
        return int(file.metadata.num_rows)


def write(place: Place, into: Path, rows: Rows, words: Sequence[str], bare: Rows) -> str:
    """Write some rows of the table into a file of its own, as `csv_files.write` does; returns the name of the split's column."""
    import pyarrow
    import pyarrow.parquet

    columns = columns_of(place)
    with readable(place.path, *AS), opened(place.path) as file:
        column = tables.split_column(columns, [str(name) for name in file.schema_arrow.names])
        table = file.read(use_threads=False).take(rows)
        if columns.label is not None and bare.size:
            places = np.arange(len(rows))
            known = table.column(columns.label).take(pyarrow.array(places, mask=np.isin(places, bare)))
            table = table.set_column(table.schema.get_field_index(columns.label), columns.label, known)
    marks = pyarrow.array(list(words))
    at_column = table.schema.get_field_index(column)
    table = table.append_column(column, marks) if at_column < 0 else table.set_column(at_column, column, marks)
    pyarrow.parquet.write_table(table, into)
    return column


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


def pieces(place: Place, columns: Columns) -> Iterator[Piece]:
    """The second pass: the features, some rows at a time."""
    with at(place.path), readable(place.path, *AS):
        for start, batch in batches(place, columns.features):
            named = zip(columns.places, columns.features, strict=True)
            filled = [numbers(batch.column(name), at_column, name, start) for at_column, name in named]
            yield Piece(start, np.stack(filled, axis=1), place.transform)


def numbers(values: Array, at_column: int, name: str, start: int) -> NDArray[np.float64]:
    """One column's numbers (k,). Raises DataRefused with row and column of a value that is missing or not finite."""
    if values.null_count:
        x = np.array([math.nan if value is None else float(value) for value in values.to_pylist()], np.float64)
    else:
        x = values.to_numpy(zero_copy_only=False).astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(x))
    if bad.size:
        raise tables.no_number(f"row {start + int(bad[0])}", at_column, name, word(values[int(bad[0])].as_py()))
    return x
