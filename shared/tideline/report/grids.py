"""Maps of groups and heat maps, drawn cell by cell."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tideline.report.maps import ClusterMap, HeatMap
from tideline.report.style import COLOURS, NAME, WORDS, cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOM = 4.1  # inches that the cells have beside the names of the rows
LETTER = 0.62  # width of a letter, of its height
POINTS = 72.0  # of an inch
SMALL = 6.5  # points; what would have to be smaller is not written
MOST_NUMBERED = 24  # rows with numbers in their cells
MOST_NAMED = 48  # rows, or columns, of which each has its name; of more, some
MOST_EDGED = 60  # rows, or columns, between which there is a line
LEAST_WIDE = 4  # columns that a map of groups has room for
TALL = 8.5  # inches of cells at most
NOBODYS = "#d9dee3"
LEGEND = 20  # groups that a legend names
CODE = 7  # characters of a group in its cell
# One scale from light to dark; where there are values on both sides of zero, white is zero.
ONE_WAY, BOTH_WAYS = "YlGnBu", "RdBu_r"


def height_of(chart: ClusterMap | HeatMap) -> float:
    """Inches, so that each of a few rows has room for its words."""
    if isinstance(chart, ClusterMap):
        return 1.6 + 0.26 * -(-min(len(chart.groups), LEGEND) // 2) + rows_of(len(chart.rows))
    words = max(map(len, cut_all(chart.columns))) * 0.085 if slanted(chart.columns) else 0.2
    return 0.6 + words + rows_of(len(chart.rows))


def rows_of(count: int) -> float:
    """Inches of so many rows."""
    return min(max(0.29 * count, 0.7), TALL)


def draw_groups(axes: Axes, chart: ClusterMap) -> dict[str, Any]:
    """A row per site, a column per round in which the groups changed, a colour per group; handles for a legend."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    colours = colours_of(chart.groups)
    told = [[row.groups[i] for i in chart.drawn] for row in chart.rows]
    shades = [[to_rgb(NOBODYS if group is None else colours[group]) for group in line] for line in told]
    axes.imshow(shades, aspect="auto", interpolation="nearest")
    codes = codes_of(chart.groups)
    if len(told) <= MOST_NAMED:
        texts = [["–" if group is None else codes[group] for group in line] for line in told]
        write(axes, texts, shades, WORDS - 1)
    frame(axes, [row.label for row in chart.rows], [chart.rounds[i] for i in chart.drawn])
    last = [row.groups[-1] for row in chart.rows]
    edges(axes, len(chart.rows), len(chart.drawn), [i for i in range(1, len(last)) if last[i - 1] != last[i]])
    axes.set_xlim(-0.5, max(len(chart.drawn), LEAST_WIDE) - 0.5)
    axes.set_xlabel("round: the first that told groups, and those in which they changed", fontsize=WORDS - 1, loc="left")
    shown = chart.groups if len(chart.groups) <= LEGEND else ()
    return {cut(group): Patch(color=colours[group]) for group in shown}


def colours_of(groups: Sequence[str]) -> dict[str, Any]:
    """A colour for each group. There are 20 before the first is used again; numbers in the cells tell those apart."""
    from matplotlib import colormaps

    many = [colormaps["tab20"](i)[:3] for i in range(20)]
    shades: Sequence[Any] = COLOURS if len(groups) <= len(COLOURS) else many
    return {group: shades[i % len(shades)] for i, group in enumerate(groups)}


def codes_of(groups: Sequence[str]) -> dict[str, str]:
    """A group's name as it stands in a cell: without the words with which all of them begin."""
    words = [group.split(" ") for group in groups]
    shared = sum(
        1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, zip(*(each[:-1] for each in words), strict=False))
    )
    return {group: cut(" ".join(each[shared:]), CODE) for group, each in zip(groups, words, strict=True)}


def draw_heat(figure: Figure, axes: Axes, chart: HeatMap) -> None:
    """A cell per value: with its number where that fits, else beside a bar that says what the colours mean."""
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    scale, colours = Normalize(chart.low, chart.high), colormaps[BOTH_WAYS if chart.low < 0 < chart.high else ONE_WAY]
    drawn = axes.imshow(chart.values, aspect="auto", interpolation="nearest", norm=scale, cmap=colours)
    texts = written(chart.values)
    points = fitting(texts)
    if points >= SMALL and len(texts) <= MOST_NUMBERED:
        write(axes, texts, [[colours(scale(value))[:3] for value in line] for line in chart.values], points)
    else:
        figure.colorbar(drawn, ax=axes, fraction=0.06, pad=0.03).ax.tick_params(labelsize=WORDS - 1.5)
    frame(axes, chart.labels, chart.columns)
    edges(axes, len(chart.rows), len(chart.columns), chart.cuts)


def written(values: Iterable[Iterable[float]]) -> list[list[str]]:
    """Numbers of as many places as tell them apart, all alike."""
    lines = [list(line) for line in values]
    largest = max(abs(value) for line in lines for value in line)
    style = "{:.2f}" if 0.05 <= largest < 1000 else "{:.1e}"
    if largest < 1e6 and all(value.is_integer() for line in lines for value in map(float, line)):
        style = "{:.0f}"
    return [[style.format(value) for value in line] for line in lines]


def fitting(texts: Sequence[Sequence[str]]) -> float:
    """The points that the letters of a cell may have."""
    longest = max(len(text) for line in texts for text in line)
    return min(WORDS - 1, ROOM * POINTS / (len(texts[0]) * (longest + 1) * LETTER))


def write(axes: Axes, texts: Sequence[Sequence[str]], shades: Sequence[Sequence[Any]], points: float) -> None:
    """A text in the middle of each cell, white where the cell is dark."""
    for y, line in enumerate(texts):
        for x, text in enumerate(line):
            red, green, blue = shades[y][x]
            ink = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "#1c2733"
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
    """Names as there is room for them."""
    return [cut(name, NAME) for name in names]


def slanted(columns: Sequence[str]) -> bool:
    """Whether the columns are too narrow for their names."""
    longest = max(map(len, cut_all(columns)))
    return len(columns) * (longest + 1) * LETTER * (WORDS - 1) > ROOM * POINTS


def edges(axes: Axes, rows: int, columns: int, cuts: Sequence[int]) -> None:
    """White lines between cells, and dark ones between groups."""
    if max(rows, columns) <= MOST_EDGED:
        axes.vlines([x - 0.5 for x in range(1, columns)], -0.5, rows - 0.5, color="white", linewidth=1)
        axes.hlines([y - 0.5 for y in range(1, rows)], -0.5, columns - 0.5, color="white", linewidth=1)
    axes.hlines([y - 0.5 for y in cuts], -0.5, columns - 0.5, color="#1c2733", linewidth=1.6)
