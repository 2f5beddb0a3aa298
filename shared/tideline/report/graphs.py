"""Tables that are graphs: rows send, columns receive, values are weights. As plain values; report.arrows draws them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tideline.report.maps import TITLE, Rounds, beside, natural, order_of, title_of
from tideline.report.style import cut

GRAPH = "graph"
MOST_NODES = 40  # of more devices no picture can be read
# Of a round's table of this name the rows `A to B` say what the arrow from A to B costs, under this column.
LINKS, JOULES = "links", "joules"


@dataclass(frozen=True)
class Node:
    """Who sends or receives. place: in the run's roster, from which its colour follows."""

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
        """What stands beside it."""
        return f"{self.weight:.2f}" if self.joules is None else f"{self.weight:.2f}, {self.joules:.3g} J"


@dataclass(frozen=True)
class Graph:
    """Who sends to whom, in the order in which they are drawn. Where nobody does both, senders face receivers."""

    name: str
    title: str
    senders: tuple[Node, ...]
    receivers: tuple[Node, ...]
    links: tuple[Link, ...]

    @property
    def two_sided(self) -> bool:
        """Whether nobody sends and receives."""
        return not {node.name for node in self.senders} & {node.name for node in self.receivers}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All, each once."""
        return tuple(dict.fromkeys((*self.senders, *self.receivers)))

    def incoming(self, receiver: str) -> tuple[Link, ...]:
        """The arrows to one, in the order of the senders."""
        place = {node.name: i for i, node in enumerate(self.senders)}
        return tuple(sorted((link for link in self.links if link.receiver == receiver), key=lambda link: place[link.sender]))

    def seen(self) -> str:
        """What is seen, in a sentence."""
        told = f"{self.title}: {counted(len(self.links), 'link')} from {counted(len({e.sender for e in self.links}), 'sender')}"
        told += f" to {counted(len({e.receiver for e in self.links}), 'receiver')}"
        costs = [link.joules for link in self.links if link.joules is not None]
        told += f", of {sum(costs):.3g} J in all" if costs else ""
        if not self.links:
            return f"{told}."
        most = max(self.links, key=lambda link: link.weight)
        return f"{told}; the largest weight is {most.weight:.2f}, from {cut(most.sender)} to {cut(most.receiver)}."

    def numbers(self) -> Iterator[tuple[Any, ...]]:
        """What is drawn, as rows under a header."""
        yield "from", "to", "weight", JOULES
        yield from ((e.sender, e.receiver, e.weight, "" if e.joules is None else e.joules) for e in self.links)


def counted(n: int, what: str) -> str:
    """So many of something."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def is_graph(table: Mapping[str, Any]) -> bool:
    """Whether a table is drawn as arrows: it says so, and there are not too many devices."""
    return table.get("drawn") == GRAPH and len({*table["rows"], *table["columns"]}) <= MOST_NODES


def costs_in(closed: Mapping[str, Any]) -> dict[str, float]:
    """`A to B` -> joules, as a round's table of links tells it; nothing where there is none."""
    table = (closed.get("tables") or {}).get(LINKS)
    if table is None or JOULES not in table["columns"]:
        return {}
    at = table["columns"].index(JOULES)
    return {row: line[at] for row, line in zip(table["rows"], table["values"], strict=True)}


def shown_by_arrows(closed: Mapping[str, Any]) -> bool:
    """Whether a round's table of links says only what stands beside the arrows of another."""
    arrows = {
        called(row, column)
        for table in (closed.get("tables") or {}).values()
        if is_graph(table)
        for row, line in zip(table["rows"], table["values"], strict=True)
        for column, value in zip(table["columns"], line, strict=True)
        if value > 0
    }
    return bool(costs_in(closed)) and costs_in(closed).keys() <= arrows


def called(sender: str, receiver: str) -> str:
    """A link, as the rows of a table of links are called."""
    return f"{sender} to {receiver}"


def graphs(result: Mapping[str, Any], phase: str, name: str, told: Rounds) -> tuple[Graph, ...]:
    """The first, the middle and the last of a table's rounds."""
    chosen = [told[i] for i in sorted({0, len(told) // 2, len(told) - 1})]
    costs = {closed["round"]: costs_in(closed) for closed in result["phases"] if closed["name"] == phase}
    nodes = nodes_of(result, [name for _, table in chosen for name in (*table["rows"], *table["columns"])])
    return tuple(
        laid_out(
            f"{phase[:TITLE]}-{name[:TITLE]}-round-{number}",
            f"{title_of(phase, name)}, round {number}",
            nodes,
            links_in(table, costs.get(number, {})),
        )
        for number, table in chosen
    )


def nodes_of(result: Mapping[str, Any], names: Iterable[str]) -> tuple[Node, ...]:
    """Rows and columns, each once: sites as in the maps, by group and name, and with their domains; what is no site as told."""
    domains, place = {c["name"]: c["domain"] for c in result["clients"]}, order_of(result)
    roster = {c["name"]: i for i, c in enumerate(result["clients"])}
    found = list(dict.fromkeys(names))
    ordered = sorted(found, key=lambda name: place[name]) if set(found) <= set(place) else found
    return tuple(Node(name, beside(name, domains.get(name)), roster.get(name, i)) for i, name in enumerate(ordered))


def links_in(table: Mapping[str, Any], costs: Mapping[str, float]) -> tuple[Link, ...]:
    """The weights above zero; a device sends nothing to itself."""
    return tuple(
        Link(row, column, value, costs.get(called(row, column)))
        for row, line in zip(table["rows"], table["values"], strict=True)
        for column, value in zip(table["columns"], line, strict=True)
        if value > 0 and row != column
    )


def laid_out(name: str, title: str, nodes: Sequence[Node], links: tuple[Link, ...]) -> Graph:
    """A graph whose receivers stand in the order of those that they get most from, so that arrows seldom cross."""
    sending, receiving = {link.sender for link in links}, {link.receiver for link in links}
    senders = tuple(node for node in nodes if node.name in sending or node.name not in receiving)
    place = {node.name: i for i, node in enumerate(senders)}
    most = {link.receiver: place[link.sender] for link in sorted(links, key=lambda link: link.weight)}
    receivers = sorted((node for node in nodes if node.name in receiving), key=lambda node: most[node.name])
    ends = {node.name: i for i, node in enumerate(receivers)}
    ordered = sorted(links, key=lambda link: (ends[link.receiver], place[link.sender]))
    return Graph(name=name, title=title, senders=senders, receivers=tuple(receivers), links=tuple(ordered))


def planned_graph(made: Mapping[str, Any]) -> Graph | None:
    """A plan of links as a graph; None for more devices than can be drawn."""
    if len(made["devices"]) > MOST_NODES:
        return None
    nodes = tuple(Node(name, cut(name), i) for i, name in enumerate(sorted(made["devices"], key=natural)))
    links = tuple(Link(each["from"], each["to"], each["weight"], each["joules"]) for each in made["alpha"])
    return laid_out("links", "Weight of each source in each target", nodes, links)
