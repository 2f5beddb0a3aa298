"""Which database is beneath. What differs lies in `sqlite` and `postgres`, which have the same functions; the rest is here."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, cast

from sqlalchemy import URL, Column, ColumnElement, Connection, Engine, Executable, Insert, Table
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tideline.core.errors import FederationError
from tideline_server.store.database import postgres, sqlite

INSERTS: Mapping[str, Callable[[Table], Any]] = {"sqlite": sqlite_insert, "postgresql": postgres_insert}
RAW: Mapping[str, Callable[[ColumnElement[Any]], ColumnElement[Any]]] = {
    "sqlite": sqlite.as_stored,
    "postgresql": postgres.as_stored,
}


class Database(Protocol):
    """A kind of database: how it is opened, and the execution options of readers and of writers.

    queued: whether a process's writers take turns. check: raises StoreRefused for a database that cannot hold a store.
    configure: sets what needs the tables. away: whether waiting may help. advice: what to do if it cannot be opened.
    """

    @property
    def reading(self) -> Mapping[str, Any]: ...
    @property
    def writing(self) -> Mapping[str, Any]: ...
    @property
    def queued(self) -> bool: ...
    def engine_at(self, url: URL) -> Engine: ...
    def check(self, connection: Connection, name: str) -> None: ...
    def configure(self, engine: Engine) -> None: ...
    def away(self, error: SQLAlchemyError) -> bool: ...
    def advice(self, error: SQLAlchemyError) -> str: ...


def kind_of(url: URL) -> Database:
    return sqlite if url.get_backend_name() == "sqlite" else postgres


def meaning(error: DBAPIError) -> FederationError | None:
    """The error as a person meets it; None for one that only a fault of ours can cause."""
    return sqlite.meaning(error) if isinstance(error.orig, sqlite3.Error) else postgres.meaning(error)


def as_stored(dialect: str, column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A column as it lies there, for who does not trust that it holds what it should: a text comes as its bytes."""
    return RAW[dialect](column)


def upsert(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], *renew: str, unless: Column[Any] | None = None
) -> None:
    """Insert rows; where the primary key (or `unless`) is there already, renew these columns of the row.

    Two that write the same rows side by side must give them in the same order: the second waits for the first at each row.
    """
    if rows:
        connection.execute(upserting(connection.dialect.name, table, renew, unless), rows)


def added(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row; False where its primary key is there already. It waits for whoever writes the same key just now."""
    statement = upserting(connection.dialect.name, table, (), None)
    return connection.execute(cast(Insert, statement).returning(*table.primary_key.columns), row).one_or_none() is not None


@cache
def upserting(dialect: str, table: Table, renew: tuple[str, ...], unless: Column[Any] | None) -> Executable:
    statement = INSERTS[dialect](table)
    keys = list(table.primary_key.columns) if unless is None else [unless]
    if renew:
        changes = {name: statement.excluded[name] for name in renew}
        return cast(Executable, statement.on_conflict_do_update(index_elements=keys, set_=changes))
    return cast(Executable, statement.on_conflict_do_nothing(index_elements=keys))
