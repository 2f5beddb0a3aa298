"""Domains that are `.csv` files: a line of names, then a line for each sample. Read twice, never whole.

Both by pyarrow's reader where it is installed and surely reads the same (`columns.fast_csv`), else by Python's.
"""

from __future__ import annotations

import csv
import itertools
import json
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats import tables
from tideline.learning.formats.classes import UNKNOWN
from tideline.learning.formats.columns import fast_csv, fast_rows
from tideline.learning.formats.columns.encoding import Vocabulary, encoded, no_number, values_of
from tideline.learning.formats.columns.fast_csv import Unsure
from tideline.learning.formats.columns.proposing import Block
from tideline.learning.formats.holdings import Rows
from tideline.learning.formats.surveys import Piece, Place, Survey, at, readable
from tideline.learning.formats.tables import Columns, Marks, choose

LONGEST = 1 << 24  # characters of a line; a longer one is another kind of file
ROWS = 1024  # that are turned into numbers at once
AS = ((OSError,), "a .csv file", "Let the agent read it")
Record = tuple[int, list[str]]  # the number of its last line, and its cells


def survey(place: Place, world: World, role: Role) -> Survey:
    with at(place.path):
        names = names_of(place)
        columns = choose(names, place.transform, world.columns)
        tables.check_table(place, world, columns, (*tables.OWN, "separator"))
        marks = marked(place, names, columns)
        sides = tables.place_labels(place, columns, marks, role)
    n = len(marks.codes)
    of = tables.units_of(columns, marks)
    return Survey(place, sides, lambda: pieces(place, len(names), columns, n), marks.name, units=of)


def names_of(place: Place) -> list[str]:
    _, cells = next(records(place), (0, []))
    names = [name.strip() for name in cells]
    if not names:
        raise DataRefused("the file is empty", "Write the names of the columns into the first line, and a line per sample below")
    other = next((s for s in (";", "\t", "|") if s in names[0]), None) if len(names) == 1 else None
    if other and place.transform.separator == ",":
        raise DataRefused(f"the first line has no comma but {other!r}", f"Say separator = {json.dumps(other)} in transforms.toml")
    return names


def marked(place: Place, names: list[str], columns: Columns) -> Marks:
    """The first pass, by the fast reader if it can."""
    try:
        codes, held, units = fast_rows.marks(place, names, columns)
        return Marks(codes, held, lambda row: f"line {line_of(place, len(names), row)}", units)
    except Unsure:
        return mark(place, names, columns)


def line_of(place: Place, width: int, row: int) -> int:
    """The line of a row."""
    line, _ = next(itertools.islice(rows_of(place, width), row, None))
    return line


def mark(place: Place, names: list[str], columns: Columns) -> Marks:
    """The first pass by the slow reader: check each row's width, and read its label and its side of the split."""
    label, side, unit = (None if name is None else names.index(name) for name in (columns.label, columns.held_out, columns.unit))
    codes, held, lines, units = array("q"), bytearray(), array("q"), list[str]()
    number, cache = place.classes.number, dict[str, int]()
    for line, cells in rows_of(place, len(names)):
        lines.append(line)
        held.append(side is not None and tables.held_word(cells[side], f"line {line}", columns.held_out))
        if unit is not None:
            units.append(sys.intern(cells[unit]))
        word = "" if label is None else cells[label]
        if word not in cache:
            cache = cache if len(cache) < ROWS else {}
            cache[word] = number(word)
        codes.append(cache[word] if label is not None else UNKNOWN)
    return Marks(codes, held, lambda row: f"line {lines[row]}", units)


def rows_of(place: Place, width: int) -> Iterator[Record]:
    """The lines of samples. Raises DataRefused for one that is too short or too long."""
    for line, cells in itertools.islice(records(place), 1, None):
        if len(cells) != width:
            what = f"line {line} has {len(cells)} cells; the first line names {width} columns"
            raise DataRefused(what, "Give every line as many cells; put a text that holds the separator in quotes")
        yield line, cells


def blocks(place: Place, names: list[str]) -> Iterator[Block]:
    """All cells, some rows at a time, by the fast reader if it can."""
    width, done = len(names), 0
    try:
        with readable(place.path, *AS):
            for table in fast_csv.tables(place.path, place.transform.separator, width, (), range(width)):
                yield [(name, table.column(str(i)).to_pylist()) for i, name in enumerate(names)]
                done += table.num_rows
    except Unsure:
        rows = itertools.islice(rows_of(place, width), done, None)
        while batch := list(itertools.islice(rows, ROWS)):
            yield [(name, [cells[i] for _, cells in batch]) for i, name in enumerate(names)]


def labels(place: Place) -> Iterator[str] | None:
    """Each row's label as text, without lines that are too short; None if the table has no labels."""
    names = names_of(place)
    label = choose(names, place.transform).label
    if label is None:
        return None
    at_column = names.index(label)
    return (cells[at_column] for _, cells in itertools.islice(records(place), 1, None) if len(cells) > at_column)


def count(place: Place) -> int:
    return sum(1 for _ in rows_of(place, len(names_of(place))))


def write(place: Place, into: Path, rows: Rows, words: Sequence[str], bare: Rows) -> str:
    """Write some rows of the table into a file of its own, a row twice if it is listed twice.

    words: the side of each row, for the split's column, whose name is returned. bare: places of rows that lose their labels.
    """
    names = names_of(place)
    columns = choose(names, place.transform)
    column = tables.split_column(columns, names)
    label = None if columns.label is None else names.index(columns.label)
    at_column = names.index(column) if column in names else len(names)
    wanted, without = {int(row) for row in rows}, set(bare.tolist())
    chosen = {row: cells for row, (_, cells) in enumerate(rows_of(place, len(names))) if row in wanted}
    with into.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=place.transform.separator, lineterminator="\n")
        writer.writerow([*names[:at_column], column, *names[at_column + 1 :]])
        for i, (row, word) in enumerate(zip(rows, words, strict=True)):
            cells = [*chosen[int(row)]]
            if label is not None and i in without:
                cells[label] = ""
            writer.writerow([*cells[:at_column], word, *cells[at_column + 1 :]])
    return column


def pieces(place: Place, width: int, columns: Columns, n: int) -> Iterator[Piece]:
    """The second pass: the features, some rows at a time, by the fast reader as far as it can."""
    with at(place.path):
        start = 0
        try:
            for x in fast_rows.numbers(place, width, columns):
                if start + len(x) > n:
                    raise changed()
                yield Piece(start, x, place.transform, gaps=columns.gaps)
                start += len(x)
        except Unsure:
            for x in slow_numbers(place, width, columns, start, n):
                yield Piece(start, x, place.transform, gaps=columns.gaps)
                start += len(x)
        if start != n:
            raise changed()


def changed() -> DataRefused:
    return DataRefused("the file changed while it was read", "Write it elsewhere and move it here when it is complete")


def slow_numbers(place: Place, width: int, columns: Columns, start: int, n: int) -> Iterator[NDArray[np.float64]]:
    """The same by the slow reader, from row `start`. Raises DataRefused with line and column of a cell that has no value."""
    rows = itertools.islice(records(place), 1 + start, None)
    while batch := list(itertools.islice(rows, ROWS)):
        start += len(batch)
        if start > n or any(len(cells) != width for _, cells in batch):
            raise changed()
        yield declared(batch, columns, columns.vocabularies) if columns.declared else numbers(batch, columns)


def declared(batch: list[Record], columns: Columns, known: Mapping[int, Vocabulary]) -> NDArray[np.float64]:
    """Rows of inputs (k, d) of declared columns. Raises DataRefused."""
    values = []
    for at_column, column in zip(columns.places, columns.declared, strict=True):
        cells = [cells[at_column - 1] for _, cells in batch]
        values.append(values_of(column, cells, known[at_column], lambda i: f"line {batch[i][0]}", at_column))
    return encoded(columns.declared, values)


def numbers(batch: list[Record], columns: Columns) -> NDArray[np.float64]:
    """Rows of features (k, d). Raises DataRefused with line and column of the first cell that is no finite number."""
    at_columns = [place - 1 for place in columns.places]
    try:
        x = np.array([[cells[i] for i in at_columns] for _, cells in batch], np.float64)
    except ValueError:
        x = np.full(1, np.nan)
    if not np.isfinite(x).all():
        named = list(zip(columns.places, columns.features, strict=True))
        line, at_column, name, cell = next(
            (line, i, name, cells[i - 1]) for line, cells in batch for i, name in named if not is_finite(cells[i - 1])
        )
        raise no_number(f"line {line}", at_column, name, cell)
    return x


def is_finite(cell: str) -> bool:
    """Whether NumPy reads a cell as a finite number."""
    try:
        return bool(np.isfinite(np.array([cell], np.float64)).all())
    except ValueError:
        return False


def records(place: Place) -> Iterator[Record]:
    """The lines of a file as cells, the names first, without blank lines. Raises DataRefused."""
    with readable(place.path, *AS), place.path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(lines_of(file), delimiter=place.transform.separator, strict=True)
        while True:
            try:
                cells = next(reader, None)
            except UnicodeDecodeError:
                raise DataRefused(f"after line {reader.line_num}: a byte that is not UTF-8", "Save the file as UTF-8") from None
            except csv.Error as error:
                raise DataRefused(f"line {reader.line_num}: {error}", "Write the line as CSV, quotes in pairs") from None
            if cells is None:
                return
            if cells:
                yield reader.line_num, cells


def lines_of(file: TextIO) -> Iterator[str]:
    """A file's lines. Raises DataRefused for a line that is longer than any table's."""
    while line := file.readline(LONGEST + 1):
        if len(line) > LONGEST:
            raise DataRefused(f"a line is longer than {LONGEST} characters", "Write one sample a line")
        yield line
