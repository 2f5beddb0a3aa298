"""Which site is in which group, and the tables that folds told, as plain values; report.grids draws them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tideline.report.style import cut

MOST_ROUNDS = 8  # columns of a map of groups that are drawn
MOST_SAID = 12  # groups whose sizes are said
TITLE = 60  # characters of a table's name in a title
SITE, DOMAIN = 14, 10  # characters beside a row that has both
Closed = Mapping[str, Any]
Rounds = Sequence[tuple[int, Mapping[str, Any]]]  # (round, table), as plain data


@dataclass(frozen=True)
class Member:
    """A site, its true domain where it is known, and its group in each column; None: in none."""

    site: str
    domain: str | None
    groups: tuple[str | None, ...]

    @property
    def label(self) -> str:
        """The site beside a row."""
        return beside(self.site, self.domain)


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
        """The columns that there is room for: the first, the last, and some between."""
        last = len(self.rounds) - 1
        return tuple(range(last + 1)) if last < MOST_ROUNDS else tuple(i * last // (MOST_ROUNDS - 1) for i in range(MOST_ROUNDS))

    def seen(self) -> str:
        """What is seen, in a sentence."""
        sizes = [sum(row.groups[-1] == group for row in self.rows) for group in self.groups]
        last = ", ".join(f"{cut(g)} has {n}" for g, n in zip(self.groups, sizes, strict=True) if n)
        last = last if len(self.groups) <= MOST_SAID else f"there are {sum(map(bool, sizes))}"
        changes = {1: "never changed", 2: "changed once"}.get(len(self.rounds), f"changed {len(self.rounds) - 1} times")
        return f"{self.title}: a row for each site, a colour for each group; the groups {changes}. At the end {last}."

    def numbers(self) -> Iterator[tuple[Any, ...]]:
        """The whole map, as rows under a header."""
        yield "site", "domain", *self.rounds
        yield from ((row.site, row.domain or "", *(group or "" for group in row.groups)) for row in self.rows)


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
        """What is seen, in a sentence."""
        cells = [
            (v, r, c) for r, line in zip(self.rows, self.values, strict=True) for c, v in zip(self.columns, line, strict=True)
        ]
        (least, *_), (most, row, column) = min(cells), max(cells, key=lambda cell: cell[0])
        size = f"{len(self.rows)} rows, {len(self.columns)} columns"
        return f"{self.title}: {size}; from {least:.3g} to {most:.3g}, which {cut(row)} has under {cut(column)}."

    def numbers(self) -> Iterator[tuple[Any, ...]]:
        """What is drawn, as rows under a header."""
        yield "row", *self.columns
        yield from ((row, *line) for row, line in zip(self.rows, self.values, strict=True))


def cluster_map(result: Mapping[str, Any]) -> ClusterMap | None:
    """The map of a result's groups; None where no round told any."""
    told = [closed for closed in result.get("phases") or () if closed.get("groups")]
    if not told:
        return None
    each = [(closed, groups_by_site(closed)) for closed in told]
    changed = [each[0], *(b for a, b in itertools.pairwise(each) if a[1] != b[1])]
    several = len({closed["name"] for closed in told}) > 1
    rounds = tuple(f"{closed['name']} {closed['round']}" if several else str(closed["round"]) for closed, _ in changed)
    names = {group for _, groups in changed for group in groups.values()}
    members = (Member(c["name"], c["domain"], tuple(g.get(c["name"]) for _, g in changed)) for c in result["clients"])
    place = order_of(result)
    rows = tuple(sorted(members, key=lambda row: place[row.site]))
    agreement = (result.get("groups") or {}).get("adjusted_rand_index")
    return ClusterMap(tuple(sorted(names, key=natural)), rounds, rows, agreement)


def groups_by_site(closed: Closed) -> dict[str, str]:
    """A round's groups: site -> group."""
    return {site: group for group, sites in closed["groups"].items() for site in sites}


def last_groups(result: Mapping[str, Any]) -> dict[str, str]:
    """The last grouping: site -> group. Empty where there is none."""
    last = (result.get("groups") or {}).get("last") or {}
    return groups_by_site({"groups": last})


def order_of(result: Mapping[str, Any]) -> dict[str, int]:
    """Each site's place: by the last groups, then by name; who is in no group comes last."""
    groups = last_groups(result)
    names = sorted((c["name"] for c in result["clients"]), key=natural)
    ordered = sorted(names, key=lambda name: (name not in groups, natural(groups.get(name, ""))))
    return {name: place for place, name in enumerate(ordered)}


def natural(name: str) -> list[Any]:
    """A key to sort by: numbers in a name by their size."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", name))]


def title_of(phase: str, name: str) -> str:
    """A table for people."""
    return f"{cut(name, TITLE)} in phase {cut(phase, TITLE)}"


def heat_maps(result: Mapping[str, Any], phase: str, name: str, told: Rounds) -> tuple[HeatMap, ...]:
    """The first, the middle and the last of a table's rounds, in the same colours."""
    chosen = [told[i] for i in sorted({0, len(told) // 2, len(told) - 1})]
    values = [value for _, table in chosen for line in table["values"] for value in line]
    low, high = limits(values)
    return tuple(heat_map(result, phase, name, number, table, low, high) for number, table in chosen)


def limits(values: Iterable[float]) -> tuple[float, float]:
    """What the ends of the colours mean: the least and the largest value, or as far below zero as above where there are both."""
    values = list(values)
    low, high = min(values), max(values)
    if low < 0 < high:
        return -max(-low, high), max(-low, high)
    return (low, high) if low < high else (low - 0.5 * (abs(low) or 1.0), low + 0.5 * (abs(low) or 1.0))


def heat_map(
    result: Mapping[str, Any], phase: str, name: str, number: int, table: Mapping[str, Any], low: float, high: float
) -> HeatMap:
    """A round's table. Where all rows, or all columns, are sites, they stand by group and name."""
    rows, columns = arranged(result, table["rows"]), arranged(result, table["columns"])
    domains, groups = {c["name"]: c["domain"] for c in result["clients"]}, last_groups(result)
    heads = [table["rows"][i] for i in rows]
    cuts = [i for i in range(1, len(heads)) if groups.get(heads[i - 1]) != groups.get(heads[i]) and set(heads) <= set(domains)]
    return HeatMap(
        name=f"{phase[:TITLE]}-{name[:TITLE]}-round-{number}",
        title=f"{title_of(phase, name)}, round {number}",
        rows=tuple(heads),
        labels=tuple(beside(head, domains.get(head)) for head in heads),
        columns=tuple(table["columns"][j] for j in columns),
        values=tuple(tuple(table["values"][i][j] for j in columns) for i in rows),
        cuts=tuple(cuts),
        low=low,
        high=high,
    )


def arranged(result: Mapping[str, Any], names: Sequence[str]) -> list[int]:
    """The order of rows or columns, as places among their names."""
    place = order_of(result)
    if not set(names) <= set(place):
        return list(range(len(names)))
    return sorted(range(len(names)), key=lambda i: place[names[i]])


def beside(site: str, domain: str | None) -> str:
    """A site as it stands beside a row, with its true domain where that is known."""
    return f"{cut(site, SITE)} ({cut(domain, DOMAIN)})" if domain else cut(site)
