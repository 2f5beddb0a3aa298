"""Statements that are compiled once and then go straight to SQLite's driver.

An order takes dozens of small statements, and SQLAlchemy's way to the driver costs ten times what SQLite does for one of them.
Only statements named by `prepared` go this way; they mean the same on both.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Dialect, Executable, Select
from sqlalchemy.engine import IteratorResult
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

S = TypeVar("S", bound=Executable)
Values = Mapping[str, Any]
Convert = Callable[[Any], Any] | None
MOST_LISTED = 8  # values of a list parameter: each number of them is a statement of its own
STATEMENTS: dict[int, Any] = {}  # those that go straight, by identity; they are constants of modules


def prepared(statement: S) -> S:
    """The statement, which `straight` connections compile once. Give constants alone: it is remembered for good."""
    STATEMENTS[id(statement)] = statement
    return statement


@dataclass(frozen=True)
class Compiled:
    """A statement as text, its parameters in order (name, place in a list or None, conversion), and its columns, if it has some.

    constants: parameters that stand in the statement itself.
    """

    text: str
    parameters: tuple[tuple[str, int | None, Convert], ...]
    constants: Values
    columns: SimpleResultMetaData | None
    readers: tuple[Convert, ...]

    def bound(self, values: Values) -> list[Any]:
        """A row of values as the driver takes them."""
        row = []
        for name, at, convert in self.parameters:
            value = values[name] if name in values else self.constants[name]
            value = value if at is None else value[at]
            row.append(value if convert is None else convert(value))
        return row

    def read(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """A row of the driver as values."""
        return tuple(value if read is None else read(value) for value, read in zip(row, self.readers, strict=True))


class Straight:
    """A connection to SQLite within a transaction. Statements that are not prepared go SQLAlchemy's way."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self.dialect = connection, connection.dialect
        self._driver = driver_of(connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: Executable, values: Values | Sequence[Values] | None = None) -> Any:
        compiled = self._compiled(statement, values)
        if compiled is None:
            return self._connection.execute(statement, values)
        with as_sqlalchemys(compiled.text):
            if isinstance(values, Sequence):
                self._driver.executemany(compiled.text, [compiled.bound(each) for each in values])
                return None
            cursor = self._driver.execute(compiled.text, compiled.bound(values or {}))
            if compiled.columns is None:
                return cursor
            rows = map(compiled.read, cursor.fetchall()) if any(compiled.readers) else iter(cursor.fetchall())
            return IteratorResult(compiled.columns, rows)

    def scalar(self, statement: Executable, values: Values | None = None) -> Any:
        return self.execute(statement, values).scalar()

    def scalars(self, statement: Executable, values: Values | None = None) -> Any:
        return self.execute(statement, values).scalars()

    def _compiled(self, statement: Executable, values: Values | Sequence[Values] | None) -> Compiled | None:
        """None for what goes SQLAlchemy's way."""
        if STATEMENTS.get(id(statement)) is not statement:
            return None
        lists: tuple[tuple[str, int], ...] = ()
        if isinstance(values, Mapping):
            lists = tuple((name, len(each)) for name, each in values.items() if isinstance(each, list | tuple | set))
            lists = tuple(each for each in lists if each[0] in listed(id(statement), self.dialect))
        return None if any(not 0 < many <= MOST_LISTED for _, many in lists) else compiled(id(statement), self.dialect, lists)


def straight(connection: Connection) -> Connection:
    """The connection, on which prepared statements go straight to the driver, where it is SQLite's."""
    return cast(Connection, Straight(connection)) if connection.dialect.name == "sqlite" else connection


def directly(connection: Connection, text: str) -> None:
    """Have SQLite do what has neither values nor rows, such as to begin a transaction."""
    with as_sqlalchemys(text):
        driver_of(connection).execute(text)


def driver_of(connection: Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, connection.connection.driver_connection)


@contextmanager
def as_sqlalchemys(text: str) -> Iterator[None]:
    """Raises the driver's errors as SQLAlchemy does."""
    try:
        yield
    except sqlite3.Error as error:
        raise cast(BaseException, DBAPIError.instance(text, None, error, sqlite3.Error)) from error


@cache
def listed(statement: int, dialect: Dialect) -> frozenset[str]:
    """The names of a statement's list parameters."""
    made = cast(SQLCompiler, STATEMENTS[statement].compile(dialect=dialect))
    return frozenset(str(bind.key) for bind in made.binds.values() if bind.expanding)


@cache
def compiled(statement: int, dialect: Dialect, lists: tuple[tuple[str, int], ...]) -> Compiled:
    """A statement for lists of these lengths."""
    given = STATEMENTS[statement]
    plain = cast(SQLCompiler, given.compile(dialect=dialect))
    kinds = {name: converter(bind.type, dialect) for name, bind in plain.binds.items()}
    constants = {name: bind.effective_value for name, bind in plain.binds.items() if not bind.required}
    filled = dict.fromkeys(kinds) | constants | {name: [""] * many for name, many in lists}
    full = plain.construct_expanded_state(filled)
    places = {each: (name, at) for name, some in full.parameter_expansion.items() for at, each in enumerate(some)}
    wanted = [places.get(each, (each, None)) for each in full.positiontup or ()]
    parameters = tuple((name, at, kinds[name]) for name, at in wanted)
    if not isinstance(given, Select):
        return Compiled(text=full.statement, parameters=parameters, constants=constants, columns=None, readers=())
    columns = list(given.selected_columns)
    readers = tuple(reader(column.type, dialect) for column in columns)
    names = SimpleResultMetaData([str(column.key) for column in columns])
    return Compiled(text=full.statement, parameters=parameters, constants=constants, columns=names, readers=readers)


def converter(kind: TypeEngine[Any], dialect: Dialect) -> Convert:
    return kind.dialect_impl(dialect).bind_processor(dialect)


def reader(kind: TypeEngine[Any], dialect: Dialect) -> Convert:
    return kind.dialect_impl(dialect).result_processor(dialect, None)
