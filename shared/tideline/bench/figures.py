"""Pictures of a grid's results: id and ood of each method with their spread, and their curves over the rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tideline.bench.scores import METRICS, Score, Spread, Status, rows, spread
from tideline.report.charts import average
from tideline.report.style import COLOURS, INCHES, MARKS, NAME, WORDS, cut, legend, png_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import Container
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FIGURES = "figures"
SPAN = 10.0  # of percent that an axis spans at least
TITLES = {"id": "id: the clients' own held-out rows", "ood": "ood: the scored rows of the domain that is left out"}
Curve = list[tuple[int, Spread]]


def write_figures(scores: Sequence[Score], out: Path) -> list[Path]:
    """Write figures/scores.png and, for each d, figures/curves-dN.png; what was written: nothing while no cell is done."""
    done = [score for score in scores if score.status is Status.DONE]
    if not done:
        return []
    folder = out / FIGURES
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {"scores": scores_figure(scores)}
    for d in dict.fromkeys(score.cell.domains for score in done):
        pictures[f"curves-d{d}"] = curves_figure([score for score in scores if score.cell.domains == d], d)
    for name, figure in pictures.items():
        (folder / f"{name}.png").write_bytes(png_of(figure))
    return [folder / f"{name}.png" for name in pictures]


def panels(height: float) -> tuple[Figure, Sequence[Axes]]:
    """A panel for id and one for ood, one above the other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(INCHES, height), layout="constrained")
    axes = list(figure.subplots(len(METRICS), 1))
    for each, metric in zip(axes, METRICS, strict=True):
        each.set_title(TITLES[metric], fontsize=WORDS, loc="left")
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=WORDS)
        each.set_axisbelow(True)
        each.grid(alpha=0.3)
    return figure, axes


def scores_figure(scores: Sequence[Score]) -> Figure:
    """A line a method, a mark for each d at the mean over left-out domains and seeds, and the standard deviation over seeds."""
    made = rows(scores)
    labels, ds = list(dict.fromkeys(row.label for row in made)), list(dict.fromkeys(row.domains for row in made))
    figure, both = panels(2.0 + len(METRICS) * 0.22 * len(labels) * (len(ds) + 0.6))
    handles: dict[str, Artist | Container] = {}
    for axes, metric in zip(both, METRICS, strict=True):
        for row in made:
            if (spread_of := row.all[metric]) is not None:
                i = ds.index(row.domains)
                y = labels.index(row.label) + (i - (len(ds) - 1) / 2) / (len(ds) + 0.6)
                bar = None if spread_of.std is None else [100 * spread_of.std]
                colour, mark = COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)]
                handles[f"d = {row.domains}"] = axes.errorbar(
                    [100 * spread_of.mean], [y], xerr=bar, linestyle="", capsize=3, color=colour, marker=mark
                )
        axes.set_yticks(range(len(labels)), [cut(label, NAME) for label in labels], parse_math=False)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlabel("accuracy, %", fontsize=WORDS)
        axes.set_xlim(widened(*axes.get_xlim()))
    legend(figure, handles, 3)
    return figure


def curves_figure(scores: Sequence[Score], d: int) -> Figure:
    """A line a method: the mean over left-out domains and seeds after each round, in a band of the standard deviation."""
    from matplotlib.ticker import MaxNLocator

    figure, both = panels(6.4)
    figure.suptitle(f"Accuracy over the rounds, d = {d}", fontsize=WORDS + 1, x=0.0, ha="left")
    handles: dict[str, Artist | Container] = {}
    for i, label in enumerate(dict.fromkeys(score.cell.label for score in scores)):
        own = [score for score in scores if score.cell.label == label]
        for axes, metric in zip(both, METRICS, strict=True):
            if curve := list(curve_of(own, metric)):
                handles[label] = draw(axes, curve, i)
    for axes in both:
        axes.set_xlabel("round", fontsize=WORDS)
        axes.set_ylabel("accuracy, %", fontsize=WORDS)
        axes.set_ylim(widened(*axes.get_ylim()))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(figure, handles, 3)
    return figure


def widened(low: float, high: float) -> tuple[float, float]:
    """The limits of an axis of percents, so far apart that noise does not look like a leap."""
    more = max(SPAN - (high - low), 0.0) / 2
    return low - more, high + more


def draw(axes: Axes, curve: Curve, place: int) -> Line2D:
    """One line with its band; a method has the same colour in every picture."""
    xs, means = [x for x, _ in curve], [100 * each.mean for _, each in curve]
    stds = [100 * (each.std or 0.0) for _, each in curve]
    colour = COLOURS[place % len(COLOURS)]
    low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
    axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
    every = max(len(xs) // 12, 1)
    (line,) = axes.plot(xs, means, color=colour, marker=MARKS[place % len(MARKS)], markevery=every, markersize=5)
    return line


def curve_of(scores: Sequence[Score], metric: str) -> Iterator[tuple[int, Spread]]:
    """A method's spread over seeds after each round in which a whole seed, all its left-out domains, was scored."""
    seeds: dict[int, list[dict[int, float | None]]] = {}
    for score in scores:
        seeds.setdefault(score.cell.seed, []).append({p.round: getattr(p, metric) for p in score.curve})
    for x in sorted({p.round for score in scores for p in score.curve}):
        value = spread([average([curve.get(x) for curve in curves]) for curves in seeds.values()])
        if value is not None:
            yield x, value
