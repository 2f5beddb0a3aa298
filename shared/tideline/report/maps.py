"""Maps of groups, and heat maps of tables that folds reported: first as plain values, then how they are drawn."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tideline.client.answers import RunResult, TableData
from tideline.report.style import COLOURS, INK, NAME, PALE, WORDS, Row, cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

MOST_ROUNDS = 8  # columns of a map of groups that are drawn
MOST_SIZED = 12  # groups whose sizes are listed
TITLE = 60  # characters of a table's name in a title
SITE, DOMAIN = 14, 10  # characters beside a row that has both
ROOM = 4.1  # inches that the cells have beside the names of the rows
LETTER = 0.62  # width of a letter, of its height
POINTS = 72.0  # of an inch
SMALL = 6.5  # points; what would have to be smaller is not written
MOST_NUMBERED = 24  # rows with numbers in their cells
MOST_NAMED = 48  # rows, or columns, of which each has its name; of more, some
MOST_EDGED = 60  # rows, or columns, between which there is a line
LEAST_WIDE = 4  # columns that a map of groups has room for
TALL = 8.5  # inches of cells at most
LEGEND = 20  # groups that a legend names
CODE = 7  # characters of a group in its cell
# One scale from light to dark; where there are values on both sides of zero, white is zero.
ONE_WAY, BOTH_WAYS = "YlGnBu", "RdBu_r"
Colour = tuple[float, float, float]
Rounds = Sequence[tuple[int, TableData]]  # (round, table)


@dataclass(frozen=True)
class Member:
    """A site, its true domain where it is known, and its group in each column; None: in none."""

    site: str
    domain: str | None
    groups: tuple[str | None, ...]


@dataclass(frozen=True)
class ClusterMap:
    """Each site's group in each round in which the grouping changed. agreement: the last one's adjusted Rand index."""

    groups: tuple[str, ...]
    rounds: tuple[str, ...]
    rows: tuple[Member, ...]
    agreement: float | None
    name: str = "groups"
    title: str = "Groups of sites"

    @property
    def drawn(self) -> tuple[int, ...]:
        """The columns for which there is room: the first, the last, and some between."""
        last = len(self.rounds) - 1
        return tuple(range(last + 1)) if last < MOST_ROUNDS else tuple(i * last // (MOST_ROUNDS - 1) for i in range(MOST_ROUNDS))

    def seen(self) -> str:
        sizes = [sum(row.groups[-1] == group for row in self.rows) for group in self.groups]
        last = ", ".join(f"{cut(g)} has {n}" for g, n in zip(self.groups, sizes, strict=True) if n)
        last = last if len(self.groups) <= MOST_SIZED else f"there are {sum(map(bool, sizes))}"
        changes = {1: "never changed", 2: "changed once"}.get(len(self.rounds), f"changed {len(self.rounds) - 1} times")
        return f"{self.title}: a row for each site, a colour for each group; the groups {changes}. At the end {last}."

    def numbers(self) -> Iterator[Row]:
        yield "site", "domain", *self.rounds
        for row in self.rows:
            yield row.site, row.domain or "", *(group or "" for group in row.groups)


@dataclass(frozen=True)
class HeatMap:
    """A table of one round. labels: of the rows; cuts: rows before which another group begins; low, high: of its colours."""

    name: str
    title: str
    rows: tuple[str, ...]
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    cuts: tuple[int, ...]
    low: float
    high: float

    def seen(self) -> str:
        cells = [
            (v, r, c) for r, line in zip(self.rows, self.values, strict=True) for c, v in zip(self.columns, line, strict=True)
        ]
        (least, *_), (most, row, column) = min(cells), max(cells, key=lambda cell: cell[0])
        size = f"{len(self.rows)} rows, {len(self.columns)} columns"
        return f"{self.title}: {size}; from {least:.3g} to {most:.3g}, which {cut(row)} has under {cut(column)}."

    def numbers(self) -> Iterator[Row]:
        yield "row", *self.columns
        for row, line in zip(self.rows, self.values, strict=True):
            yield row, *line


def cluster_map(result: RunResult) -> ClusterMap | None:
    """The map of a result's groups; None if no round has any."""
    grouped = [(closed, by_site(sites)) for closed in result.get("phases") or () if (sites := closed.get("groups"))]
    if not grouped:
        return None
    changed = [grouped[0], *(b for a, b in itertools.pairwise(grouped) if a[1] != b[1])]
    several = len({closed["name"] for closed, _ in grouped}) > 1
    rounds = tuple(f"{closed['name']} {closed['round']}" if several else str(closed["round"]) for closed, _ in changed)
    names = {group for _, groups in changed for group in groups.values()}
    place, groups = order_of(result), result.get("groups")
    clients = sorted(result["clients"], key=lambda client: place[client["name"]])
    rows = tuple(Member(c["name"], c["domain"], tuple(g.get(c["name"]) for _, g in changed)) for c in clients)
    return ClusterMap(tuple(sorted(names, key=natural)), rounds, rows, groups["adjusted_rand_index"] if groups else None)


def by_site(groups: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Groups as site -> group."""
    return {site: group for group, sites in groups.items() for site in sites}


def last_groups(result: RunResult) -> dict[str, str]:
    """The last grouping as site -> group. Empty if there is none."""
    groups = result.get("groups")
    return by_site(groups["last"] or {}) if groups else {}


def order_of(result: RunResult) -> dict[str, int]:
    """Each site's place: by the last groups, then by name; sites in no group come last."""
    groups = last_groups(result)
    names = sorted((c["name"] for c in result["clients"]), key=natural)
    ordered = sorted(names, key=lambda name: (name not in groups, natural(groups.get(name, ""))))
    return {name: place for place, name in enumerate(ordered)}


def natural(name: str) -> list[str | int]:
    """A key to sort by: numbers in a name by their size."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", name))]


def file_of(phase: str, name: str, number: int) -> str:
    """The file name of a chart of one round's table."""
    return f"{phase[:TITLE]}-{name[:TITLE]}-round-{number}"


def title_of(phase: str, name: str) -> str:
    return f"{cut(name, TITLE)} in phase {cut(phase, TITLE)}"


def cells_of(table: TableData) -> Iterator[tuple[str, str, float]]:
    """(row, column, value) of each cell."""
    for row, line in zip(table["rows"], table["values"], strict=True):
        yield from ((row, column, value) for column, value in zip(table["columns"], line, strict=True))


def heat_maps(result: RunResult, phase: str, name: str, rounds: Rounds) -> tuple[HeatMap, ...]:
    """The first, the middle and the last of a table's rounds, in the same colours."""
    chosen = picked(rounds)
    ends = limits([value for _, table in chosen for line in table["values"] for value in line])
    return tuple(heat_map(result, phase, name, number, table, *ends) for number, table in chosen)


def picked(rounds: Rounds) -> Rounds:
    """The first, the middle and the last round."""
    return [rounds[i] for i in sorted({0, len(rounds) // 2, len(rounds) - 1})]


def limits(values: Sequence[float]) -> tuple[float, float]:
    """What the ends of the colours mean: the least and the largest value, or as far below zero as above where there are both."""
    low, high = min(values), max(values)
    if low < 0 < high:
        return -max(-low, high), max(-low, high)
    return (low, high) if low < high else (low - 0.5 * (abs(low) or 1.0), low + 0.5 * (abs(low) or 1.0))


def heat_map(result: RunResult, phase: str, name: str, number: int, table: TableData, low: float, high: float) -> HeatMap:
    """A round's table. If all rows, or all columns, are sites, they are ordered by group and name."""
    rows, columns = arranged(result, table["rows"]), arranged(result, table["columns"])
    domains, groups = {c["name"]: c["domain"] for c in result["clients"]}, last_groups(result)
    heads = [table["rows"][i] for i in rows]
    cuts = [i for i in range(1, len(heads)) if groups.get(heads[i - 1]) != groups.get(heads[i]) and set(heads) <= set(domains)]
    return HeatMap(
        name=file_of(phase, name, number),
        title=f"{title_of(phase, name)}, round {number}",
        rows=tuple(heads),
        labels=tuple(beside(head, domains.get(head)) for head in heads),
        columns=tuple(table["columns"][j] for j in columns),
        values=tuple(tuple(table["values"][i][j] for j in columns) for i in rows),
        cuts=tuple(cuts),
        low=low,
        high=high,
    )


def arranged(result: RunResult, names: Sequence[str]) -> list[int]:
    """The order of rows or columns, as places among their names."""
    place = order_of(result)
    known = set(names) <= set(place)
    return sorted(range(len(names)), key=lambda i: place[names[i]] if known else i)


def beside(site: str, domain: str | None) -> str:
    """A site's name beside a row, with its true domain if that is known."""
    return f"{cut(site, SITE)} ({cut(domain, DOMAIN)})" if domain else cut(site)


def height_of(chart: ClusterMap | HeatMap) -> float:
    """Inches, so that each of a few rows has room for its words."""
    if isinstance(chart, ClusterMap):
        return 1.6 + 0.26 * -(-min(len(chart.groups), LEGEND) // 2) + rows_of(len(chart.rows))
    words = max(map(len, cut_all(chart.columns))) * 0.085 if slanted(chart.columns) else 0.2
    return 0.6 + words + rows_of(len(chart.rows))


def rows_of(count: int) -> float:
    return min(max(0.29 * count, 0.7), TALL)


def draw_groups(axes: Axes, chart: ClusterMap) -> dict[str, Patch]:
    """A row per site, a column per round in which the groups changed, a colour per group; handles for a legend."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    colours = colours_of(chart.groups)
    shown = [[row.groups[i] for i in chart.drawn] for row in chart.rows]
    shades = [[to_rgb(PALE if group is None else colours[group]) for group in line] for line in shown]
    axes.imshow(shades, aspect="auto", interpolation="nearest")
    codes = codes_of(chart.groups)
    if len(shown) <= MOST_NAMED:
        texts = [["–" if group is None else codes[group] for group in line] for line in shown]
        write(axes, texts, shades, WORDS - 1)
    frame(axes, [beside(row.site, row.domain) for row in chart.rows], [chart.rounds[i] for i in chart.drawn])
    cuts = [i for i, (a, b) in enumerate(itertools.pairwise(chart.rows), 1) if a.groups[-1] != b.groups[-1]]
    edges(axes, len(chart.rows), len(chart.drawn), cuts)
    axes.set_xlim(-0.5, max(len(chart.drawn), LEAST_WIDE) - 0.5)
    axes.set_xlabel("round: the first with groups, and those in which they changed", fontsize=WORDS - 1, loc="left")
    return {cut(group): Patch(color=colours[group]) for group in chart.groups if len(chart.groups) <= LEGEND}


def colours_of(groups: Sequence[str]) -> dict[str, str | Colour]:
    """A colour for each group. There are 20 before the first is used again; numbers in the cells tell those apart."""
    from matplotlib import colormaps

    many = [colormaps["tab20"](i)[:3] for i in range(20)]
    shades: Sequence[str | Colour] = COLOURS if len(groups) <= len(COLOURS) else many
    return {group: shades[i % len(shades)] for i, group in enumerate(groups)}


def codes_of(groups: Sequence[str]) -> dict[str, str]:
    """A group's name as it stands in a cell: without the words with which all of them begin."""
    words = [group.split(" ") for group in groups]
    columns = zip(*(each[:-1] for each in words), strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
    return {group: cut(" ".join(each[shared:]), CODE) for group, each in zip(groups, words, strict=True)}


def draw_heat(figure: Figure, axes: Axes, chart: HeatMap) -> None:
    """A cell per value: with its number where that fits, else beside a bar that says what the colours mean."""
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    scale, colours = Normalize(chart.low, chart.high), colormaps[BOTH_WAYS if chart.low < 0 < chart.high else ONE_WAY]
    drawn = axes.imshow(chart.values, aspect="auto", interpolation="nearest", norm=scale, cmap=colours)
    texts = written(chart.values)
    longest = max(len(text) for line in texts for text in line)
    points = min(WORDS - 1, ROOM * POINTS / (len(chart.columns) * (longest + 1) * LETTER))
    if points >= SMALL and len(texts) <= MOST_NUMBERED:
        write(axes, texts, [[colours(scale(value))[:3] for value in line] for line in chart.values], points)
    else:
        figure.colorbar(drawn, ax=axes, fraction=0.06, pad=0.03).ax.tick_params(labelsize=WORDS - 1.5)
    frame(axes, chart.labels, chart.columns)
    edges(axes, len(chart.rows), len(chart.columns), chart.cuts)


def written(values: Sequence[Sequence[float]]) -> list[list[str]]:
    flat = [float(value) for line in values for value in line]
    largest = max(map(abs, flat))
    style = "{:.2f}" if 0.05 <= largest < 1000 else "{:.1e}"
    if largest < 1e6 and all(value.is_integer() for value in flat):
        style = "{:.0f}"
    return [[style.format(value) for value in line] for line in values]


def write(axes: Axes, texts: Sequence[Sequence[str]], shades: Sequence[Sequence[Colour]], points: float) -> None:
    """A text in the middle of each cell, white where the cell is dark."""
    for y, line in enumerate(texts):
        for x, text in enumerate(line):
            red, green, blue = shades[y][x]
            ink = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else INK
            axes.text(x, y, text, ha="center", va="center", fontsize=points, color=ink, parse_math=False)


def frame(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Names beside the rows and below the columns; of very many, some."""
    for axis, names in ((axes.yaxis, rows), (axes.xaxis, cut_all(columns))):
        every = -(-len(names) // MOST_NAMED)
        axis.set_ticks(range(0, len(names), every), names[::every], parse_math=False)
    axes.tick_params(length=0, labelsize=WORDS - 1 if len(rows) <= MOST_NUMBERED else SMALL)
    points = min(WORDS - 1, max(ROOM * POINTS / (min(len(columns), MOST_NAMED) * 1.3), 5.0))
    axes.tick_params(axis="x", labelrotation=90 if slanted(columns) else 0, labelsize=points)
    axes.spines[:].set_visible(False)


def cut_all(names: Iterable[str]) -> list[str]:
    return [cut(name, NAME) for name in names]


def slanted(columns: Sequence[str]) -> bool:
    longest = max(map(len, cut_all(columns)))
    return len(columns) * (longest + 1) * LETTER * (WORDS - 1) > ROOM * POINTS


def edges(axes: Axes, rows: int, columns: int, cuts: Sequence[int]) -> None:
    """White lines between cells, and dark ones between groups."""
    if max(rows, columns) <= MOST_EDGED:
        axes.vlines([x - 0.5 for x in range(1, columns)], -0.5, rows - 0.5, color="white", linewidth=1)
        axes.hlines([y - 0.5 for y in range(1, rows)], -0.5, columns - 0.5, color="white", linewidth=1)
    axes.hlines([y - 0.5 for y in cuts], -0.5, columns - 0.5, color=INK, linewidth=1.6)
