"""An open database: its transactions. Each reader sees a consistent snapshot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from tideline.core.errors import Unreachable
from tideline_server.store.database import dialect, incidents
from tideline_server.store.database.address import GaveWay, StoreAway, StoreRefused, read_address, shown
from tideline_server.store.database.dialect import translated
from tideline_server.store.database.group import Group
from tideline_server.store.database.prepared import straight
from tideline_server.store.database.revisions import agree

T = TypeVar("T")
TURN_SECONDS = 60.0  # how long a writer waits for the others of its own process
# Transactions side by side: more would keep the interpreter from the event loop, which then serves calls late.
# One may wait long for a row's lock, so others wait behind it for a moment at most.
ABREAST, MOMENT_SECONDS = 6, 1.0
TRIES = 4  # of a transaction that the database undoes in favour of another
Watch = Callable[[str, float], None]  # hears of each transaction: read or write, and its seconds


class Store:
    """An open database. Raises Unreachable and StorageFull if a transaction fails; then nothing was written.

    One exception: if the connection breaks amid a commit, that is Unreachable too, and the write may be there.
    """

    def __init__(self, engine: Engine, kind: dialect.Database, watch: Watch) -> None:
        self._engine, self._watch = engine, watch
        self._readers = engine.execution_options(**kind.reading)
        self._writers = engine.execution_options(**kind.writing)
        self._group = Group(self._transact, TURN_SECONDS) if kind.queued else None
        self._abreast = threading.Semaphore(ABREAST)
        self._idle = threading.Condition()
        self._users = 0
        self._closed = False

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A snapshot, from any thread."""
        with self._timed("read"), self._used(), self._place(), translated(), self._readers.connect() as made, made.begin():
            yield straight(made)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Put all of `work` on the disk or, if anything raises, none. May call `work` again."""
        with self._timed("write"), self._used():
            return self._transact(work) if self._group is None else self._group.write(work)

    def _transact(self, work: Callable[[Connection], T]) -> T:
        for left in reversed(range(TRIES)):
            try:
                with self._place(), translated(), self._writers.begin() as made:
                    return work(straight(made))
            except GaveWay as error:
                if not left:
                    raise incidents.away("The store gave way to another", error.what) from error
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Wait for the transactions under way, then let go of the database. Later ones raise Unreachable."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: self._users == 0)
        self._engine.dispose()

    @property
    def connections(self) -> int:
        pool = self._engine.pool
        return pool.checkedout() if isinstance(pool, QueuePool) else 0

    @contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._watch(kind, time.monotonic() - began)

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Take one of the few places; after a moment without one, go on beside them."""
        had = self._abreast.acquire(timeout=MOMENT_SECONDS)
        try:
            yield
        finally:
            if had:
                self._abreast.release()

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


def open_store(where: Path | str, watch: Watch = lambda *transaction: None) -> Store:
    """Open or make a store in a file or at a URL, and bring its tables up to date.

    Raises StoreRefused if it does not open, is something else, or is newer than this Tideline; StoreAway if waiting may help.
    """
    url = read_address(where)
    kind, name = dialect.kind_of(url), shown(url)
    engine = kind.engine_at(url)
    try:
        with engine.execution_options(**kind.writing).begin() as connection:
            kind.check(connection, name)
            agree(connection, name)
        kind.configure(engine)
    except StoreRefused:
        engine.dispose()
        raise
    except SQLAlchemyError as error:
        engine.dispose()
        reason = " ".join(str(getattr(error, "orig", error)).split())
        refusal = StoreAway if kind.away(error) else StoreRefused
        raise refusal(f"The store {name} cannot be opened: {reason}", kind.advice(error), path=name) from error
    return Store(engine, kind, watch)
