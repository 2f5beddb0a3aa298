"""The audit log in the database. A transaction locks the row of the tip last, so that whoever waits there blocks nobody else,
and two coordinators write one chain.

Somebody may have changed the log. So it is read as raw columns, and an entry tells which of them no coordinator wrote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, delete, insert, select, update

from tideline.core.settings import Plain
from tideline.engine.audit.entries import HASH
from tideline.engine.audit.log import ALL, UNREADABLE, About, AuditEvent, Entry, Mention, Tip, chained, line_of, read_line
from tideline.engine.audit.witness import CONFIRMED, RESTORED, WITNESSED, Mark
from tideline_server.store.database.dialect import AS_STORED
from tideline_server.store.database.plain_json import from_json
from tideline_server.store.database.prepared import prepared
from tideline_server.store.schema import audit, audit_base, audit_tip, witness, witness_secret

TIP = select(audit_tip.c.seq, audit_tip.c.hash)
LOCKED = prepared(TIP.with_for_update())
MOVE = prepared(update(audit_tip).values(seq=bindparam("last"), hash=bindparam("of")))
WRITE = prepared(insert(audit))
MENTIONS = select(audit.c.kind, audit.c.client, audit.c.run).where(audit.c.seq > bindparam("behind")).distinct()
DEEPEST = 32  # levels of an entry's details
COLUMNS = ("seq", "kind", "at", "by", "client", "run", "details", "hash")


def append(connection: Connection, events: Sequence[AuditEvent], behind: Tip | None = None) -> None:
    """Add events to the chain, and those that are witnessed to the witness: the last thing that a transaction does.

    behind: the tip that the witness goes on from, in place of its own.
    """
    if not events:
        return
    made = chained(Tip(*connection.execute(LOCKED).one()), events)
    connection.execute(WRITE, [{name: getattr(entry, name) for name in COLUMNS} for entry in made])
    connection.execute(MOVE, {"last": made[-1].seq, "of": made[-1].hash})
    if witnessed := [event for event in events if event.kind in WITNESSED]:
        add_records(connection, chained(behind or witness_tip(connection), witnessed))


def lock(connection: Connection) -> None:
    """Let nobody else write into the log, nor the witness, until this transaction ends."""
    connection.execute(LOCKED).one()


def add_records(connection: Connection, records: Sequence[Entry]) -> None:
    if records:
        rows = [{"seq": record.seq, "kind": record.kind, "line": line_of(record)} for record in records]
        connection.execute(insert(witness), rows)


def witness_tip(connection: Connection) -> Tip:
    last = last_record(connection)
    return Tip() if last is None else Tip(last.seq, last.hash)


def last_record(connection: Connection, kinds: Sequence[str] = ()) -> Entry | None:
    """The last record, or the last one of some kinds."""
    chosen = select(witness.c.seq, witness.c.line).order_by(witness.c.seq.desc()).limit(1)
    row = connection.execute(chosen.where(witness.c.kind.in_(kinds)) if kinds else chosen).one_or_none()
    return None if row is None else read_line(row.seq, row.line)


def records(connection: Connection, after: int = 0) -> tuple[Entry, ...]:
    """The witness's records behind a number."""
    chosen = select(witness.c.seq, witness.c.line).where(witness.c.seq > after).order_by(witness.c.seq)
    return tuple(read_line(row.seq, row.line) for row in connection.execute(chosen))


def mark(connection: Connection) -> Mark:
    last = last_record(connection, (RESTORED, CONFIRMED))
    return Mark(
        tip=witness_tip(connection),
        chain=str(connection.scalar(select(audit_base.c.chain)))[:HASH],
        secret=str(connection.scalar(select(witness_secret.c.secret))),
        restored=last if last is not None and last.kind == RESTORED else None,
        lost_at=lost_at(connection),
    )


def lost_at(connection: Connection) -> int:
    """The number of the last record behind a gap; restores are few."""
    rows = connection.execute(select(witness.c.seq, witness.c.line).where(witness.c.kind == RESTORED))
    return max((row.seq for row in rows if read_line(row.seq, row.line).details.get("lost")), default=0)


def caught_up(connection: Connection, missing: Sequence[Entry], behind: Tip | None) -> bool:
    """Whether the witness has these records, or goes on behind a tip."""
    if missing:
        line = connection.scalar(select(witness.c.line).where(witness.c.seq == missing[-1].seq))
        return bool(line == line_of(missing[-1]))
    return behind is None or behind.seq < witness_tip(connection).seq


def splice(connection: Connection, missing: Sequence[Entry], known: int, behind: Tip | None) -> bool:
    """Put records behind those up to a number, and the own ones from there after them. Whether there were some."""
    own = records(connection, known)
    connection.execute(delete(witness).where(witness.c.seq > known))
    add_records(connection, missing)
    add_records(connection, chained(behind or witness_tip(connection), own))
    return bool(own)


def tip(connection: Connection) -> Tip:
    return Tip(*connection.execute(TIP).one())


def entries(connection: Connection, after: int = 0, limit: int | None = None, about: About = ALL) -> tuple[Entry, ...]:
    chosen = reading(connection.dialect.name).where(audit.c.seq > after).order_by(audit.c.seq).limit(limit)
    wanted = {"run": about.run, "client": about.client, "kind": about.kind}
    for name, value in wanted.items():
        if value:
            chosen = chosen.where(audit.c[name] == value)
    if about.since is not None:
        chosen = chosen.where(audit.c.at >= about.since)
    return tuple(map(entry_of, connection.execute(chosen)))


def mentions(connection: Connection, after: int) -> tuple[int, frozenset[Mention]]:
    """The last entry's number, and what those behind a number are about. One that was made unreadable is about nothing."""
    last, rows = tip(connection).seq, connection.execute(MENTIONS, {"behind": after})
    return last, frozenset(Mention(*map(str, row)) for row in rows)


@cache
def reading(dialect: str) -> Select[Any]:
    return select(audit.c.seq, *(AS_STORED[dialect](audit.c[name]).label(name) for name in READERS))


def entry_of(row: Row[Any]) -> Entry:
    """An entry from its columns. Unreadable ones are empty, and their text stands in the details."""
    found: dict[str, Any] = {"kind": "", "at": 0.0, "details": {}, "seq": row.seq}
    wrong: dict[str, str] = {}
    for name, reader in READERS.items():
        value = row._mapping[name]
        try:
            found[name] = reader(value)
        except (ValueError, TypeError, RecursionError):
            wrong[name] = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    if wrong:
        found["details"] = {**found["details"], UNREADABLE: wrong}
    return Entry(**found)


def text_in(value: bytes) -> str:
    return str(value, "utf-8")


def moment_in(value: float | bytes | None) -> float:
    if type(value) is not float or not math.isfinite(value):
        raise ValueError("no moment")
    return value


def details_in(value: bytes) -> dict[str, Plain]:
    """An entry's details. Raises TypeError, ValueError and RecursionError."""
    found = from_json(text_in(value))
    if not isinstance(found, dict) or not shallow(found):
        raise ValueError("tells nothing")
    return found


def shallow(found: dict[str, Plain]) -> bool:
    """Whether plain data nest no deeper than readers can take."""
    level: list[dict[str, Plain] | list[Plain]] = [found]
    deep = 0
    while level and deep < DEEPEST:
        inner = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
        level, deep = [each for each in inner if isinstance(each, dict | list)], deep + 1
    return not level


READERS: Mapping[str, Callable[[Any], str | float | dict[str, Plain]]] = {
    **dict.fromkeys(("kind", "by", "client", "run", "hash"), text_in),
    "at": moment_in,
    "details": details_in,
}
