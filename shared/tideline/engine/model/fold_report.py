"""What a fold tells people beyond its marks: groups and tables, held to their bounds, and read back from plain data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tideline.core.errors import StepFailed
from tideline.core.phase import DRAWN, MOST_TABLES, MOST_VALUES, Folded, Table
from tideline.core.run import ClientId

MOST_LETTERS = 200  # of a name: of a group, a table, a row or a column
SHOWN = 40  # letters of a wrong name in an error


def checked_report(given: Folded[Any], phase: str, members: Collection[ClientId]) -> Folded[Any]:
    """The same with plain names and floats, and without groups that have no members. Raises StepFailed for what is not kept.

    members: of the run.
    """
    if not given.groups and not given.tables:
        return given
    whose = f"The fold of {phase}"
    groups = {named(name, f"{whose}: a group"): tuple(clients) for name, clients in given.groups.items() if clients}
    apart(groups, whose, members)
    counted(given.tables, whose)
    return replace(
        given, groups=groups, tables={named(n, f"{whose}: a table"): table(t, whose, n) for n, t in given.tables.items()}
    )


def apart(groups: Mapping[str, tuple[ClientId, ...]], whose: str, members: Collection[ClientId]) -> None:
    """Raises StepFailed for a client that is no member of the run, or that stands in the groups twice."""
    known, seen = frozenset(members), dict[ClientId, str]()
    for name, clients in groups.items():
        for client in clients:
            if client not in known:
                what = f"{whose} puts {client!r:.{SHOWN}}, who is no member, into the group {name!r}"
                raise StepFailed(what, "Group members of turn.roster only")
            if client in seen:
                what = f"{whose} puts {client!r} into the group {seen[client]!r} and into {name!r}"
                raise StepFailed(what, "Put a client into one group at most")
            seen[client] = name


def counted(tables: Mapping[str, Table], whose: str) -> None:
    """Raises StepFailed for what is no table, and for more of them, or of numbers in them, than are kept of a round."""
    for name, each in tables.items():
        if not isinstance(each, Table):
            raise StepFailed(
                f"{whose} gives a {type(each).__name__} as the table {str(name)[:SHOWN]!r}", "Give a Table of core.phase"
            )
    values = sum(len(each.rows) * len(each.columns) for each in tables.values())
    if len(tables) > MOST_TABLES or values > MOST_VALUES:
        raise StepFailed(
            f"{whose} gives {len(tables)} tables of {values:,} values in all; of one round at most {MOST_TABLES} tables of"
            f" {MOST_VALUES:,} values are kept",
            "Tell sums or means of them, or fewer rows",
        )


def table(given: Table, whose: str, name: str) -> Table:
    """A table of floats. Raises StepFailed for names that stand there twice, a wrong shape, or a value that is not finite.

    Whom it is for has to be True or False, so that nobody has to guess what is hidden.
    """
    place = f"{whose}: the table {name!r}"
    if not isinstance(given.admins, bool):
        raise StepFailed(f"{place} has {given.admins!r:.{SHOWN}} as admins", "Say True or False: whether it is for admins only")
    if given.drawn not in DRAWN:
        raise StepFailed(f"{place} has {given.drawn!r:.{SHOWN}} as drawn", f"Say one of: {', '.join(map(repr, DRAWN))}")
    height, width = len(given.rows), len(given.columns)
    if not height or not width or len(given.values) != height or any(len(line) != width for line in given.values):
        what = f"{place} of {height} rows and {width} columns has not a value for each of them"
        raise StepFailed(what, "Give a tuple of values for each row")
    rows, columns = headed(given.rows, f"{place}: a row"), headed(given.columns, f"{place}: a column")
    values = tuple(tuple(map(float, line)) for line in given.values)
    for row, line in zip(rows, values, strict=True):
        for column, value in zip(columns, line, strict=True):
            if not math.isfinite(value):
                raise StepFailed(
                    f"{place} has {value} in the row {row!r}, column {column!r}", "Leave out what has no finite value"
                )
    return Table(rows=rows, columns=columns, values=values, admins=given.admins, drawn=given.drawn)


def headed(heads: Iterable[str], what: str) -> tuple[str, ...]:
    found = tuple(named(each, what) for each in heads)
    twice = [name for name, times in Counter(found).items() if times > 1]
    if twice:
        raise StepFailed(f"{what} has the name {twice[0]!r}, and so has another", "Give each a name of its own")
    return found


def named(name: Any, what: str) -> str:
    """A name that can be shown on a line. Raises StepFailed for any other."""
    if isinstance(name, str) and name.isprintable() and 0 < len(name) <= MOST_LETTERS:
        return name
    shown = (
        f"{name[:SHOWN]!r} ({len(name)} characters)" if isinstance(name, str) else f"{name!r:.{SHOWN}} ({type(name).__name__})"
    )
    raise StepFailed(f"{what} has the name {shown}", f"Give a text of 1 to {MOST_LETTERS} characters that can be shown on a line")


def groups_in(data: Mapping[str, Iterable[str]] | None) -> dict[str, tuple[ClientId, ...]]:
    """Clients by word, of marks and of groups, from plain data. None: there are none."""
    return {name: tuple(ClientId(client) for client in clients) for name, clients in (data or {}).items()}


def tables_in(data: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Table]:
    """Tables from plain data. None: there are none."""
    return {
        n: Table(
            rows=tuple(t["rows"]),
            columns=tuple(t["columns"]),
            values=tuple(map(tuple, t["values"])),
            admins=t.get("admins", False),
            drawn=t.get("drawn", ""),
        )
        for n, t in (data or {}).items()
    }
