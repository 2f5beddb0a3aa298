"""Charts as PNG: for a page, or as files with the numbers behind them."""

from __future__ import annotations

import csv
import functools
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tideline.client.answers import RunResult
from tideline.client.output import size
from tideline.report.charts import LEGEND, ROUNDS, Bar, Bars, Curves, Line, accuracy_charts, family_charts, metric_charts
from tideline.report.confidences import Calibration, Confidences, calibration, confidences
from tideline.report.fold_tables import Series, table_charts
from tideline.report.graphs import Graph, draw_graph
from tideline.report.graphs import height_of as height_of_graph
from tideline.report.maps import ClusterMap, HeatMap, cluster_map, draw_groups, draw_heat
from tideline.report.maps import height_of as height_of_grid
from tideline.report.style import COLOURS, INCHES, MARKS, NAME, WORDS, cut, legend, png_of
from tideline.report.summary import Traffic, score_bars, traffic

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import Container
    from matplotlib.figure import Figure

T = TypeVar("T", bound="Chart | Calibration")
# Each has a name, a title, `seen`: what it shows in a sentence, and `numbers`: the rows behind it, under a header.
Chart = Curves | Bars | Confidences | Traffic | ClusterMap | HeatMap | Graph
Style = dict[str, Any]  # keywords of matplotlib
# Lines without a name of their own have no colour that is a site's own in another chart.
OTHERS, TARGETS = "0.75", "0.25"
# Metrics beside one another: other colours than the sites', as they mean something else (Tol's muted ones).
TONES = ("#332288", "#ddcc77", "#117733", "#88ccee", "#cc6677", "#999933", "#882255", "#44aa99", "#aa4499")
HATCHES = ("", "//", "", "..", "\\\\", "xx", "", "--")
TICKS = 8
MARKED = 12  # of a line's points
TITLE = 58  # characters of a title in a line
LINE = 0.235  # inches of a legend's line
ALONE = 52  # characters of a name in a legend
ABREAST = 160.0  # points that a name in a legend may be wide for another to stand beside it
WIDE = 1000.0  # what spans more than this is drawn on a logarithmic scale


def charts(result: RunResult) -> tuple[Chart, ...]:
    """Everything that is drawn of a result (docs/result.md)."""
    drawn: list[Chart | None] = [*accuracy_charts(result), *score_bars(result), *metric_charts(result), *family_charts(result)]
    tables = (each for _, charts in table_charts(result) for each in charts)
    drawn += [*confidences(result), cluster_map(result), *tables, traffic(result)]
    return tuple(chart for chart in drawn if chart is not None)


def write_figures(result: RunResult, folder: Path) -> list[Path]:
    """Write each chart of a result as NAME.png, with the numbers behind it as NAME.csv; what was written. Raises OSError.

    The calibration of each site is numbers alone, without a picture.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, chart in named((*charts(result), *filter(None, [calibration(result)]))):
        if not isinstance(chart, Calibration):
            written.append(folder / f"{name}.png")
            written[-1].write_bytes(png(chart))
        written.append(folder / f"{name}.csv")
        with written[-1].open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(chart.numbers())
    return written


def named(drawn: tuple[T, ...]) -> Iterator[tuple[str, T]]:
    """Each chart with a file name of its own, also where names are compared without case."""
    taken: set[str] = set()
    for chart in drawn:
        base = re.sub(r"[^A-Za-z0-9_-]+", "-", chart.name).strip("-") or "chart"
        name = next(n for n in itertools.chain([base], (f"{base}-{i}" for i in itertools.count(2))) if n.lower() not in taken)
        taken.add(name.lower())
        yield name, chart


@functools.lru_cache(maxsize=64)
def png(chart: Chart) -> bytes:
    """A chart as the bytes of a PNG. Cached, as a page and a folder show the same ones."""
    return png_of(figure_of(chart))


def figure_of(chart: Chart) -> Figure:
    """A chart, drawn. No state of matplotlib's is changed."""
    from matplotlib.figure import Figure

    title = textwrap.wrap(chart.title, TITLE)
    figure = Figure(figsize=(INCHES, height_of(chart) + LINE * max(len(title) - 1, 0)), layout="constrained")
    axes = figure.subplots()
    axes.set_title("\n".join(title), fontsize=WORDS + 1, loc="left", parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=WORDS)
    axes.set_axisbelow(True)
    if isinstance(chart, Curves):
        draw_curves(figure, axes, chart)
    elif isinstance(chart, Bars):
        draw_bars(figure, axes, chart)
    elif isinstance(chart, Confidences):
        draw_confidences(figure, axes, chart)
    elif isinstance(chart, HeatMap):
        draw_heat(figure, axes, chart)
    elif isinstance(chart, Graph):
        draw_graph(axes, chart)
    elif isinstance(chart, ClusterMap):
        groups = draw_groups(axes, chart)
        legend(figure, groups, abreast(groups), ALONE)
    else:
        draw_traffic(figure, axes, chart)
    return figure


def height_of(chart: Chart) -> float:
    """Inches below a title of one line: rows of bars and lines of a legend have the room that their words need."""
    if isinstance(chart, Bars):
        return 1.7 + 0.19 * sum(len(known(row)) + 1 for row in chart.drawn)
    if isinstance(chart, (ClusterMap, HeatMap)):
        return height_of_grid(chart)
    if isinstance(chart, Graph):
        return height_of_graph(chart)
    if isinstance(chart, Curves):
        names = list(dict.fromkeys(words for _, words, _ in styled(chart.drawn, chart.named)))
        names += [f"expected at {band.site}" for band in chart.bands]
        return max(3.7, 2.7 + LINE * -(-len(names) // abreast(names)))
    return 3.4 if isinstance(chart, Confidences) else 1.5 + 0.55 * len(chart.rows)


def draw_curves(figure: Figure, axes: Axes, chart: Curves) -> None:
    """A line per site; targets stand out."""
    handles: dict[str, Artist | Container] = {}
    bands = {band.site: band for band in chart.bands}
    for line, words, style in styled(chart.drawn, chart.named):
        if band := bands.get(line.site):
            scale = 100 if chart.share else 1
            span = axes.axhspan(scale * band.low, scale * band.high, color=style["color"], alpha=0.15, linewidth=0)
            handles[f"expected at {line.site}"] = span
        ys = [100 * y if chart.share else y for _, y in line.points]
        every = max(len(ys) // MARKED, 1)
        (drawn,) = axes.plot([x for x, _ in line.points], ys, markevery=every, markersize=5, clip_on=False, **style)
        handles.setdefault(words, drawn)
    axes.set_xlabel(chart.at, fontsize=WORDS, parse_math=False)
    axes.set_ylabel(chart.axis, fontsize=WORDS, parse_math=False)
    axes.grid(alpha=0.3)
    mark_numbers(axes, chart)
    if chart.share:
        axes.set_ylim(0, 100)
    elif spread(chart) > WIDE:
        axes.set_yscale("log")
    legend(figure, handles, abreast(handles), ALONE)


def mark_numbers(axes: Axes, chart: Curves) -> None:
    """The places of points, below the axes: whole numbers, or, where they are not whole or span much, the values themselves."""
    places = sorted({x for line in chart.drawn for x, _ in line.points})
    if isinstance(chart, Series) and not (all(x == int(x) for x in places) and wide_apart(places) <= WIDE):
        if wide_apart(places) > WIDE:
            axes.set_xscale("symlog", linthresh=next(x for x in places if x > 0))
        if len(places) <= LEGEND:
            axes.set_xticks(places, [f"{x:g}" for x in places])
        axes.set_xlim(places[0], places[-1])
        return
    numbers = [int(x) for x in places]
    first = min(1, numbers[0]) if (chart.x, chart.at) == ROUNDS else numbers[0]
    axes.set_xticks(ticks(numbers, first))
    axes.set_xlim(first, max(numbers[-1], first + 1))


def wide_apart(numbers: list[float]) -> float:
    """The largest of ascending numbers over the smallest above zero; 0 where some are below, or none is above."""
    above = [x for x in numbers if x > 0]
    return above[-1] / above[0] if above and numbers[0] >= 0 else 0.0


def ticks(numbers: list[int], first: int) -> list[int]:
    """Whole numbers to mark: all of a few, of many the axis's first and some round ones."""
    if len(numbers) <= LEGEND:
        return numbers
    span = numbers[-1] - first
    step = next(n * 10**e for e in itertools.count() for n in (1, 2, 5) if span <= TICKS * n * 10**e)
    return [first, *range((first // step + 1) * step, numbers[-1] + 1, step)]


def spread(chart: Curves) -> float:
    """The largest value over the smallest, or 0 where not all are positive."""
    ys = [y for line in chart.drawn for _, y in line.points]
    return max(ys) / min(ys) if min(ys) > 0 else 0.0


def styled(lines: tuple[Line, ...], most: int) -> Iterator[tuple[Line, str, Style]]:
    """How the legend names each line, and how it is drawn: by the site's place in the run, so that it is the same in each chart.

    most: lines that the legend names. What has no name of its own is grey, light or, if it is a target, dark.
    """
    targets = sum(line.target for line in lines)
    for line in lines:
        style: Style = {"linewidth": 2.4, "zorder": 3} if line.target else {"linestyle": "--", "linewidth": 1.4}
        style = style if line.role else {"linewidth": 1.8}  # no site
        if len(lines) <= most or (line.target and targets <= most):
            yield line, line.label, style | style_of(line.place)
        else:
            yield line, "targets" if line.target else "other sites", style | {"color": TARGETS if line.target else OTHERS}


def style_of(place: int) -> Style:
    """Colour and mark of a site. There are 88 of them before the first is used again."""
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKS[place % len(MARKS)]}


def draw_bars(figure: Figure, axes: Axes, chart: Bars) -> None:
    """A group of bars for each site, the first site and the first metric on top; what is not known takes no room."""
    groups = [known(row) for row in chart.drawn]
    tops = list(itertools.accumulate((len(group) + 1 for group in groups), initial=0))
    handles: dict[str, Artist | Container] = {}
    for i, metric in enumerate(chart.metrics):
        widths = {top + list(group).index(i): 100 * group[i] for top, group in zip(tops, groups, strict=False) if i in group}
        style: Style = {"color": TONES[i % len(TONES)], "hatch": HATCHES[i % len(HATCHES)], "edgecolor": "white"}
        handles[metric] = bars = axes.barh(list(widths), list(widths.values()), 0.94, linewidth=0, **style)
        axes.bar_label(bars, [f"{share:.1f}" for share in widths.values()], padding=3, fontsize=WORDS - 2)
    middles = [top + (len(group) - 1) / 2 for top, group in zip(tops, groups, strict=False)]
    axes.set_yticks(middles, [textwrap.fill(row.label, NAME) for row in chart.drawn], parse_math=False)
    axes.set_ylim(tops[-1] - 0.5, -1)
    axes.set_xlim(0, 110)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("accuracy, %", fontsize=WORDS)
    axes.grid(alpha=0.3, axis="x")
    legend(figure, handles, abreast(handles), ALONE)


def known(row: Bar) -> dict[int, float]:
    return {i: value for i, value in enumerate(row.values) if value is not None}


def draw_confidences(figure: Figure, axes: Axes, chart: Confidences) -> None:
    edges = chart.edges
    width = (edges[1] - edges[0]) * 0.44
    middles = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
    handles: dict[str, Artist | Container] = {}
    for words, side, counts, colour, hatch in (
        ("right", -0.5, chart.right, COLOURS[0], ""),
        ("wrong", 0.5, chart.wrong, COLOURS[1], "////"),
    ):
        at, shares = [m + side * width for m in middles], [100 * share for share in chart.shares(counts)]
        handles[words] = axes.bar(at, shares, width, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 105 * chart.top)
    axes.set_xticks([tenth / 10 for tenth in range(11)])
    axes.set_xlabel("confidence: the probability of the class that is predicted", fontsize=WORDS)
    axes.set_ylabel("predictions, %", fontsize=WORDS)
    axes.grid(alpha=0.3, axis="y")
    legend(figure, handles, abreast(handles), ALONE)


def draw_traffic(figure: Figure, axes: Axes, chart: Traffic) -> None:
    at = range(len(chart.rows))
    handles: dict[str, Artist | Container] = {}
    for words, shift, sizes, colour, hatch in (
        ("to a site", -0.2, [row.down for row in chart.rows], COLOURS[0], ""),
        ("from a site", 0.2, [row.up for row in chart.rows], COLOURS[4], "//"),
    ):
        handles[words] = bars = axes.barh([i + shift for i in at], sizes, 0.38, color=colour, hatch=hatch, edgecolor="white")
        axes.bar_label(bars, [size(round(n)) for n in sizes], padding=3, fontsize=WORDS - 1)
    axes.set_yticks(list(at), [row.phase for row in chart.rows], parse_math=False)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    legend(figure, handles, abreast(handles), ALONE)


def abreast(names: Iterable[str]) -> int:
    """How many names stand beside each other in a legend."""
    return 2 if all(wide(cut(name, ALONE)) <= ABREAST for name in names) else 1


@functools.lru_cache(maxsize=1024)
def wide(words: str) -> float:
    """The points that words in a legend are wide."""
    from matplotlib.textpath import TextPath

    if not words.strip():
        return 0.0
    # What could be taken for a formula is about as wide as this.
    return float(TextPath((0, 0), words.replace("$", "S"), size=WORDS).get_extents().width)
