"""The one place that knows which database is beneath: how it is opened, how a writer begins, what its errors mean."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from sqlalchemy import URL, Connection, Engine, Executable, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from tideline.core.errors import FederationError, StorageFull, Unreachable

BUSY_SECONDS = 30.0  # how long a writer waits for another process's transaction
WRITES = "tideline_writes"  # the execution option that marks a writing transaction
INSERTS: Mapping[str, Callable[[Table], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
AWAY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL)


def engine_at(path: Path) -> Engine:
    """SQLite in a file. Each thread that is inside a transaction has a connection of its own."""
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=QueuePool,
        max_overflow=-1,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        json_serializer=to_json,
    )
    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def prepare(raw: Any, record: object) -> None:
    """A new connection: the driver leaves transactions to us; a commit is on the disk; references hold."""
    raw.isolation_level = None
    raw.execute("PRAGMA synchronous=FULL")
    raw.execute("PRAGMA foreign_keys=ON")


def begin(connection: Connection) -> None:
    """A writer takes the lock at once: a transaction that reads first and then writes would fail when another has written."""
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def write_ahead(engine: Engine) -> None:
    """Let readers go on beside the writer. The file remembers it."""
    raw = engine.raw_connection()
    try:
        raw.cursor().execute("PRAGMA journal_mode=WAL").close()
    finally:
        raw.close()


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], *renew: str) -> None:
    """Insert rows; where the primary key is there already, renew these columns of the row."""
    if rows:
        connection.execute(upserting(connection.dialect.name, table, renew), rows)


@cache
def upserting(dialect: str, table: Table, renew: tuple[str, ...]) -> Executable:
    """The statement for it."""
    statement = INSERTS[dialect](table)
    keys = list(table.primary_key.columns)
    if renew:
        return cast(Executable, statement.on_conflict_do_update(keys, set_={n: statement.excluded[n] for n in renew}))
    return cast(Executable, statement.on_conflict_do_nothing(keys))


def meaning(error: DBAPIError) -> FederationError | None:
    """The error as a person meets it; None for one that only a fault of ours can cause."""
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StorageFull("No room in the store: its disk is full", "Free disk space; nothing was written")
    if code in AWAY:
        return Unreachable(f"The store does not answer: {error.orig}", "Look at its disk, and whether another process holds it")
    return None


def to_json(value: Any) -> str:
    """JSON as compact as it can be; any mapping is an object."""
    return json.dumps(value, separators=(",", ":"), default=dict)
