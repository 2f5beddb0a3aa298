"""Graphs, drawn: senders to the left, receivers to the right, an arrow for each weight; or all in a circle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tideline.report.graphs import Graph, Link, Node
from tideline.report.style import COLOURS, WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.27  # inches of a row
TALL = 9.0  # inches of all rows at most
MOST_WORDED = 48  # arrows with words beside them
LEFT, TIP, RIGHT = 0.30, 0.66, 0.88  # where arrows begin and end, and where a receiver's mark stands; words between
INK, PALE = "#1c2733", "#d9dee3"
THIN, THICK = 0.6, 3.0  # points of an arrow, by its weight
ROUND = 5.2  # inches of a circle


def height_of(graph: Graph) -> float:
    """Inches."""
    return 0.9 + min(max(rows_of(graph) * ROW, 1.0), TALL) if graph.two_sided else ROUND


def rows_of(graph: Graph) -> int:
    """Rows of the longer side."""
    return max(len(graph.senders), sum(slots(graph).values()))


def worded(graph: Graph) -> bool:
    """Whether there is room for words beside each arrow."""
    return len(graph.links) <= MOST_WORDED


def slots(graph: Graph) -> dict[str, int]:
    """The rows that each receiver has: one for each of its arrows, if these have words."""
    return {node.name: max(len(graph.incoming(node.name)), 1) if worded(graph) else 1 for node in graph.receivers}


def draw_graph(axes: Axes, graph: Graph) -> None:
    """A graph, whichever way it is laid out."""
    axes.set_axis_off()
    if graph.two_sided:
        draw_sides(axes, graph)
    else:
        draw_circle(axes, graph)


def draw_sides(axes: Axes, graph: Graph) -> None:
    """Senders face receivers. Arrows end in rows of their own, in which their words stand."""
    rows = rows_of(graph)
    axes.set_xlim(0, 1.24)
    axes.set_ylim(rows - 0.4, -1.2)
    for x, words in ((LEFT, "sources"), (RIGHT, "targets")):
        axes.text(x, -0.85, words, ha="center", va="center", fontsize=WORDS - 1, color="#51606f")
    starts = dict(zip((node.name for node in graph.senders), spread(len(graph.senders), rows), strict=True))
    colours = colours_of(graph)
    for node in graph.senders:
        axes.text(LEFT - 0.03, starts[node.name], node.label, ha="right", va="center", fontsize=WORDS - 1, parse_math=False)
        axes.plot(LEFT, starts[node.name], "o", markersize=7, color=colours[node.name], zorder=3)
    for node, ends in receivers(graph, rows):
        middle = sum(ends) / len(ends)
        axes.plot([RIGHT, RIGHT], [ends[0] - 0.32, ends[-1] + 0.32], linewidth=4, color=INK, solid_capstyle="butt", zorder=3)
        axes.text(RIGHT + 0.03, middle, node.label, ha="left", va="center", fontsize=WORDS - 1, parse_math=False)
        for link, end in zip(graph.incoming(node.name), ends if worded(graph) else ends * len(graph.links), strict=False):
            arrow(axes, (LEFT + 0.012, starts[link.sender]), (TIP if worded(graph) else RIGHT - 0.015, end), link, colours)
            if worded(graph):
                axes.text(TIP + 0.01, end, link.words, ha="left", va="center", fontsize=WORDS - 2.5, color=INK)


def spread(count: int, rows: int) -> list[float]:
    """Where so many stand in so many rows, evenly."""
    return [(i + 0.5) * rows / count - 0.5 for i in range(count)]


def receivers(graph: Graph, rows: int) -> Iterator[tuple[Node, list[float]]]:
    """Each receiver with the rows of its arrows."""
    wanted = slots(graph)
    places = iter(spread(sum(wanted.values()), rows))
    for node in graph.receivers:
        yield node, [next(places) for _ in range(wanted[node.name])]


def colours_of(graph: Graph) -> dict[str, str]:
    """Each sender's colour: a site's own, as in every chart."""
    return {node.name: COLOURS[node.place % len(COLOURS)] for node in graph.nodes}


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], link: Link, colours: dict[str, str], bend: float = 0.0
) -> None:
    """An arrow of its sender's colour, the wider the more it weighs."""
    style = {
        "arrowstyle": "-|>,head_width=0.22,head_length=0.4",
        "connectionstyle": f"arc3,rad={bend}",
        "shrinkA": 0,
        "shrinkB": 0,
    }
    width = THIN + (THICK - THIN) * min(link.weight, 1.0)
    drawn = style | {"color": colours[link.sender], "linewidth": width, "alpha": 0.35 + 0.6 * min(link.weight, 1.0)}
    axes.annotate("", xy=end, xytext=start, arrowprops=drawn, zorder=2)


def draw_circle(axes: Axes, graph: Graph) -> None:
    """All in a circle, the first on top; the words of an arrow stand nearer to its end."""
    axes.set_xlim(-1.6, 1.6)
    axes.set_ylim(-1.35, 1.35)
    axes.set_aspect("equal")
    nodes, colours = graph.nodes, colours_of(graph)
    at = {node.name: point(i / len(nodes)) for i, node in enumerate(nodes)}
    for node in nodes:
        x, y = at[node.name]
        axes.plot(x, y, "o", markersize=8, color=colours[node.name], zorder=3)
        side = "center" if abs(x) < 0.15 else ("left" if x > 0 else "right")
        axes.text(1.08 * x, 1.1 * y, node.label, ha=side, va="center", fontsize=WORDS - 2, parse_math=False)
    for link in graph.links:
        (x0, y0), (x1, y1) = at[link.sender], at[link.receiver]
        arrow(axes, (x0, y0), (x0 + 0.95 * (x1 - x0), y0 + 0.95 * (y1 - y0)), link, colours, bend=0.12)
        if worded(graph):
            # Beside its arrow, which bends to the right of its way: so both ways between two have words of their own.
            x, y = x0 + 0.62 * (x1 - x0) + 0.06 * (y1 - y0), y0 + 0.62 * (y1 - y0) - 0.06 * (x1 - x0)
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.8}
            axes.text(x, y, link.words, ha="center", va="center", fontsize=WORDS - 4, color=INK, bbox=box)


def point(turn: float) -> tuple[float, float]:
    """A point on the circle, clockwise from its top, by its share of a turn."""
    return math.sin(2 * math.pi * turn), math.cos(2 * math.pi * turn)
