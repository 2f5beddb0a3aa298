"""What sites sealed for each other: a row says whose it is, for whom, and where the sealed file lies, while it is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Connection, Row, delete, select, tuple_, update

from tideline.archive.layout import handle_in, handle_node
from tideline.core.handle import AnyHandle, Handle
from tideline.core.run import Digest, RunId
from tideline.core.settings import Plain, plain
from tideline.engine.model.orders import Envelope
from tideline_server.store.database.dialect import upsert
from tideline_server.store.listings import batches
from tideline_server.store.schema import sealed

PLACE = tuple_(sealed.c.holder, sealed.c.phase, sealed.c.round, sealed.c.digest)


def to_plain(handles: Iterable[AnyHandle]) -> list[list[Any]] | None:
    """Handles for a column; most orders name none, which is no value."""
    return [handle_node(each) for each in handles] or None


def from_plain(stored: list[list[Any]] | None) -> tuple[AnyHandle, ...]:
    return tuple(map(handle_in, stored or ()))


def place(handle: AnyHandle) -> tuple[str, str, int, str]:
    """The columns that identify a value within its run."""
    return handle.holder, handle.phase, handle.round, handle.digest


def write(connection: Connection, run: RunId, cursor: int, new: Iterable[Envelope]) -> None:
    """Write the envelopes that a reply brings. Rows that are there stay."""
    rows: list[dict[str, Plain]] = [
        {
            "run": run,
            "needed": cursor,
            "cipher": e.cipher,
            "bytes": e.bytes,
            "keys": plain(e.keys),
            "signatures": plain(e.signatures),
            **dict(zip(("holder", "phase", "round", "digest"), place(e.handle), strict=True)),
            "size": e.handle.size,
        }
        for e in new
    ]
    upsert(connection, sealed, rows)


def find(connection: Connection, run: RunId, handles: Collection[AnyHandle]) -> tuple[Envelope, ...]:
    found = []
    for some in batches(sorted(set(handles), key=str)):
        rows = connection.execute(select(sealed).where(sealed.c.run == run, PLACE.in_([place(each) for each in some])))
        found += [envelope_of(row) for row in rows]
    return tuple(sorted(found, key=lambda e: str(e.handle)))


def envelope_of(row: Row[Any]) -> Envelope:
    handle: AnyHandle = Handle(digest=row.digest, size=row.size, holder=row.holder, phase=row.phase, round=row.round)
    return Envelope(handle=handle, cipher=Digest(row.cipher), bytes=row.bytes, keys=row.keys, signatures=row.signatures)


def need(connection: Connection, run: RunId, cursor: int, found: Collection[Envelope]) -> None:
    """Keep envelopes as long as the state at this cursor, which names them."""
    for some in batches(list(found)):
        mine = (sealed.c.run == run) & PLACE.in_([place(each.handle) for each in some])
        connection.execute(update(sealed).where(mine).values(needed=cursor))


def trim(connection: Connection, run: RunId, retain_from: int | None) -> None:
    """Forget what nothing needs from this cursor on; None: everything, as the run has ended."""
    past = sealed.c.run == run
    connection.execute(delete(sealed).where(past if retain_from is None else past & (sealed.c.needed < retain_from)))
