"""Domains that are `.parquet` files: numbers and categories. Read twice, never whole. Needs pyarrow (`tideline[parquet]`)."""

from __future__ import annotations

import functools
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.core.tables.columns import Column
from tideline.learning.formats import tables
from tideline.learning.formats.classes import UNKNOWN
from tideline.learning.formats.columns import parquet_types
from tideline.learning.formats.columns.encoding import encoded
from tideline.learning.formats.columns.parquet_types import category_word, cells_of, word
from tideline.learning.formats.columns.proposing import Block
from tideline.learning.formats.holdings import Rows
from tideline.learning.formats.surveys import Piece, Place, Survey, at, readable
from tideline.learning.formats.tables import Columns, Marks

if TYPE_CHECKING:
    from pathlib import Path

    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

ROWS = 1024  # that are taken together
# pyarrow's own errors are among them: ArrowInvalid is a ValueError, and so on.
DAMAGE = (OSError, ValueError, TypeError, LookupError, NotImplementedError, RuntimeError, MemoryError, ArithmeticError)
AS = (DAMAGE, "a .parquet file", "Write the file again; if it is whole, the machine may lack memory")


def survey(place: Place, world: World, role: Role) -> Survey:
    with at(place.path), readable(place.path, *AS):
        columns = columns_of(place, world.columns)
        tables.check_table(place, world, columns)
        marks = mark(place, columns)
        sides = tables.place_labels(place, columns, marks, role)
    of = tables.units_of(columns, marks)
    return Survey(place, sides, lambda: pieces(place, columns), marks.name, units=of)


def opened(path: Path) -> ParquetFile:
    """The file, its footer read. Raises DataRefused if pyarrow is not installed."""
    try:
        import pyarrow.parquet
    except ImportError:
        todo = "Install it: pip install 'tideline[parquet]'; or save the table as .csv or .npz"
        raise DataRefused("Parquet files need the package pyarrow", todo) from None
    return pyarrow.parquet.ParquetFile(path)


def columns_of(place: Place, declared: tuple[Column, ...] = ()) -> Columns:
    """What each column is. Raises DataRefused for features that are not numbers, unless the world declares their categories."""
    with readable(place.path, *AS), opened(place.path) as file:
        schema = file.schema_arrow
    columns = tables.choose([str(name) for name in schema.names], place.transform, declared)
    for i, (at_column, name) in enumerate(zip(columns.places, columns.features, strict=True)):
        parquet_types.check_type(schema.field(name).type, at_column, name, declared[i] if declared else None)
    return columns


def names_of(place: Place) -> list[str]:
    with readable(place.path, *AS), opened(place.path) as file:
        return [str(name) for name in file.schema_arrow.names]


def blocks(place: Place, names: list[str]) -> Iterator[Block]:
    """All cells as texts, some rows at a time."""
    with readable(place.path, *AS):
        for _, batch in batches(place, tuple(names)):
            yield [(name, list(map(category_word, cells_of(batch.column(name))))) for name in names]


def batches(place: Place, names: tuple[str, ...]) -> Iterator[tuple[int, RecordBatch]]:
    """Some rows of some columns at a time, with the number of the first row."""
    start = 0
    with readable(place.path, *AS), opened(place.path) as file:
        for batch in file.iter_batches(batch_size=ROWS, columns=list(names), use_threads=False):
            yield start, batch
            start += batch.num_rows


def mark(place: Place, columns: Columns) -> Marks:
    """The first pass: read each row's label and its side of the split."""
    codes, held, units = array("q"), bytearray(), list[str]()
    number = functools.lru_cache(maxsize=ROWS)(place.classes.number)
    wanted = tuple(name for name in (columns.label, columns.held_out, columns.unit) if name is not None)
    n = count(place)
    for start, batch in batches(place, wanted) if wanted else ():
        if columns.label is not None:
            codes.extend(number(word(value)) for value in cells_of(batch.column(columns.label)))
        if columns.held_out is not None:
            cells = enumerate(cells_of(batch.column(columns.held_out)), start)
            held.extend(tables.held_word(word(cell), f"row {i}", columns.held_out) for i, cell in cells)
        if columns.unit is not None:
            units.extend(sys.intern(category_word(cell) or "") for cell in cells_of(batch.column(columns.unit)))
    codes = codes if columns.label is not None else array("q", [UNKNOWN]) * n
    return Marks(codes, held or bytearray(n), lambda row: f"row {row}", units)


def labels(place: Place) -> Iterator[str] | None:
    """Each row's label as text; None if the table has no labels."""
    label = tables.choose(names_of(place), place.transform).label
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


def pieces(place: Place, columns: Columns) -> Iterator[Piece]:
    """The second pass: the features, some rows at a time."""
    named = list(zip(columns.places, columns.features, columns.declared or map(Column, columns.features), strict=True))
    with at(place.path), readable(place.path, *AS):
        for start, batch in batches(place, columns.features):
            values = [
                parquet_types.values_of(batch.column(name), column, columns.vocabularies.get(at_column), start, at_column)
                for at_column, name, column in named
            ]
            yield Piece(start, encoded([column for *_, column in named], values), place.transform, gaps=columns.gaps)
