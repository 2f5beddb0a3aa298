"""Domains that are `.parquet` files: columns of numbers. Read twice, never kept whole. Needs pyarrow (`tideline[parquet]`)."""

from __future__ import annotations

import functools
import math
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import DataRefused
from tideline.core.run import Role, World
from tideline.learning.formats.classes import UNKNOWN
from tideline.learning.formats.columns import Columns, Marks, check_table, choose, held_word, no_number, place_labels, unused
from tideline.learning.formats.holdings import Rows
from tideline.learning.formats.surveys import Piece, Place, Survey, at, readable

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 1024  # that are taken together
# pyarrow's own errors are among them: ArrowInvalid is a ValueError, and so on.
DAMAGE = (OSError, ValueError, TypeError, LookupError, NotImplementedError, RuntimeError, MemoryError, ArithmeticError)
AS = (DAMAGE, "a .parquet file", "Write the file again; if it is whole, the machine may lack memory")


def survey(place: Place, world: World, role: Role) -> Survey:
    """One domain's split and labels. Of a target's labels only the held-out ones are judged, and only they stay."""
    with at(place.path), readable(place.path, *AS):
        columns = header(place)
        check_table(place, world, columns)
        marks = mark(place, columns)
        sides = place_labels(place, columns, marks, role)
    return Survey(path=place.path, transform=place.transform, sides=sides, pieces=lambda: pieces(place, columns), name=marks.name)


def opened(path: Path) -> Any:
    """The file, its footer read. Raises DataRefused where pyarrow is not installed."""
    try:
        import pyarrow.parquet
    except ImportError:
        todo = "Install it: pip install 'tideline[parquet]'; or save the table as .csv or .npz"
        raise DataRefused("Parquet files need the package pyarrow", todo) from None
    return pyarrow.parquet.ParquetFile(path)


def header(place: Place) -> Columns:
    """What each column is. Raises DataRefused for features that are no numbers."""
    import pyarrow.types as kinds

    with readable(place.path, *AS), opened(place.path) as file:
        schema = file.schema_arrow
    names = [str(name) for name in schema.names]
    columns = choose(names, place.transform)
    for at_column, name in zip(columns.places, columns.features, strict=True):
        kind = schema.field(name).type
        if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
            todo = "Give words numbers, or leave the column out: drop in transforms.toml"
            raise DataRefused(f"column {at_column} holds no numbers", todo, column=name[:40], kind=str(kind)[:40])
    return columns


def batches(place: Place, names: tuple[str, ...]) -> Iterator[tuple[int, Any]]:
    """Rows of some columns, each time with the number of the first."""
    start = 0
    with readable(place.path, *AS), opened(place.path) as file:
        for batch in file.iter_batches(batch_size=ROWS, columns=list(names), use_threads=False):
            yield start, batch
            start += batch.num_rows


def mark(place: Place, columns: Columns) -> Marks:
    """The first pass: each row's label, and its side of the split."""
    codes, held = array("q"), bytearray()
    number = functools.lru_cache(maxsize=ROWS)(place.classes.number)
    wanted = tuple(name for name in (columns.label, columns.held_out) if name is not None)
    with opened(place.path) as file:
        n = file.metadata.num_rows
    for start, batch in batches(place, wanted) if wanted else ():
        if columns.label is not None:
            codes.extend(number(word(value)) for value in batch.column(columns.label).to_pylist())
        if columns.held_out is not None:
            cells = enumerate(batch.column(columns.held_out).to_pylist(), start)
            held.extend(held_word(word(v), functools.partial(name_of, i), columns.held_out) for i, v in cells)
    return Marks(codes if columns.label is not None else array("q", [UNKNOWN]) * n, held or bytearray(n), name_of)


def labels(place: Place) -> Iterator[str] | None:
    """Each row's label as a text; None where there is no column of labels."""
    label = header(place).label
    return None if label is None else words(place, label)


def count(place: Place) -> int:
    """How many samples there are."""
    with readable(place.path, *AS), opened(place.path) as file:
        return int(file.metadata.num_rows)


def held_out(place: Place) -> str:
    """The column that says which rows are held out, or a name for a new one."""
    columns = header(place)
    with readable(place.path, *AS), opened(place.path) as file:
        return columns.held_out or unused([str(name) for name in file.schema_arrow.names])


def write(place: Place, into: Path, rows: Rows, words: Sequence[str], bare: Rows) -> None:
    """Write some rows of the table into a file of its own.

    Each has its word in the column of the split. Those at the places `bare` have no label.
    """
    import pyarrow
    import pyarrow.parquet

    label, column = header(place).label, held_out(place)
    with readable(place.path, *AS), opened(place.path) as file:
        table = file.read(use_threads=False).take(rows)
        if label is not None and bare.size:
            places = np.arange(len(rows))
            known = table.column(label).take(pyarrow.array(places, mask=np.isin(places, bare)))
            table = table.set_column(table.schema.get_field_index(label), label, known)
    marks = pyarrow.array(list(words))
    at_column = table.schema.get_field_index(column)
    made = table.append_column(column, marks) if at_column < 0 else table.set_column(at_column, column, marks)
    pyarrow.parquet.write_table(made, into)


def words(place: Place, name: str) -> Iterator[str]:
    """A column's values as texts."""
    with readable(place.path, *AS):
        for _, batch in batches(place, (name,)):
            yield from map(word, batch.column(name).to_pylist())


def name_of(row: int) -> str:
    """What a row is called."""
    return f"row {row}"


def word(value: Any) -> str:
    """A label or mark as a text, the way a .csv would hold it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def pieces(place: Place, columns: Columns) -> Iterator[Piece]:
    """The second pass: the features, some rows at a time."""
    with at(place.path), readable(place.path, *AS):
        for start, batch in batches(place, columns.features):
            named = zip(columns.places, columns.features, strict=True)
            filled = [column(batch.column(name), at_column, name, start) for at_column, name in named]
            yield Piece(start, np.stack(filled, axis=1), place.transform)


def column(values: Any, at_column: int, name: str, start: int) -> NDArray[np.float64]:
    """One column's numbers (k,). Raises DataRefused with row and column of what is missing or not finite."""
    whole = lacking(values) if values.null_count else values.to_numpy(zero_copy_only=False)
    x: NDArray[np.float64] = whole.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(x))
    if bad.size:
        raise no_number(name_of(start + int(bad[0])), at_column, name, word(values[int(bad[0])].as_py()))
    return x


def lacking(values: Any) -> NDArray[np.float64]:
    """A column with missing values, which become NaN."""
    return np.array([math.nan if value is None else float(value) for value in values.to_pylist()], np.float64)
