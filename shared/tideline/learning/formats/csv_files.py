"""Domains that are `.csv` files: a line of names, then a line for each sample. Read twice, never kept whole."""

from __future__ import annotations

import csv
import functools
import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import DataRefused
from tideline.core.run import Role, World
from tideline.learning.formats.classes import UNKNOWN
from tideline.learning.formats.columns import OWN, Columns, Marks, check_table, choose, held_word, no_number, place_labels, unused
from tideline.learning.formats.holdings import Rows
from tideline.learning.formats.surveys import Piece, Place, Survey, at, readable

LONGEST = 1 << 24  # characters of a line; a longer one is another kind of file
ROWS = 1024  # that are turned into numbers at once
AS = ((OSError,), "a .csv file", "Let the agent read it")
Record = tuple[int, list[str]]  # the number of its last line, and its cells


def survey(place: Place, world: World, role: Role) -> Survey:
    """One domain's split and labels. Of a target's labels only the held-out ones are judged, and only they stay."""
    with at(place.path):
        names = header(place)
        columns = choose(names, place.transform)
        check_table(place, world, columns, (*OWN, "separator"))
        marks = mark(place, names, columns)
        sides = place_labels(place, columns, marks, role)
    n = len(marks.codes)
    return Survey(
        path=place.path, transform=place.transform, sides=sides, pieces=lambda: pieces(place, names, columns, n), name=marks.name
    )


def header(place: Place) -> list[str]:
    """The names of the columns. Raises DataRefused."""
    _, names = next(records(place), (0, []))
    names = [name.strip() for name in names]
    if not names:
        raise DataRefused("the file is empty", "Write the names of the columns into the first line, and a line per sample below")
    other = next((s for s in (";", "\t", "|") if s in names[0]), None) if len(names) == 1 else None
    if other and place.transform.separator == ",":
        raise DataRefused(f"the first line has no comma but {other!r}", f"Say separator = {toml(other)} in transforms.toml")
    return names


def toml(text: str) -> str:
    """A text as TOML has it."""
    return '"\\t"' if text == "\t" else f'"{text}"'


def mark(place: Place, names: list[str], columns: Columns) -> Marks:
    """The first pass: each row's width is right; its label, and its side of the split."""
    label, side = (None if name is None else names.index(name) for name in (columns.label, columns.held_out))
    codes, held, lines = array("q"), bytearray(), array("q")
    number, cache = place.classes.number, dict[str, int]()
    for line, cells in rows_of(place, names):
        lines.append(line)
        held.append(side is not None and held_word(cells[side], functools.partial(name_of, line), columns.held_out))
        word = "" if label is None else cells[label]
        if word not in cache:
            cache = cache if len(cache) < ROWS else {}
            cache[word] = number(word)
        codes.append(cache[word] if label is not None else UNKNOWN)
    return Marks(codes, held, lambda row: name_of(lines[row]))


def rows_of(place: Place, names: list[str]) -> Iterator[Record]:
    """The lines of samples. Raises DataRefused for one that is too short or too long."""
    for line, cells in itertools.islice(records(place), 1, None):
        if len(cells) != len(names):
            what = f"line {line} has {len(cells)} cells; the first line names {len(names)} columns"
            raise DataRefused(what, "Give every line as many cells; put a text that holds the separator in quotes")
        yield line, cells


def labels(place: Place) -> Iterator[str] | None:
    """Each row's label as it stands there; None where there is no column of labels."""
    names = header(place)
    label = choose(names, place.transform).label
    return None if label is None else words(place, names, label)


def count(place: Place) -> int:
    """How many samples there are."""
    return sum(1 for _ in rows_of(place, header(place)))


def held_out(place: Place) -> str:
    """The column that says which rows are held out, or a name for a new one."""
    names = header(place)
    return choose(names, place.transform).held_out or unused(names)


def write(place: Place, into: Path, rows: Rows, words: Sequence[str], bare: Rows) -> None:
    """Write some rows of the table into a file of its own; a row may come twice, at the end.

    Each has its word in the column of the split. Those at the places `bare` have no label.
    """
    names, column = header(place), held_out(place)
    label = None if (name := choose(names, place.transform).label) is None else names.index(name)
    without = set(bare.tolist())
    at_column = names.index(column) if column in names else len(names)
    wanted = {int(row) for row in rows}
    kept = {row: cells for row, (_, cells) in enumerate(rows_of(place, names)) if row in wanted}
    with into.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=place.transform.separator, lineterminator="\n")
        writer.writerow([*names[:at_column], column, *names[at_column + 1 :]])
        for i, (row, word) in enumerate(zip(rows, words, strict=True)):
            cells = [*kept[int(row)]]
            if label is not None and i in without:
                cells[label] = ""
            writer.writerow([*cells[:at_column], word, *cells[at_column + 1 :]])


def words(place: Place, names: list[str], name: str) -> Iterator[str]:
    """A column's cells, but for those of lines that are too short."""
    at_column = names.index(name)
    return (cells[at_column] for _, cells in itertools.islice(records(place), 1, None) if len(cells) > at_column)


def name_of(line: int) -> str:
    """What a row is called."""
    return f"line {line}"


def pieces(place: Place, names: list[str], columns: Columns, n: int) -> Iterator[Piece]:
    """The second pass: the features, some rows at a time."""
    with at(place.path):
        rows, start = itertools.islice(records(place), 1, None), 0
        while batch := list(itertools.islice(rows, ROWS)):
            if any(len(cells) != len(names) for _, cells in batch) or start + len(batch) > n:
                raise changed()
            yield Piece(start, numbers(batch, columns), place.transform)
            start += len(batch)
        if start != n:
            raise changed()


def changed() -> DataRefused:
    """The refusal of a file that is being written."""
    return DataRefused("the file changed while it was read", "Write it elsewhere and move it here when it is whole")


def numbers(batch: list[Record], columns: Columns) -> NDArray[np.float64]:
    """Rows of features (k, d). Raises DataRefused with the line and the column of what is no finite number."""
    at_columns = [place - 1 for place in columns.places]
    try:
        x = np.array([[cells[i] for i in at_columns] for _, cells in batch], np.float64)
    except ValueError:
        raise next(wrong(batch, columns, is_float)) from None
    if not np.isfinite(x).all():
        raise next(wrong(batch, columns, lambda cell: bool(np.isfinite(float(cell)))))
    return x


def is_float(cell: str) -> bool:
    """Whether NumPy reads a cell as a number."""
    try:
        np.array([cell], np.float64)
    except ValueError:
        return False
    return True


def wrong(batch: list[Record], columns: Columns, fine: Callable[[str], bool]) -> Iterator[DataRefused]:
    """The refusals of the cells that are not fine."""
    for line, cells in batch:
        for at_column, name in zip(columns.places, columns.features, strict=True):
            if not fine(cells[at_column - 1]):
                yield no_number(name_of(line), at_column, name, cells[at_column - 1])


def records(place: Place) -> Iterator[Record]:
    """The lines of a file as cells, the first one among them; blank ones are passed over. Raises DataRefused."""
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
    """A text's lines. Raises DataRefused for one of which more would have to be read than any table needs."""
    while line := file.readline(LONGEST + 1):
        if len(line) > LONGEST:
            raise DataRefused(f"a line is longer than {LONGEST} characters", "Write one sample a line")
        yield line
