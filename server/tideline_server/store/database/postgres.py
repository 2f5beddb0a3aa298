"""Postgres: how to open it, how a writer begins, what its errors mean.

Writers go side by side. Each statement sees what was committed before it. Writers lock the rows that must not change under
them: a run, a lease, an invite, a part. A row's lock ends with its transaction, even if the writer dies. Runs never wait for
each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    JSON,
    URL,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    LargeBinary,
    String,
    TypeDecorator,
    cast,
    create_engine,
    func,
    select,
)
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from tideline.core.errors import FederationError, StorageFull
from tideline_server.store.database import incidents
from tideline_server.store.database.address import GaveWay, StoreRefused
from tideline_server.store.database.plain_json import to_json

CONNECT_SECONDS = 10
LOCK_SECONDS = 30  # how long a writer waits for a row
STATEMENT_SECONDS = 60  # longer than the lock
IDLE_SECONDS = 10  # a process that is frozen within a transaction loses it, and with it its rows' locks
MOST = 20  # connections at once; they stay open, as opening one costs as much as ten transactions

# What the URL says wins, but for the last: an acknowledged write is on the disk.
ASKED = (
    f"-c lock_timeout={LOCK_SECONDS}s -c statement_timeout={STATEMENT_SECONDS}s"
    f" -c idle_in_transaction_session_timeout={IDLE_SECONDS}s"
)
DURABLE = "-c synchronous_commit=on"
# A server that has vanished without a word is noticed, and of several hosts the one that takes writes is chosen.
LINE: dict[str, str | int] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
    "target_session_attrs": "read-write",
    "application_name": "tideline",
}

queued = False
reading: Mapping[str, str | bool] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
writing: Mapping[str, str | bool] = {"isolation_level": "READ COMMITTED"}
ONE_OPENER = "SELECT pg_advisory_xact_lock(hashtextextended('tideline ' || current_schema(), 0))"
OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND application_name = current_setting('application_name')"
)

FULL = "53100"
UNDONE = ("40001", "40P01")  # serialization failure, deadlock
# Lost connections, resources, shutdowns, disks; then timeouts of locks, statements and idle transactions; a standby.
AWAY = ("08", "53", "57", "58", "55P03", "25P03", "25P04", "25006")
ADVICE = {
    "password authentication failed": "Correct the user or the password",
    "no password supplied": "Give the password in TIDELINE_DATABASE, in PGPASSWORD or in ~/.pgpass",
    "permission denied": "Let the user make tables there: GRANT CREATE, USAGE ON SCHEMA ... TO ...",
    "does not exist": "Make the database and the user (createdb, createuser), or name others",
    "read-only": "Name the server that takes writes, not its standby",
    "invalid connection option": "Correct what stands behind the ? of the URL",
}
AWAY_ADVICE = "See that Postgres runs there and lets this machine in"


class Text(TypeDecorator[str]):
    """Text, compared by code points as in SQLite, whatever the database's language. Replaces NUL, which Postgres lacks."""

    impl = String(collation="C")
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value.replace("\x00", "\ufffd") if value else value


def engine_at(url: URL) -> Engine:
    """An engine that checks a pooled connection before it uses it."""
    return create_engine(
        url,
        pool_size=MOST,
        max_overflow=0,
        pool_timeout=LOCK_SECONDS,
        pool_pre_ping=True,
        connect_args=line(url),
        json_serializer=to_json,
    )


def line(url: URL) -> dict[str, str | int]:
    """How to connect, beyond what the URL says."""
    theirs = url.normalized_query
    options = " ".join([ASKED, *theirs.get("options", ()), DURABLE])
    return {k: v for k, v in LINE.items() if k not in theirs} | {"options": options, "client_encoding": "utf8"}


def check(connection: Connection, name: str) -> None:
    """Raises StoreRefused for a database that has no schema for the store, or cannot hold every text."""
    if connection.exec_driver_sql("SELECT current_schema()").scalar() is None:
        raise StoreRefused(f"{name} has no schema of those in search_path", "CREATE SCHEMA, or correct search_path", path=name)
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise StoreRefused(f"{name} stores text as {encoding}", "Make a database with ENCODING 'UTF8'", path=name)
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # a change of the schema may take long
    connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
    connection.exec_driver_sql(ONE_OPENER)  # of several coordinators that start at once, one makes the tables


def others(connection: Connection) -> int:
    """Connections of the same name to this database, but this one."""
    return int(connection.exec_driver_sql(OTHERS).scalar() or 0)


def configure(engine: Engine) -> None:
    """Nothing more has to be set."""


def as_stored(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A column as it lies there: a text as its bytes, plain data too, and a real number as such."""
    if not isinstance(column.type, JSON | String):
        return column
    return func.convert_to(cast(column, String), "UTF8", type_=LargeBinary)


def size(connection: Connection) -> int:
    """Bytes of the whole database: also of what others have in it."""
    return int(connection.scalar(select(func.pg_database_size(func.current_database()))) or 0)


def meaning(error: DBAPIError) -> FederationError | None:
    state = getattr(error.orig, "sqlstate", None) or ""
    if state == FULL:
        return StorageFull("No room in the store: the disk of its database is full", "Free disk space; nothing was written")
    if state in UNDONE:
        return GaveWay(reason(error))
    if state.startswith(AWAY) or (not state and lost(error)):
        return incidents.away("The store does not answer", reason(error))
    return None


def lost(error: DBAPIError) -> bool:
    return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)


def reason(error: SQLAlchemyError) -> str:
    return " ".join(str(getattr(error, "orig", error)).split()).rstrip(".")


def advice(error: SQLAlchemyError) -> str:
    text = reason(error)
    return next((todo for words, todo in ADVICE.items() if words in text), AWAY_ADVICE)


def away(error: SQLAlchemyError) -> bool:
    """Whether it may open later by itself: it may be starting, or its machine."""
    return isinstance(error, OperationalError) and advice(error) == AWAY_ADVICE
