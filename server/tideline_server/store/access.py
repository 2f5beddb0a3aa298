"""Transactions: one writer at a time, readers beside it, each a consistent snapshot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tideline.core.errors import Unreachable
from tideline_server.store import dialect, schema
from tideline_server.store.errors import StoreRefused


class Store:
    """An open database. Raises Unreachable and StorageFull where a transaction cannot be had; then nothing was written."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writers = engine.execution_options(**{dialect.WRITES: True})
        self._writing = threading.Lock()
        self._idle = threading.Condition()
        self._users = 0
        self._closed = False

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A snapshot, from any thread."""
        with self._used(), translated(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """The writer's turn: all of it is on the disk afterwards or, if anything raises, none."""
        with self._used(), self._writing, translated(), self._writers.begin() as connection:
            yield connection

    def close(self) -> None:
        """Wait for what is under way, then let go of the file. Later transactions raise Unreachable."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: self._users == 0)
        self._engine.dispose()

    @contextmanager
    def _used(self) -> Iterator[None]:
        with self._idle:
            if self._closed:
                raise Unreachable("The store is closed", "Start the coordinator again")
            self._users += 1
        try:
            yield
        finally:
            with self._idle:
                self._users -= 1
                self._idle.notify_all()


@contextmanager
def translated() -> Iterator[None]:
    """The database's errors as ours."""
    try:
        yield
    except DBAPIError as error:
        ours = dialect.meaning(error)
        if ours is None:
            raise
        raise ours from error


def open_store(path: Path) -> Store:
    """Open or make the database. Raises StoreRefused if it cannot be opened, is something else, or has another version."""
    engine = dialect.engine_at(path)
    try:
        with engine.execution_options(**{dialect.WRITES: True}).begin() as connection:
            schema.agree(connection, path)
        dialect.write_ahead(engine)
    except StoreRefused:
        engine.dispose()
        raise
    except SQLAlchemyError as error:
        engine.dispose()
        reason = getattr(error, "orig", error)
        todo = "Give the path of a file that this user may write, in a folder that exists, or of a store that Tideline made"
        raise StoreRefused(f"The store {path} cannot be opened: {reason}", todo, path=str(path)) from error
    return Store(engine)
