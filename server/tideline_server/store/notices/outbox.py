"""Notices on their way: queued with what was read of the log, claimed, and noted as they went."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, exists, func, insert, select, update

from tideline.core.run import RunId
from tideline.engine.coordinator.notices.following import FOLLOWED, RunFacts, notice_of
from tideline.engine.model.notices import MOST_WAITING, RETAINED, Notice, Outgoing, Target, id_of, notice_in, queued
from tideline.engine.ports.notices import Pending
from tideline_server.store import audit as audit_log
from tideline_server.store import runs as stored_runs
from tideline_server.store.notices import targets
from tideline_server.store.schema import audit, notice_mark, notice_targets, notices, runs

MOST_READ = 200  # entries of the log in one transaction
READ_UP_TO = select(notice_mark.c.seq).where(notice_mark.c.id == 1)
NEWS = exists().where(audit.c.kind.in_(list(FOLLOWED)), audit.c.seq > func.coalesce(READ_UP_TO.scalar_subquery(), 0))
WAITING = select(func.count(), func.min(notices.c.due)).where(notices.c.due.is_not(None))
FACTS = select(runs.c.name, runs.c.project, runs.c.parent).where(runs.c.id == bindparam("of"))
LAST = (
    select(notices)
    .where(notices.c.target == bindparam("target"), notices.c.cause == bindparam("cause"))
    .order_by(notices.c.slot.desc())
    .limit(1)
    .with_for_update()
)
THERE = select(func.count()).where(notices.c.id == bindparam("of"))
OF_TARGET = select(func.count()).where(notices.c.target == bindparam("of"), notices.c.due.is_not(None))


def pending(connection: Connection, now: float) -> Pending:
    count, first = connection.execute(WAITING).one()
    return Pending(bool(connection.scalar(select(NEWS))), int(count), first is not None and first <= now)


def follow(connection: Connection, now: float) -> bool:
    """Queue what the log says, up to so many entries. Whether there may be more."""
    seq = targets.lock(connection)
    chosen = audit_log.reading(connection.dialect.name).where(audit.c.seq > seq, audit.c.kind.in_(list(FOLLOWED)))
    read = [audit_log.entry_of(row) for row in connection.execute(chosen.order_by(audit.c.seq).limit(MOST_READ))]
    if not read:
        return False
    wanting = targets.every(connection)
    found = (notice_of(entry, facts(connection, RunId(entry.run))) for entry in read) if wanting else ()
    put(connection, [each for each in found if each is not None], wanting, now)
    connection.execute(update(notice_mark).where(notice_mark.c.id == 1).values(seq=read[-1].seq))
    return len(read) == MOST_READ


def facts(connection: Connection, run: RunId) -> RunFacts | None:
    """What is known of a run, which is locked: who deletes it waits, and then finds its notices."""
    stored_runs.lock(connection, run)
    row = connection.execute(FACTS, {"of": run}).one_or_none()
    return None if row is None else RunFacts(row.name, row.project, row.parent)


def queue(connection: Connection, new: Sequence[Notice], now: float) -> None:
    targets.lock(connection)
    put(connection, new, targets.every(connection), now)


def put(connection: Connection, new: Iterable[Notice], wanting: Sequence[Target], now: float) -> None:
    for notice in new:
        for target in wanting:
            if target.wants(notice):
                put_one(connection, target, notice, now)


def put_one(connection: Connection, target: Target, notice: Notice, now: float) -> None:
    if connection.scalar(THERE, {"of": id_of(target.id, notice)}):
        return
    row = connection.execute(LAST, {"target": target.id, "cause": notice.cause}).one_or_none()
    last = None if row is None else outgoing_of(row)
    made = queued(target.id, notice, last, now)
    if last is not None and made.slot == last.slot:  # it takes the place of one that waits
        connection.execute(update(notices).where(notices.c.id == last.id).values(columns_of(made)))
    elif (connection.scalar(OF_TARGET, {"of": target.id}) or 0) < MOST_WAITING:
        connection.execute(insert(notices), columns_of(made))
    else:
        more = notice_targets.c.left_out + 1
        connection.execute(update(notice_targets).where(notice_targets.c.id == target.id).values(left_out=more))


def outgoing_of(row: Row[Any]) -> Outgoing:
    return Outgoing(
        id=row.id,
        target=row.target,
        notice=notice_in(row.content),
        more=row.more,
        slot=row.slot,
        due=row.due,
        attempts=row.attempts,
        claim=row.claim,
    )


def columns_of(outgoing: Outgoing) -> dict[str, Any]:
    notice, columns = outgoing.notice, dict(vars(outgoing))
    del columns["notice"]
    return columns | {"cause": notice.cause, "run": notice.run, "content": notice.plain()}


def claim(connection: Connection, now: float, claim: str, seconds: float, most: int) -> tuple[tuple[Outgoing, Target], ...]:
    """Take the oldest notice of some targets. Whoever claims at the same moment passes over these."""
    connection.execute(delete(notices).where(notices.c.due.is_(None), notices.c.slot < now - RETAINED))
    due = select(notices.c.id, notices.c.target).where(notices.c.due <= now).order_by(notices.c.slot, notices.c.id)
    rows = connection.execute(due.limit(MOST_WAITING).with_for_update(skip_locked=True)).all()
    first = {row.target: row.id for row in reversed(rows)}
    chosen = [row.id for row in rows if first[row.target] == row.id][:most]
    taken = {"due": now + seconds, "claim": claim, "attempts": notices.c.attempts + 1}
    if chosen:
        connection.execute(update(notices).where(notices.c.id.in_(chosen)).values(taken))
    known = {each.id: each for each in targets.every(connection)} if chosen else {}
    made = connection.execute(select(notices).where(notices.c.id.in_(chosen)).order_by(notices.c.id)) if chosen else ()
    return tuple((outgoing_of(row), known[row.target]) for row in made)


def note(connection: Connection, outgoing: Outgoing, due: float | None) -> bool:
    """Note when a notice is tried again, if ever. False where it is another's by now, or gone."""
    mine = (notices.c.id == outgoing.id) & (notices.c.claim == outgoing.claim) & notices.c.due.is_not(None)
    return connection.execute(update(notices).where(mine).values(due=due, claim="")).rowcount == 1


def rest(connection: Connection, target: str, until: float) -> None:
    """Leave a target alone whose receiver took nothing: what else waits for it is tried once the oldest is."""
    others = (notices.c.target == target) & (notices.c.claim == "") & (notices.c.due < until)
    connection.execute(update(notices).where(others).values(due=until))


def note_target(connection: Connection, target: str, **changes: Any) -> None:
    connection.execute(update(notice_targets).where(notice_targets.c.id == target).values(changes))
