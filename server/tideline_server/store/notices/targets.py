"""Who is notified. Whoever changes targets locks the mark first, so that nobody queues for a target that is about to go."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, or_, select, update

from tideline.core.errors import Refused
from tideline.engine.model.access.projects import EVERY
from tideline.engine.model.notices import MOST_TARGETS, Form, Kind, Target
from tideline_server.store.database.dialect import added
from tideline_server.store.schema import notice_mark, notice_targets, notices

MARK = select(notice_mark.c.seq).where(notice_mark.c.id == 1).with_for_update()
EVERYBODY = select(notice_targets).order_by(notice_targets.c.project, notice_targets.c.name)
KNOWN = select(func.count()).where(
    or_(
        notice_targets.c.id == bindparam("of"),
        (notice_targets.c.project == bindparam("project")) & (notice_targets.c.name == bindparam("name")),
    )
)


def lock(connection: Connection) -> int:
    """Lock the mark until this transaction ends: how far the log was read."""
    seq = connection.scalar(MARK)
    if seq is None:
        added(connection, notice_mark, {"id": 1, "seq": 0})
        seq = connection.scalar(MARK)
    return int(seq or 0)


def target_of(row: Row[Any]) -> Target:
    return Target(**{**row._mapping, "form": Form(row.form), "kinds": tuple(map(Kind, row.kinds))})


def every(connection: Connection, scope: str = EVERY) -> tuple[Target, ...]:
    chosen = EVERYBODY.where(notice_targets.c.project == scope) if scope else EVERYBODY
    return tuple(map(target_of, connection.execute(chosen)))


def add(connection: Connection, target: Target) -> bool:
    lock(connection)
    if connection.scalar(KNOWN, {"of": target.id, "project": target.project, "name": target.name}):
        return False
    mine = select(func.count()).where(notice_targets.c.project == target.project)
    if (count := connection.scalar(mine) or 0) >= MOST_TARGETS:
        whose = f"of the project {target.project}" if target.project else "of all projects"
        raise Refused(
            f"There are {count} targets {whose}, and no more fit",
            "Remove one: tideline notify remove NAME",
            quota="targets",
            limit=MOST_TARGETS,
        )
    return added(connection, notice_targets, asdict(target) | {"kinds": [each.value for each in target.kinds]})


def remove(connection: Connection, target: str) -> bool:
    lock(connection)
    connection.execute(delete(notices).where(notices.c.target == target))
    return connection.execute(delete(notice_targets).where(notice_targets.c.id == target)).rowcount == 1


def remove_of(connection: Connection, project: str) -> None:
    """Remove the targets of a project that goes."""
    lock(connection)
    mine = select(notice_targets.c.id).where(notice_targets.c.project == project)
    connection.execute(delete(notices).where(notices.c.target.in_(mine)))
    connection.execute(delete(notice_targets).where(notice_targets.c.project == project))


def end(connection: Connection, target: str, reason: str, now: float) -> bool:
    """Send nothing to a target any more. False where that was so."""
    lock(connection)
    connection.execute(delete(notices).where(notices.c.target == target, notices.c.due.is_not(None)))
    there = (notice_targets.c.id == target) & notice_targets.c.ended.is_(None)
    return connection.execute(update(notice_targets).where(there).values(ended=now, reason=reason)).rowcount == 1


def begin_test(connection: Connection, target: str, now: float, pause: float) -> float:
    """Note a try by hand. Gives the seconds that are left of the pause after the one before."""
    this = notice_targets.c.id == target
    tested = connection.scalar(select(notice_targets.c.tested).where(this).with_for_update())
    left = 0.0 if tested is None or tested > now else tested + pause - now
    if left <= 0:
        connection.execute(update(notice_targets).where(this).values(tested=now))
    return left
