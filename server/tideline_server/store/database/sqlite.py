"""SQLite in a file: how to open it, how a writer begins, what its errors mean."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import URL, ColumnElement, Connection, Engine, LargeBinary, case, cast, create_engine, event, func, type_coerce
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection, QueuePool
from sqlalchemy.types import NULLTYPE

from tideline.core.errors import FederationError, StorageFull
from tideline.engine.process.private import beside, close_database
from tideline_server.store.database import incidents
from tideline_server.store.database.address import StoreRefused
from tideline_server.store.database.plain_json import to_json
from tideline_server.store.database.prepared import directly

BUSY_SECONDS = 30.0  # how long a writer waits for another process's transaction
PAUSE_SECONDS = 0.01
queued = True  # SQLite has one writer at a time; in a process they queue here
WRITES = "tideline_writes"  # the execution option that marks a writing transaction
reading: Mapping[str, str | bool] = {}
writing: Mapping[str, str | bool] = {WRITES: True}
AWAY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL)


def engine_at(url: URL) -> Engine:
    """An engine that gives each thread within a transaction its own connection."""
    engine = create_engine(
        url,
        poolclass=QueuePool,
        max_overflow=-1,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        json_serializer=to_json,
    )
    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def prepare(raw: sqlite3.Connection, record: object) -> None:
    """Set up a new connection: the driver leaves transactions to us, commits reach the disk, and references hold."""
    raw.isolation_level = None
    raw.execute("PRAGMA synchronous=FULL")
    raw.execute("PRAGMA foreign_keys=ON")


def begin(connection: Connection) -> None:
    """A writer locks at once: one that read first would fail if another wrote meanwhile."""
    writes = connection.get_execution_options().get(WRITES)
    directly(connection, "BEGIN IMMEDIATE" if writes else "BEGIN")


def check(connection: Connection, name: str) -> None:
    """Every SQLite file will do."""


def others(connection: Connection) -> int:
    """None that a file shows: a coordinator holds its home's lock."""
    return 0


def configure(engine: Engine) -> None:
    """Let readers go on beside the writer; the file remembers it. SQLite does not wait for others here, so we do.

    The file is for its owner alone: it holds names, hashes of keys, and what sites have reported.
    """
    close_database(Path(str(engine.url.database)))
    until = time.monotonic() + BUSY_SECONDS
    raw = engine.raw_connection()
    try:
        while not ahead(raw):
            if time.monotonic() > until:
                raise StoreRefused(f"The store {engine.url.database} is locked by another process", "Stop it, or wait for it")
            time.sleep(PAUSE_SECONDS)
    finally:
        raw.close()


def ahead(raw: PoolProxiedConnection) -> bool:
    """Switch to a write-ahead log. False if another connection is in the way."""
    try:
        raw.cursor().execute("PRAGMA journal_mode=WAL").close()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return False
        raise
    return True


def as_stored(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A column as stored: a text as its bytes, which may be no UTF-8, a real number as such, all else as SQL writes it."""
    kind, raw = func.typeof(column), cast(column, LargeBinary)
    return type_coerce(case((kind == "text", raw), (kind == "real", column), else_=func.quote(raw)), NULLTYPE)


def size(connection: Connection) -> int:
    """Bytes of the file and of those beside it, which hold what is not in it yet."""
    return sum(each.stat().st_size for each in beside(Path(str(connection.engine.url.database))))


def meaning(error: DBAPIError) -> FederationError | None:
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StorageFull("No room in the store: its disk is full", "Free disk space; nothing was written")
    if code in AWAY:
        return incidents.away("The store does not answer", str(error.orig))
    return None


def away(error: SQLAlchemyError) -> bool:
    """A file does not come by itself."""
    return False


def advice(error: SQLAlchemyError) -> str:
    return "Give the path of a file that this user may write, in a folder that exists, or of a store that Tideline made"
