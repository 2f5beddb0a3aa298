"""Deleting a run in one transaction: its rows, its references to parts, and listings that nothing else names.

The cost is that of the run's own rows: every query goes by an index that begins with the run or with a listing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, bindparam, case, delete, exists, insert, literal, or_, select, union

from tideline.core.run import Digest, RunId
from tideline.engine.model.deletion import Cutoffs, Tombstone, tombstone_of
from tideline.engine.model.runs import FINAL
from tideline_server.store import parts
from tideline_server.store.listings import batches
from tideline_server.store.runs import Remembered
from tideline_server.store.runs import find as find_run
from tideline_server.store.schema import (
    drafts,
    events,
    leases,
    listings,
    members,
    notices,
    orders,
    pushed,
    refs,
    rosters,
    round_totals,
    rounds,
    runs,
    sealed,
    site_totals,
    spent_by_run,
    tombstones,
)

OWN: tuple[Table, ...] = (
    sealed,
    site_totals,
    spent_by_run,
    round_totals,
    rounds,
    orders,
    events,
    refs,
    pushed,
    notices,
    leases,
    rosters,
    drafts,
)
NAMING = (orders.c.message, orders.c.reply, rounds.c.state, refs.c.listing)
NAMED = union(*(select(column).where(column.table.c.run == bindparam("of"), column.is_not(None)) for column in NAMING))
UNNAMED = ~or_(*(exists().where(column == listings.c.id) for column in NAMING))
LOCK = select(runs.c.id).where(runs.c.id == bindparam("of")).with_for_update()
SOME = listings.c.id.in_(bindparam("ids", expanding=True))
LOCKED = select(listings.c.id).where(SOME).order_by(listings.c.id).with_for_update(skip_locked=True)
FREE = select(listings.c.id).where(SOME, UNNAMED)


def delete_runs(
    connection: Connection, memory: Remembered, chosen: Sequence[RunId], by: str, rule: str, now: float
) -> tuple[Tombstone, ...]:
    """Delete runs, and write what remains of each. Nothing is done if one of them is not there, or is not over."""
    for run in chosen:
        connection.execute(LOCK, {"of": run})
    rows = [find_run(connection, memory, run) for run in chosen]
    made = tuple(tombstone_of(row, by, rule, now) for row in rows if row is not None and row.status in FINAL)
    if len(made) < len(rows):
        return ()
    for each in made:
        delete_rows(connection, each.run)
        bury(connection, each)
    return made


def delete_rows(connection: Connection, run: RunId) -> None:
    """Delete everything that is written of a run. Its parts are noted for the next collection."""
    named = list(connection.scalars(NAMED, {"of": run}))
    parts.let_go(connection, parts.OF_RUN, {"of": run})
    for table in OWN:
        connection.execute(delete(table).where(table.c.run == run))
    connection.execute(delete(runs).where(runs.c.id == run))
    delete_listings(connection, named)


def delete_listings(connection: Connection, named: Collection[int]) -> None:
    """Delete the listings that nothing names any more. Who names one now holds its row, and it stays."""
    for some in batches(sorted(named)):
        held = list(connection.scalars(LOCKED, {"ids": some}))
        free = list(connection.scalars(FREE, {"ids": held})) if held else []
        if free:
            connection.execute(delete(members).where(members.c.listing.in_(free)))
            connection.execute(delete(listings).where(listings.c.id.in_(free)))


def bury(connection: Connection, of: Tombstone) -> None:
    """Write what remains of a run."""
    connection.execute(insert(tombstones), {field.name: getattr(of, field.name) for field in fields(Tombstone)})


def find(connection: Connection, run: RunId) -> Tombstone | None:
    return next(iter(among(connection, [run])), None)


def among(connection: Connection, chosen: Collection[RunId]) -> tuple[Tombstone, ...]:
    found = connection.execute(select(tombstones).where(tombstones.c.run.in_(chosen)).order_by(tombstones.c.run))
    return tuple(map(remains, found)) if chosen else ()


def remains(row: Row[Any]) -> Tombstone:
    digest = None if row.state_digest is None else Digest(row.state_digest)
    return Tombstone(**{**row._mapping, "state_digest": digest})


def due(connection: Connection, before: Cutoffs) -> tuple[RunId, ...]:
    """The runs that were over before their project's moment and belong to no other run, in the order of their ends."""
    parent = runs.alias("parent")
    alone = runs.c.parent.is_(None) | ~exists().where(parent.c.id == runs.c.parent)
    chosen = select(runs.c.id).where(runs.c.status.in_(FINAL), over_before(before), alone)
    return tuple(map(RunId, connection.scalars(chosen.order_by(runs.c.ended, runs.c.id))))


def over_before(before: Cutoffs) -> ColumnElement[bool]:
    """That a run was over before its project's moment. The first half goes by an index."""
    own = [(runs.c.project == name, moment) for name, moment in sorted(before.projects.items())]
    moment = case(*own, else_=before.others) if own else literal(before.others)
    return (runs.c.ended < before.latest) & (runs.c.ended < moment)
