"""Labels, sides and inputs of a .csv file by the fast reader. Raises `Unsure` where the slow one has more to say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tideline.core.tables.columns import Column, Missing
from tideline.learning.formats.classes import UNKNOWN
from tideline.learning.formats.columns import fast_csv
from tideline.learning.formats.columns.encoding import Numbers, Vocabulary, encoded
from tideline.learning.formats.columns.fast_csv import Unsure
from tideline.learning.formats.surveys import Place
from tideline.learning.formats.tables import WORDS, Columns

if TYPE_CHECKING:
    from pyarrow import ChunkedArray

Codes = NDArray[np.int64]


def marks(place: Place, names: Sequence[str], columns: Columns) -> tuple[list[int], list[int], list[str]]:
    """Each row's label, side and unit, as `tables.Marks` has them."""
    wanted = (columns.label, columns.held_out, columns.unit)
    label, side, unit = (None if name is None else str(names.index(name)) for name in wanted)
    own = [int(each) for each in (label, side, unit) if each is not None]
    codes, held, units, n = list[int](), list[int](), list[str](), 0
    for table in fast_csv.tables(place.path, place.transform.separator, len(names), (), own or [0]):
        n += table.num_rows
        if label is not None:
            codes += coded(table.column(label), place.classes.number).tolist()
        if side is not None:
            held += coded(table.column(side), side_of).tolist()
        if unit is not None:
            units += map(sys.intern, table.column(unit).to_pylist())
    return codes if label is not None else [UNKNOWN] * n, held if side is not None else [0] * n, units


def side_of(word: str) -> int:
    """For what a row is."""
    held = WORDS.get(word.strip().lower())
    if held is None:
        raise Unsure
    return held


def coded(texts: ChunkedArray, number: Callable[[str], int]) -> Codes:
    """What each text comes to, (k,): each different one is looked at once."""
    parts = [np.empty(0, np.int64)]
    for chunk in texts.chunks:
        known = chunk.dictionary_encode()
        codes = np.array([number(word) for word in known.dictionary.to_pylist()], np.int64)
        parts.append(codes[known.indices.to_numpy(zero_copy_only=False)])
    return np.concatenate(parts)


def numbers(place: Place, width: int, columns: Columns) -> Iterator[Numbers]:
    """Rows of inputs (k, d), some at a time."""
    named = list(zip(columns.places, columns.declared or map(Column, columns.features), strict=True))
    of_numbers, of_texts = ([at_column - 1 for at_column, column in named if column.number is kind] for kind in (True, False))
    for table in fast_csv.tables(place.path, place.transform.separator, width, of_numbers, of_texts):
        values = [sure(table.column(str(at - 1)), column, columns.vocabularies.get(at)) for at, column in named]
        yield encoded([column for _, column in named], values)


def sure(cells: ChunkedArray, column: Column, known: Vocabulary | None) -> Numbers:
    """One column's values (k,), each a number, a place of a category or a gap that may be."""
    if column.number or known is None:
        x: Numbers = cells.to_numpy()
        gaps = cells.null_count if column.missing is not Missing.REFUSE else 0
        if np.count_nonzero(~np.isfinite(x)) != gaps:
            raise Unsure
        return x
    codes = coded(cells, known.code)
    if (codes < 0).any():
        raise Unsure
    return codes.astype(np.float64)
