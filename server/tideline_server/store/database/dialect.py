"""What both databases share. `sqlite` and `postgres` hold what differs, in functions of the same names."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Protocol

from sqlalchemy import URL, Column, Connection, Engine, Table, bindparam
from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnection

from tideline.core.errors import FederationError, Unreachable
from tideline.core.settings import Plain
from tideline_server.store.database import postgres, sqlite
from tideline_server.store.database.prepared import prepared

Insert = SqliteInsert | PostgresInsert
INSERTS: Mapping[str, Callable[[Table], Insert]] = {"sqlite": SqliteInsert, "postgresql": PostgresInsert}
SIZE = {"sqlite": sqlite.size, "postgresql": postgres.size}  # a database's bytes on its disk
# A column as it lies there, for readers who do not trust its content: a text comes as its bytes.
AS_STORED = {"sqlite": sqlite.as_stored, "postgresql": postgres.as_stored}


class Database(Protocol):
    """A kind of database: how to open it, and the execution options of readers and of writers.

    queued: whether a process's writers take turns. check: raises StoreRefused for a database that cannot hold a store.
    others: how many connections of other coordinators it shows. configure: sets what needs the tables. away: whether waiting may
    help. advice: what to do if it does not open.
    """

    @property
    def reading(self) -> Mapping[str, str | bool]: ...
    @property
    def writing(self) -> Mapping[str, str | bool]: ...
    @property
    def queued(self) -> bool: ...
    def engine_at(self, url: URL) -> Engine: ...
    def check(self, connection: Connection, name: str) -> None: ...
    def others(self, connection: Connection) -> int: ...
    def configure(self, engine: Engine) -> None: ...
    def away(self, error: SQLAlchemyError) -> bool: ...
    def advice(self, error: SQLAlchemyError) -> str: ...


def kind_of(url: URL) -> Database:
    return sqlite if url.get_backend_name() == "sqlite" else postgres


def meaning(error: DBAPIError) -> FederationError | None:
    """The error as a person meets it; None for one that only a fault of ours can cause."""
    return sqlite.meaning(error) if isinstance(error.orig, sqlite3.Error) else postgres.meaning(error)


@contextmanager
def translated() -> Iterator[None]:
    """Raises the database's errors as a person meets them; one that only a fault of ours can cause as it is."""
    try:
        yield
    except NoConnection as error:
        raise Unreachable("The store is too slow: all of its connections are in use", "Look at its database") from error
    except DBAPIError as error:
        ours = meaning(error)
        if ours is None:
            raise
        raise ours from error


def upsert(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Plain]], *renew: str, unless: Column[str] | None = None
) -> None:
    """Insert rows. If the primary key (or `unless`) is known, renew these columns of the row instead.

    Give the rows in one order: of two writers of the same rows, the second waits for the first at each row.
    """
    if rows:
        connection.execute(upserting(connection.dialect.name, table, renew, unless), rows)


def added(connection: Connection, table: Table, row: Mapping[str, Plain]) -> bool:
    """Insert a row. False if its primary key is known; waits for another writer of the same key."""
    statement = upserting(connection.dialect.name, table, (), None)
    return connection.execute(statement.returning(*table.primary_key.columns), row).one_or_none() is not None


def add_up(connection: Connection, table: Table, row: Mapping[str, Plain], sums: tuple[str, ...]) -> None:
    """Insert a row, or add these columns of it to those of the row with its primary key."""
    connection.execute(adding(connection.dialect.name, table, sums), row)


@cache
def adding(dialect: str, table: Table, sums: tuple[str, ...]) -> Insert:
    statement = INSERTS[dialect](table).values({column.name: bindparam(column.name) for column in table.columns})
    changes = {name: table.c[name] + statement.excluded[name] for name in sums}
    return prepared(statement.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=changes))


@cache
def upserting(dialect: str, table: Table, renew: tuple[str, ...], unless: Column[str] | None) -> Insert:
    counted = table.autoincrement_column
    given = [column.name for column in table.columns if column is not counted]
    statement = INSERTS[dialect](table).values({name: bindparam(name) for name in given})
    keys = list(table.primary_key.columns) if unless is None else [unless]
    if renew:
        changes = {name: statement.excluded[name] for name in renew}
        return prepared(statement.on_conflict_do_update(index_elements=keys, set_=changes))
    return prepared(statement.on_conflict_do_nothing(index_elements=keys))
