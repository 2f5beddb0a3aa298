"""Who conducts which run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, insert, select, update

from tideline.core.run import RunId
from tideline.engine.model import transitions
from tideline.engine.model.runs import OPEN, Lease
from tideline_server.store.listings import batches
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


def lease_of(row: Row[Any]) -> Lease:
    return Lease(**row._mapping)


def begin(connection: Connection, run: RunId) -> None:
    connection.execute(insert(leases), asdict(Lease(run)))


def of_open_runs(connection: Connection, run: RunId | None) -> tuple[Lease, ...]:
    """The leases of all open runs, or of one."""
    chosen = OF_OPEN if run is None else OF_OPEN.where(leases.c.run == run)
    return tuple(map(lease_of, connection.execute(chosen)))


def fence(connection: Connection, run: RunId, token: int) -> None:
    """Raises Overtaken for a token that is not the newest. If it is, it stays so until this transaction ends."""
    transitions.fence(lease_of(connection.execute(ONE.with_for_update(read=True), {"of": run}).one()), token)


def claim(connection: Connection, seen: Iterable[Lease], holder: str, seconds: float) -> tuple[Lease, ...]:
    """Take the leases that are as they were seen. One that another takes or a scheduler's write holds just now is passed over."""
    wanted = {lease.run: lease for lease in seen}
    free = [lease for lease in locked(connection, wanted, skip=True) if lease == wanted[lease.run]]
    return write(connection, [replace(each, holder=holder, token=each.token + 1, beats=0, seconds=seconds) for each in free])


def renew(connection: Connection, held: Iterable[Lease]) -> tuple[Lease, ...]:
    """A sign of life for those whose token is the newest.

    One that is locked is left as it is, as nobody is waited for: mostly by a write of its own scheduler, who lives. If it is
    being taken, the next look tells.
    """
    known = {lease.run: lease for lease in held}
    free = of_token(locked(connection, known, skip=True), known)
    beaten = write(connection, [replace(e, beats=e.beats + 1) for e in free])
    passed = known.keys() - {lease.run for lease in free}
    return tuple(sorted((*beaten, *of_token(seen(connection, SOME, passed), known)), key=lambda lease: lease.run))


def release(connection: Connection, held: Iterable[Lease]) -> None:
    """Leave those whose token is the newest to whoever comes."""
    known = {lease.run: lease for lease in held}
    own = of_token(locked(connection, known, skip=False), known)
    write(connection, [replace(e, holder="") for e in own])


def of_token(found: Iterable[Lease], known: Mapping[RunId, Lease]) -> list[Lease]:
    """Those that still have the token that is known."""
    return [lease for lease in found if lease.token == known[lease.run].token]


def locked(connection: Connection, wanted: Collection[RunId], skip: bool) -> list[Lease]:
    """Leases that nobody else changes until this transaction ends."""
    return seen(connection, SOME.with_for_update(skip_locked=skip), wanted)


def seen(connection: Connection, chosen: Select[Any], wanted: Collection[RunId]) -> list[Lease]:
    return [lease_of(row) for batch in batches(sorted(wanted)) for row in connection.execute(chosen, {"runs": batch})]


def write(connection: Connection, changed: list[Lease]) -> tuple[Lease, ...]:
    rows = [{"of": lease.run} | {f"new_{name}": getattr(lease, name) for name in CHANGING} for lease in changed]
    if rows:
        connection.execute(WRITE, rows)
    return tuple(changed)
