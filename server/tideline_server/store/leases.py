"""Who conducts which run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Select, bindparam, insert, select, update

from tideline.core.run import RunId
from tideline.engine.model import transitions
from tideline.engine.model.runs import OPEN, Lease
from tideline_server.store.listings import in_batches
from tideline_server.store.schema import leases, runs

OF_OPEN = (
    select(leases)
    .join(runs, runs.c.id == leases.c.run)
    .where(runs.c.status.in_([status.value for status in OPEN]))
    .order_by(leases.c.run)
)
ONE = select(leases).where(leases.c.run == bindparam("of"))
SOME = select(leases).where(leases.c.run.in_(bindparam("runs", expanding=True))).order_by(leases.c.run)
CHANGING = ("holder", "token", "beats", "seconds")
WRITE = update(leases).where(leases.c.run == bindparam("of")).values({name: bindparam(f"new_{name}") for name in CHANGING})


def begin(connection: Connection, run: RunId) -> None:
    connection.execute(insert(leases), asdict(Lease(run)))


def of_open_runs(connection: Connection, run: RunId | None = None) -> tuple[Lease, ...]:
    chosen = OF_OPEN if run is None else OF_OPEN.where(leases.c.run == run)
    return tuple(Lease(**row._mapping) for row in connection.execute(chosen))


def fence(connection: Connection, run: RunId, token: int) -> None:
    """Raises Overtaken unless the token is the newest, and keeps it so until this transaction ends."""
    row = connection.execute(ONE.with_for_update(read=True), {"of": run}).one()
    transitions.fence(Lease(**row._mapping), token)


def claim(connection: Connection, seen: Iterable[Lease], holder: str, seconds: float) -> tuple[Lease, ...]:
    """Take the leases that are as they were seen. Passes over those that somebody holds locked."""
    wanted = {lease.run: lease for lease in seen}
    free = [lease for lease in locked(connection, wanted, skip=True) if lease == wanted[lease.run]]
    return write(connection, [replace(each, holder=holder, token=each.token + 1, beats=0, seconds=seconds) for each in free])


def renew(connection: Connection, held: Iterable[Lease]) -> tuple[Lease, ...]:
    """Beat the leases whose token is the newest. Waits for nobody: mostly a lease is locked by a write of its own scheduler.

    If somebody takes it just now, the next look tells.
    """
    known = {lease.run: lease for lease in held}
    free = of_token(locked(connection, known, skip=True), known)
    beaten = write(connection, [replace(e, beats=e.beats + 1) for e in free])
    passed = known.keys() - {lease.run for lease in free}
    return tuple(sorted((*beaten, *of_token(seen(connection, SOME, passed), known)), key=lambda lease: lease.run))


def release(connection: Connection, held: Iterable[Lease]) -> None:
    """Leave the leases whose token is the newest to whoever comes."""
    known = {lease.run: lease for lease in held}
    own = of_token(locked(connection, known, skip=False), known)
    write(connection, [replace(e, holder="") for e in own])


def of_token(found: Iterable[Lease], known: Mapping[RunId, Lease]) -> list[Lease]:
    return [lease for lease in found if lease.token == known[lease.run].token]


def locked(connection: Connection, wanted: Collection[RunId], skip: bool) -> list[Lease]:
    return seen(connection, SOME.with_for_update(skip_locked=skip), wanted)


def seen(connection: Connection, chosen: Select[Any], wanted: Collection[RunId]) -> list[Lease]:
    rows = in_batches(connection, chosen, "runs", sorted(wanted))
    return [Lease(**row._mapping) for row in rows]


def write(connection: Connection, changed: list[Lease]) -> tuple[Lease, ...]:
    rows = [{"of": lease.run} | {f"new_{name}": getattr(lease, name) for name in CHANGING} for lease in changed]
    if rows:
        connection.execute(WRITE, rows)
    return tuple(changed)
