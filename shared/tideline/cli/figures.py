"""Charts as PNG: for a page, or as files with the numbers behind them."""

from __future__ import annotations

import csv
import functools
import io
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tideline.cli.charts import Curves, Line, accuracy_charts, family_charts, metric_charts
from tideline.cli.sums import Traffic, traffic
from tideline.cli.tables import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Chart = Curves | Traffic
# With more lines than this the legend names the targets only, and with more targets nobody.
LEGEND = 12
# Narrow, so that the words can still be read where the page is as wide as a hand.
INCHES, DPI, WORDS = 6.0, 200, 10.5
# Colours that differ in lightness too (Okabe and Ito), and marks for those who see none.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a6d00")
MARKS = "osD^vPX*<>hp"
OTHERS = "0.75"
MARKED = 12  # of a line's points
WIDE = 1000.0  # what spans more than this is drawn on a logarithmic scale


def charts(result: Mapping[str, Any]) -> tuple[Chart, ...]:
    """Everything that is drawn of a result (docs/result.md)."""
    sent = traffic(result)
    return (*accuracy_charts(result), *metric_charts(result), *family_charts(result), *((sent,) if sent else ()))


def write_figures(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write each chart of a result as NAME.png, with the numbers behind it as NAME.csv; what was written. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, chart in named(charts(result)):
        picture, numbers = folder / f"{name}.png", folder / f"{name}.csv"
        picture.write_bytes(png(chart))
        with numbers.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(chart.numbers())
        written += [picture, numbers]
    return written


def named(drawn: tuple[Chart, ...]) -> Iterator[tuple[str, Chart]]:
    """Each chart with a file name of its own, also where names are compared without case."""
    taken: set[str] = set()
    for chart in drawn:
        base = re.sub(r"[^A-Za-z0-9_-]+", "-", chart.name).strip("-") or "chart"
        name = next(n for n in itertools.chain([base], (f"{base}-{i}" for i in itertools.count(2))) if n.lower() not in taken)
        taken.add(name.lower())
        yield name, chart


@functools.lru_cache(maxsize=64)
def png(chart: Chart) -> bytes:
    """A chart as the bytes of a PNG. Kept, as a page and a folder show the same ones."""
    out = io.BytesIO()
    figure_of(chart).savefig(out, format="png", dpi=DPI, metadata={"Software": None})
    return out.getvalue()


def figure_of(chart: Chart) -> Figure:
    """A chart, drawn. No state of matplotlib's is changed."""
    from matplotlib.figure import Figure

    height = 3.7 if isinstance(chart, Curves) else 1.5 + 0.55 * len(chart.rows)
    figure = Figure(figsize=(INCHES, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(chart.title, fontsize=WORDS + 1, loc="left", parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=WORDS)
    axes.set_axisbelow(True)
    if isinstance(chart, Curves):
        draw_curves(figure, axes, chart)
    else:
        draw_traffic(figure, axes, chart)
    return figure


def draw_curves(figure: Figure, axes: Axes, chart: Curves) -> None:
    """A line per site; targets stand out."""
    from matplotlib.ticker import MaxNLocator

    handles: dict[str, Any] = {}
    for line, words, style in styled(chart.lines):
        ys = [100 * y if chart.share else y for _, y in line.points]
        (drawn,) = axes.plot([x for x, _ in line.points], ys, markevery=max(len(ys) // MARKED, 1), markersize=5, **style)
        handles.setdefault(words, drawn)
    axes.set_xlabel(chart.at, fontsize=WORDS, parse_math=False)
    axes.set_ylabel(f"{chart.y}, %" if chart.share else chart.y, fontsize=WORDS, parse_math=False)
    axes.grid(alpha=0.3)
    numbers = sorted({x for line in chart.lines for x, _ in line.points})
    if len(numbers) <= LEGEND:
        axes.set_xticks(numbers)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(numbers) == 1:
        axes.set_xlim(numbers[0] - 1, numbers[0] + 1)
    if chart.share:
        axes.set_ylim(0, 102)
    elif spread(chart) > WIDE:
        axes.set_yscale("log")
    legend(figure, handles)


def spread(chart: Curves) -> float:
    """The largest value over the smallest, or 0 where not all are positive."""
    ys = [y for line in chart.lines for _, y in line.points]
    return max(ys) / min(ys) if min(ys) > 0 else 0.0


def styled(lines: tuple[Line, ...]) -> Iterator[tuple[Line, str, dict[str, Any]]]:
    """How the legend names each line, and how it is drawn. What has no name of its own is grey or, if it is a target, blue."""
    targets = sum(line.target for line in lines)
    for i, line in enumerate(lines):
        style: dict[str, Any] = {"linewidth": 2.4, "zorder": 3} if line.target else {"linestyle": "--", "linewidth": 1.4}
        if len(lines) <= LEGEND or (line.target and targets <= LEGEND):
            yield line, line.label, style | {"color": COLOURS[i % len(COLOURS)], "marker": MARKS[i % len(MARKS)]}
        else:
            yield line, "targets" if line.target else "other sites", style | {"color": COLOURS[0] if line.target else OTHERS}


def draw_traffic(figure: Figure, axes: Axes, chart: Traffic) -> None:
    """Two bars a phase, the first phase on top."""
    at = range(len(chart.rows))
    handles: dict[str, Any] = {}
    for words, shift, sizes, colour, hatch in (
        ("to a site", -0.2, [row.down for row in chart.rows], COLOURS[0], ""),
        ("from a site", 0.2, [row.up for row in chart.rows], COLOURS[4], "//"),
    ):
        bars = axes.barh([i + shift for i in at], sizes, 0.38, color=colour, hatch=hatch, edgecolor="white")
        handles[words] = bars
        axes.bar_label(bars, [size(round(n)) for n in sizes], padding=3, fontsize=WORDS - 1)
    axes.set_yticks(list(at), [row.phase for row in chart.rows], parse_math=False)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    legend(figure, handles)


def legend(figure: Figure, handles: Mapping[str, Any]) -> None:
    """Below the axes, where no line can run."""
    made = figure.legend(list(handles.values()), list(handles), loc="outside lower left", ncols=2, frameon=False, fontsize=WORDS)
    for text in made.get_texts():
        text.set_parse_math(False)
