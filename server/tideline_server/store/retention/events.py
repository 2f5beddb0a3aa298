"""Deleting the events of runs that ended long ago. The last of each stays: later ones are numbered after it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, delete, func, select

from tideline.engine.model.deletion import Cutoffs
from tideline.engine.model.runs import FINAL
from tideline_server.store.retention.runs import over_before
from tideline_server.store.schema import events, runs

FIRST = select(func.min(events.c.seq)).where(events.c.run == runs.c.id).scalar_subquery()
LAST = select(func.max(events.c.seq)).where(events.c.run == runs.c.id).scalar_subquery()


def old(before: Cutoffs) -> Select[Any]:
    """The runs that were over before their project's moment and have more than one event, with the first and the last."""
    found = select(runs.c.id, FIRST.label("first"), LAST.label("last"))
    return found.where(runs.c.status.in_(FINAL), over_before(before), FIRST < LAST).order_by(runs.c.ended)


def drop(connection: Connection, before: Cutoffs, most: int) -> int:
    """Delete some events of one run; how many."""
    found = connection.execute(old(before).limit(1)).one_or_none()
    if found is None:
        return 0
    end = min(found.last, found.first + most)
    connection.execute(delete(events).where(events.c.run == found.id, events.c.seq < end))
    return int(end - found.first)


def count(connection: Connection, before: Cutoffs) -> int:
    """How many events could go in all."""
    found = old(before).subquery()
    return int(connection.scalar(select(func.coalesce(func.sum(found.c.last - found.c.first), 0))) or 0)
