"""Deleting the events of runs that ended long ago. The last of each stays: later ones are numbered after it."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, func, select

from tideline.engine.model.runs import FINAL
from tideline_server.store.schema import events, runs

FIRST = select(func.min(events.c.seq)).where(events.c.run == runs.c.id).scalar_subquery()
LAST = select(func.max(events.c.seq)).where(events.c.run == runs.c.id).scalar_subquery()
OLD = (
    select(runs.c.id, FIRST.label("first"), LAST.label("last"))
    .where(runs.c.status.in_(FINAL), runs.c.ended < bindparam("before"), FIRST < LAST)
    .order_by(runs.c.ended)
)


def drop(connection: Connection, before: float, most: int) -> int:
    """Delete some events of one run; how many."""
    found = connection.execute(OLD.limit(1), {"before": before}).one_or_none()
    if found is None:
        return 0
    end = min(found.last, found.first + most)
    connection.execute(delete(events).where(events.c.run == found.id, events.c.seq < end))
    return int(end - found.first)


def count(connection: Connection, before: float) -> int:
    """How many events could go in all."""
    old = OLD.subquery()
    return int(connection.scalar(select(func.coalesce(func.sum(old.c.last - old.c.first), 0)), {"before": before}) or 0)
