"""The audit log in the database. The row of the tip is locked last of all in a transaction, so that who waits there keeps nobody
from anything else, and two coordinators write one chain.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from tideline.engine.audit import About, Deed, Entry, Tip, chained
from tideline_server.store.schema import audit, audit_tip

TIP = select(audit_tip.c.seq, audit_tip.c.hash)
LOCKED = TIP.with_for_update()
MOVE = update(audit_tip).values(seq=bindparam("last"), hash=bindparam("of"))
WRITE = insert(audit)
COLUMNS = ("seq", "kind", "at", "by", "client", "run", "told", "hash")


def append(connection: Connection, deeds: Sequence[Deed]) -> None:
    """Write what was done behind what is there. The last thing that a transaction does."""
    if not deeds:
        return
    made = chained(Tip(*connection.execute(LOCKED).one()), deeds)
    connection.execute(WRITE, [{name: getattr(entry, name) for name in COLUMNS} for entry in made])
    connection.execute(MOVE, {"last": made[-1].seq, "of": made[-1].hash})


def tip(connection: Connection) -> Tip:
    """The last entry."""
    return Tip(*connection.execute(TIP).one())


def entries(connection: Connection, after: int, limit: int | None, about: About) -> tuple[Entry, ...]:
    """Entries in order."""
    chosen = select(audit).where(audit.c.seq > after).order_by(audit.c.seq).limit(limit)
    wanted = {"run": about.run, "client": about.client, "kind": about.kind}
    for name, value in wanted.items():
        if value:
            chosen = chosen.where(audit.c[name] == value)
    if about.since is not None:
        chosen = chosen.where(audit.c.at >= about.since)
    return tuple(map(entry_of, connection.execute(chosen)))


def entry_of(row: Row[tuple[object, ...]]) -> Entry:
    """An entry from its columns."""
    told = dict(row._mapping)
    return Entry(**told)
