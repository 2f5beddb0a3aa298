"""Tables that are graphs: rows send, columns receive, values are weights. First as plain values, then how they are drawn:
senders to the left and receivers to the right, with an arrow for each weight; or all in a circle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tideline.client.answers import ClosedRound, LinkPlan, RunResult, TableData
from tideline.client.output import counted
from tideline.report.maps import Rounds, beside, cells_of, file_of, natural, order_of, picked, title_of
from tideline.report.style import COLOURS, INK, WORDS, Row, cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRAPH = "graph"
MOST_NODES = 40  # of more devices no picture can be read
# Of a round's table of this name the rows `A to B` say what the arrow from A to B costs, under this column.
LINKS, JOULES = "links", "joules"
ROW = 0.27  # inches of a row
TALL = 9.0  # inches of all rows at most
ALIKE = 0.05  # by less than this weights do not differ in a way that is worth a picture
MOST_WORDED = 48  # arrows with words beside them
LEFT, TIP, RIGHT = 0.30, 0.66, 0.88  # where arrows begin and end, and where a receiver's mark stands; words between
THIN, THICK = 0.6, 3.0  # points of an arrow, by its weight
ROUND = 5.2  # inches of a circle


@dataclass(frozen=True)
class Node:
    """A sender or receiver. place: in the run's roster, which decides its colour."""

    name: str
    label: str
    place: int


@dataclass(frozen=True)
class Link:
    """An arrow of a weight above zero; joules: what it costs, where that is known."""

    sender: str
    receiver: str
    weight: float
    joules: float | None = None

    @property
    def words(self) -> str:
        return f"{self.weight:.2f}" if self.joules is None else f"{self.weight:.2f}, {self.joules:.3g} J"


@dataclass(frozen=True)
class Graph:
    """Senders and receivers, in the order in which they are drawn."""

    name: str
    title: str
    senders: tuple[Node, ...]
    receivers: tuple[Node, ...]
    links: tuple[Link, ...]

    @property
    def two_sided(self) -> bool:
        """Whether no node both sends and receives; then senders face receivers."""
        return not {node.name for node in self.senders} & {node.name for node in self.receivers}

    @property
    def worded(self) -> bool:
        """Whether arrows have words beside them."""
        return len(self.links) <= MOST_WORDED

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(dict.fromkeys((*self.senders, *self.receivers)))

    def incoming(self, receiver: str) -> tuple[Link, ...]:
        """The arrows to one, in the order of the senders."""
        place = {node.name: i for i, node in enumerate(self.senders)}
        return tuple(sorted((link for link in self.links if link.receiver == receiver), key=lambda link: place[link.sender]))

    def seen(self) -> str:
        text = f"{self.title}: {counted(len(self.links), 'link')} from {counted(len({e.sender for e in self.links}), 'sender')}"
        text += f" to {counted(len({e.receiver for e in self.links}), 'receiver')}"
        costs = [link.joules for link in self.links if link.joules is not None]
        text += f", of {sum(costs):.3g} J in all" if costs else ""
        if not self.links:
            return f"{text}."
        most = max(self.links, key=lambda link: link.weight)
        return f"{text}; the largest weight is {most.weight:.2f}, from {cut(most.sender)} to {cut(most.receiver)}."

    @property
    def alike(self) -> bool:
        """Whether every receiver gets about the same from several: a sentence says as much. Costs are worth arrows."""
        if not self.links or any(link.joules is not None for link in self.links):
            return False
        of = [[link.weight for link in self.incoming(node.name)] for node in self.receivers]
        return all(len(each) == len(self.senders) > 1 and max(each) - min(each) < ALIKE for each in of)

    def even(self) -> str:
        """What there is to say where all weigh about the same."""
        mean = sum(link.weight for link in self.links) / len(self.links)
        return f"{self.title}: all {len(self.senders)} senders weigh about the same, {mean:.2f}, at every receiver."

    def numbers(self) -> Iterator[Row]:
        yield "from", "to", "weight", JOULES
        yield from ((e.sender, e.receiver, e.weight, "" if e.joules is None else e.joules) for e in self.links)


def is_graph(table: TableData) -> bool:
    """Whether a table is drawn as arrows: it says so, and has not too many devices."""
    return table.get("drawn") == GRAPH and len({*table["rows"], *table["columns"]}) <= MOST_NODES


def costs_in(closed: ClosedRound) -> dict[str, float]:
    """`A to B` -> joules, from a round's table of links; empty if there is none."""
    table = (closed.get("tables") or {}).get(LINKS)
    return {row: value for row, column, value in cells_of(table) if column == JOULES} if table else {}


def shown_by_arrows(closed: ClosedRound) -> bool:
    """Whether a round's table of links has only numbers that stand beside the arrows of another."""
    costs, drawn = costs_in(closed), filter(is_graph, (closed.get("tables") or {}).values())
    arrows = {f"{row} to {column}" for table in drawn for row, column, value in cells_of(table) if value > 0}
    return bool(costs) and costs.keys() <= arrows


def graphs(result: RunResult, phase: str, name: str, rounds: Rounds) -> tuple[Graph, ...]:
    """The first, the middle and the last of a table's rounds."""
    chosen = picked(rounds)
    costs = {closed["round"]: costs_in(closed) for closed in result["phases"] if closed["name"] == phase}
    nodes = nodes_of(result, [name for _, table in chosen for name in (*table["rows"], *table["columns"])])
    title = title_of(phase, name)
    return tuple(
        laid_out(file_of(phase, name, number), f"{title}, round {number}", nodes, links_in(table, costs.get(number, {})))
        for number, table in chosen
    )


def nodes_of(result: RunResult, names: Iterable[str]) -> tuple[Node, ...]:
    """Rows and columns, each once: sites as in the maps, by group and name, with their domains; others in their order."""
    domains, place = {c["name"]: c["domain"] for c in result["clients"]}, order_of(result)
    roster = {c["name"]: i for i, c in enumerate(result["clients"])}
    unique = list(dict.fromkeys(names))
    ordered = sorted(unique, key=lambda name: place[name]) if set(unique) <= set(place) else unique
    return tuple(Node(name, beside(name, domains.get(name)), roster.get(name, i)) for i, name in enumerate(ordered))


def links_in(table: TableData, costs: Mapping[str, float]) -> tuple[Link, ...]:
    """The weights above zero; a device sends nothing to itself."""
    sent = ((row, column, value) for row, column, value in cells_of(table) if value > 0 and row != column)
    return tuple(Link(row, column, value, costs.get(f"{row} to {column}")) for row, column, value in sent)


def laid_out(name: str, title: str, nodes: Sequence[Node], links: tuple[Link, ...]) -> Graph:
    """A graph whose receivers are ordered by the senders that they get most from, so that arrows seldom cross."""
    sending, receiving = {link.sender for link in links}, {link.receiver for link in links}
    senders = tuple(node for node in nodes if node.name in sending or node.name not in receiving)
    place = {node.name: i for i, node in enumerate(senders)}
    most = {link.receiver: place[link.sender] for link in sorted(links, key=lambda link: link.weight)}
    receivers = sorted((node for node in nodes if node.name in receiving), key=lambda node: most[node.name])
    ends = {node.name: i for i, node in enumerate(receivers)}
    ordered = sorted(links, key=lambda link: (ends[link.receiver], place[link.sender]))
    return Graph(name=name, title=title, senders=senders, receivers=tuple(receivers), links=tuple(ordered))


def planned_graph(plan: LinkPlan) -> Graph | None:
    """A plan of links as a graph; None for more devices than can be drawn."""
    if len(plan["devices"]) > MOST_NODES:
        return None
    nodes = tuple(Node(name, cut(name), i) for i, name in enumerate(sorted(plan["devices"], key=natural)))
    links = tuple(Link(each["from"], each["to"], each["weight"], each["joules"]) for each in plan["alpha"])
    return laid_out("links", "Weight of each source in each target", nodes, links)


def height_of(graph: Graph) -> float:
    return 0.9 + min(max(rows_of(graph) * ROW, 1.0), TALL) if graph.two_sided else ROUND


def rows_of(graph: Graph) -> int:
    return max(len(graph.senders), sum(slots(graph).values()))


def slots(graph: Graph) -> dict[str, int]:
    """The rows that each receiver has: one for each of its arrows, if these have words."""
    return {node.name: max(len(graph.incoming(node.name)), 1) if graph.worded else 1 for node in graph.receivers}


def draw_graph(axes: Axes, graph: Graph) -> None:
    axes.set_axis_off()
    draw_sides(axes, graph) if graph.two_sided else draw_circle(axes, graph)


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
    wanted = slots(graph)
    places = iter(spread(sum(wanted.values()), rows))
    for node in graph.receivers:
        ends = list(itertools.islice(places, wanted[node.name]))
        middle = sum(ends) / len(ends)
        axes.plot([RIGHT, RIGHT], [ends[0] - 0.32, ends[-1] + 0.32], linewidth=4, color=INK, solid_capstyle="butt", zorder=3)
        axes.text(RIGHT + 0.03, middle, node.label, ha="left", va="center", fontsize=WORDS - 1, parse_math=False)
        for link, end in zip(graph.incoming(node.name), ends if graph.worded else ends * len(graph.links), strict=False):
            arrow(axes, (LEFT + 0.012, starts[link.sender]), (TIP if graph.worded else RIGHT - 0.015, end), link, colours)
            if graph.worded:
                axes.text(TIP + 0.01, end, link.words, ha="left", va="center", fontsize=WORDS - 2.5, color=INK)


def spread(count: int, rows: int) -> list[float]:
    """Where so many stand in so many rows, evenly."""
    return [(i + 0.5) * rows / count - 0.5 for i in range(count)]


def colours_of(graph: Graph) -> dict[str, str]:
    return {node.name: COLOURS[node.place % len(COLOURS)] for node in graph.nodes}


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], link: Link, colours: dict[str, str], bend: float = 0.0
) -> None:
    """An arrow of its sender's colour, the wider the more it weighs."""
    weight = min(link.weight, 1.0)
    shape = {"arrowstyle": "-|>,head_width=0.22,head_length=0.4", "connectionstyle": f"arc3,rad={bend}"}
    style = {"color": colours[link.sender], "linewidth": THIN + (THICK - THIN) * weight, "alpha": 0.35 + 0.6 * weight}
    axes.annotate("", xy=end, xytext=start, arrowprops=shape | style | {"shrinkA": 0, "shrinkB": 0}, zorder=2)


def draw_circle(axes: Axes, graph: Graph) -> None:
    """All in a circle, clockwise, the first on top; the words of an arrow stand nearer to its end."""
    axes.set_xlim(-1.6, 1.6)
    axes.set_ylim(-1.35, 1.35)
    axes.set_aspect("equal")
    nodes, colours = graph.nodes, colours_of(graph)
    turns = {node.name: 2 * math.pi * (i / len(nodes)) for i, node in enumerate(nodes)}
    at = {name: (math.sin(turn), math.cos(turn)) for name, turn in turns.items()}
    for node in nodes:
        x, y = at[node.name]
        axes.plot(x, y, "o", markersize=8, color=colours[node.name], zorder=3)
        side = "center" if abs(x) < 0.15 else ("left" if x > 0 else "right")
        axes.text(1.08 * x, 1.1 * y, node.label, ha=side, va="center", fontsize=WORDS - 2, parse_math=False)
    for link in graph.links:
        (x0, y0), (x1, y1) = at[link.sender], at[link.receiver]
        arrow(axes, (x0, y0), (x0 + 0.95 * (x1 - x0), y0 + 0.95 * (y1 - y0)), link, colours, bend=0.12)
        if graph.worded:
            # Beside its arrow, which bends to the right of its way: so both ways between two have words of their own.
            x, y = x0 + 0.62 * (x1 - x0) + 0.06 * (y1 - y0), y0 + 0.62 * (y1 - y0) - 0.06 * (x1 - x0)
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.8}
            axes.text(x, y, link.words, ha="center", va="center", fontsize=WORDS - 4, color=INK, bbox=box)
