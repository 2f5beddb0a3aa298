"""What the columns of tables hold, for their owner, and columns of a world that fit several tables."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tideline.core.tables.columns import Coding, Column, Missing, composed
from tideline.learning.formats.columns.encoding import COMMA, is_missing

FEW = 50  # categories of a column that is proposed; one with more is probably a text
MANY = 12  # categories that are proposed as inputs each; of more, a network had better learn an embedding
NUMBER, CATEGORY, TEXT, DATE, EMPTY = "number", "category", "text", "date", "empty"
LABEL, SPLIT, UNIT, FEATURE, LEFT = "label", "split", "unit", "feature", "not used"
Block = Sequence[tuple[str, Sequence[str]]]  # some rows: the cells of each column


@dataclass(frozen=True)
class ColumnReport:
    """A column of a table. kind: number, category, text, date, or empty. use: feature, label, split, unit, or not used."""

    name: str
    kind: str
    use: str
    missing: float
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] = ()


@dataclass
class Tally:
    """One column over the rows that were seen."""

    rows: int = 0
    gaps: int = 0
    numbers: bool = True
    low: float = np.inf
    high: float = -np.inf
    words: set[str] = field(default_factory=set)

    def add(self, cells: Sequence[str]) -> None:
        """Count some cells."""
        self.rows += len(cells)
        if len(self.words) <= FEW:
            self.words.update(composed(cell) for cell in set(cells) if not is_missing(cell))
        if not self.numbers:
            self.gaps += sum(map(is_missing, cells))
            return
        known = cells
        x = floats(known)
        if x is None or np.isnan(x).any():
            known = [cell for cell in cells if not is_missing(cell)]
            self.gaps += len(cells) - len(known)
            x = floats(known)
        if x is None or not np.isfinite(x).all():
            self.numbers = False
        elif len(x):
            self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))

    @property
    def kind(self) -> str:
        """A column of numbers stays one where a few cells are none, or have a decimal comma: its reader refuses them by line."""
        if not self.words:
            return EMPTY
        numbers = [floats([word]) is not None for word in self.words]
        commas = [COMMA.fullmatch(word) is not None for word in self.words]
        if self.numbers or all(map(any, zip(numbers, commas, strict=True))):
            return NUMBER
        if len(self.words) > FEW and 2 * sum(numbers) > len(numbers):
            return NUMBER
        if all(map(is_date, self.words)):
            return DATE
        return CATEGORY if len(self.words) <= FEW else TEXT

    def report(self, name: str, use: str) -> ColumnReport:
        made = ColumnReport(name, self.kind, use, self.gaps / max(self.rows, 1))
        if made.kind == NUMBER:
            return replace(made, low=self.low, high=self.high) if self.low <= self.high else made
        return replace(made, categories=tuple(sorted(self.words))) if made.kind == CATEGORY else made


def floats(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Cells as numbers (k,); None if one is none."""
    try:
        return np.array(cells, np.float64)
    except ValueError:
        return None


def is_date(word: str) -> bool:
    try:
        datetime.datetime.fromisoformat(word)
    except ValueError:
        return False
    return not word.isdigit()


def reported(blocks: Iterable[Block], uses: Mapping[str, str]) -> tuple[ColumnReport, ...]:
    """Each column of a table, in its order. uses: what each is for."""
    tallies = {name: Tally() for name in uses}
    for block in blocks:
        for name, cells in block:
            tallies[name].add(cells)
    return tuple(tally.report(name, uses[name]) for name, tally in tallies.items())


def are_plain(columns: Sequence[ColumnReport]) -> bool:
    """Whether all features are numbers, none of them missing, so that a world need not declare them."""
    return all(column.kind == NUMBER and not column.missing for column in features_in(columns))


def features_in(columns: Sequence[ColumnReport]) -> Iterator[ColumnReport]:
    return (column for column in columns if column.use == FEATURE)


def proposed(several: Sequence[Sequence[ColumnReport]]) -> tuple[Column, ...]:
    """Columns that fit all of several tables: those that each of them has, as numbers or with few categories."""
    first, *others = [{composed(column.name): column for column in features_in(columns)} for columns in several]
    made = (merged([table[name] for table in (first, *others)]) for name in first if all(name in table for table in others))
    return tuple(column for column in made if column is not None)


def merged(reports: Sequence[ColumnReport]) -> Column | None:
    """One column of several tables; None where it is no number, and no category in each."""
    known = [report for report in reports if report.kind != EMPTY]
    kinds = {report.kind for report in known}
    missing = Missing.INDICATOR if any(report.missing for report in reports) else Missing.REFUSE
    if kinds == {NUMBER}:
        return Column(reports[0].name, missing=missing)
    words = sorted({word for report in known for word in report.categories})
    if kinds != {CATEGORY} or len(words) + (missing is not Missing.REFUSE) < 2 or len(words) > FEW:
        return None
    return Column(reports[0].name, tuple(words), Coding.CODES if len(words) > MANY else Coding.ONE_HOT, missing=missing)
