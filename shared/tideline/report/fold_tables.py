"""The tables that folds reported, and how each is drawn.

Arrows where a table says that it is a graph; lines over the rounds where it has one column; lines over numbers where its rows are
numbers; heat maps of all others.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tideline.client.answers import RunResult, TableData
from tideline.core.phase import RECALLS, SCORE
from tideline.report.charts import Curves, Line, label
from tideline.report.confidences import histograms_in
from tideline.report.graphs import LINKS, Graph, graphs, is_graph, shown_by_arrows
from tideline.report.maps import TITLE, HeatMap, Rounds, arranged, cells_of, file_of, heat_maps, picked, title_of
from tideline.report.style import Row, cut
from tideline.report.verdict_rows import TABLES as OF_VERDICT

MOST_TABLES = 12  # tables that are drawn
MOST_ROWS = 24  # rows that are drawn of a table of one column
AXIS = 30  # characters of a column beside an axis


@dataclass(frozen=True)
class Tabled(Curves):
    """Lines of a table: each that is drawn has its name."""

    @property
    def drawn(self) -> tuple[Line, ...]:
        return self.lines[:MOST_ROWS]

    @property
    def named(self) -> int:
        return MOST_ROWS


@dataclass(frozen=True)
class Column(Tabled):
    """A table of one column over the rounds: a line per row. y: the column."""

    @property
    def axis(self) -> str:
        return cut(super().axis, AXIS)

    def seen(self) -> str:
        which = "each row" if len(self.drawn) == len(self.lines) else f"the first {len(self.drawn)} of {len(self.lines)} rows"
        first, last = (pick(x for line in self.lines for x, _ in line.points) for pick in (min, max))
        return f"{self.title}: a line for {which}; {self.span(first)} at round {first}, {self.span(last)} at round {last}."

    def span(self, number: float) -> str:
        """The values of a round in words: from the least to the largest."""
        values = [y for line in self.lines for x, y in line.points if x == number]
        low, high = self.words(min(values)), self.words(max(values))
        return low if low == high else f"{low} to {high}"

    def numbers(self) -> Iterator[Row]:
        yield "row", self.x, self.y
        for line in self.lines:
            yield from ((line.site, x, y) for x, y in line.points)


@dataclass(frozen=True)
class Series(Tabled):
    """A table whose rows are numbers, or whose only row has columns that are: a line per column, or per row, over them."""

    @property
    def axis(self) -> str:
        """y in words; where there are several lines their names say what each is."""
        return cut(super().axis, AXIS) if len(self.lines) == 1 else ""

    @property
    def numbered(self) -> tuple[float, ...]:
        return tuple(x for x, _ in self.lines[0].points)

    def seen(self) -> str:
        first, last = self.numbered[0], self.numbered[-1]
        values = ((cut(line.site), self.words(line.points[0][1]), self.words(line.points[-1][1])) for line in self.drawn)
        ends = ", ".join(f"{name} from {begins} to {ends}" for name, begins, ends in values)
        return f"{self.title}: over {self.at}, from {first:g} to {last:g}: {ends}."

    def numbers(self) -> Iterator[Row]:
        yield self.x, *(line.site for line in self.lines)
        for i, x in enumerate(self.numbered):
            yield f"{x:g}", *(line.points[i][1] for line in self.lines)


Drawn = Column | Series | HeatMap | Graph


def table_charts(result: RunResult) -> list[tuple[str, tuple[Drawn, ...]]]:
    """The charts of each table of a phase, under a title; of the first MOST_TABLES tables."""
    rounds = tables_of(result)
    return [(title_of(*key), charts_of(result, *key, each)) for key, each in list(rounds.items())[:MOST_TABLES]]


def tables_of(result: RunResult) -> dict[tuple[str, str], Rounds]:
    """(round, table) of each table, by phase and name, in the order of the rounds.

    Confidences have charts of their own, scores and verdicts tables. Links whose numbers stand beside arrows are not drawn again.
    """
    rounds: dict[tuple[str, str], list[tuple[int, TableData]]] = defaultdict(list)
    for closed in result.get("phases") or ():
        own = [name for name in closed.get("tables") or () if name.startswith(SCORE) or name == RECALLS or name in OF_VERDICT]
        apart = (*histograms_in(closed), *own, *([LINKS] if shown_by_arrows(closed) else []))
        for name, table in (closed.get("tables") or {}).items():
            if name not in apart:
                rounds[closed["name"], name].append((closed["round"], table))
    return dict(rounds)


def charts_of(result: RunResult, phase: str, name: str, rounds: Rounds) -> tuple[Drawn, ...]:
    """What fits a table; lines over the rounds, where it has one column, always the same, in several rounds."""
    if all(is_graph(table) for _, table in rounds):
        return graphs(result, phase, name, rounds)
    heads = {tuple(table["columns"]) for _, table in rounds}
    if len(rounds) > 1 and len(heads) == 1 and len(next(iter(heads))) == 1:
        return (column(result, phase, name, rounds),)
    sites = {c["name"] for c in result["clients"]}
    if all(numbered(table) and not {*table["rows"], *table["columns"]} & sites for _, table in rounds):
        return tuple(series(phase, name, *each) for each in picked(rounds))
    return heat_maps(result, phase, name, rounds)


def column(result: RunResult, phase: str, name: str, rounds: Rounds) -> Column:
    """A table of one column. Rows that are all sites are ordered by group and name, and look as in every chart."""
    points: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for number, table in rounds:
        for row, _, value in cells_of(table):
            points[row].append((number, value))
    rows, (head,) = list(points), rounds[0][1]["columns"]
    sites = {c["name"]: (c["role"], label(c), place) for place, c in enumerate(result["clients"])}
    known = sites if set(rows) <= set(sites) else {row: ("", row, place) for place, row in enumerate(rows)}
    lines = []
    for row in (rows[i] for i in arranged(result, rows)):
        role, words, place = known[row]
        lines.append(Line(site=row, role=role, label=words, points=tuple(points[row]), place=place))
    title = f"{cut(name, TITLE)}, {cut(head, TITLE)} in phase {cut(phase, TITLE)}"
    file = f"{phase[:TITLE]}-{name[:TITLE]}"
    return Column(name=file, title=title, x="round", at="round", y=head, lines=tuple(lines))


def numbered(table: TableData) -> bool:
    """Whether a table's rows, or the columns of its only row, are two or more ascending numbers."""
    try:
        values = [float(name) for name in (table["columns"] if len(table["rows"]) == 1 else table["rows"])]
    except ValueError:
        return False
    return len(values) > 1 and all(map(math.isfinite, values)) and all(a < b for a, b in itertools.pairwise(values))


def series(phase: str, name: str, number: int, table: TableData) -> Series:
    """A round's table of numbers. The words after the last "by" of its name say what its numbers are."""
    alone = len(table["rows"]) == 1
    heads, xs = (table["rows"], table["columns"]) if alone else (table["columns"], table["rows"])
    columns = table["values"] if alone else list(zip(*table["values"], strict=True))
    lines = tuple(
        Line(site=head, role="", label=head, points=tuple(zip(map(float, xs), values, strict=True)), place=place)
        for place, (head, values) in enumerate(zip(heads, columns, strict=True))
    )
    at = name.rpartition(" by ")[2] if " by " in name else "number"
    return Series(name=file_of(phase, name, number), title=title_of(phase, name), x=at, at=at, y=heads[0], lines=lines)
