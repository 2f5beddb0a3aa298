"""Group commit: writers that wait for each other share a transaction, so that many writes cost one wait for the disk.

What one of them raises undoes its own writes alone. DeWitt et al., "Implementation Techniques for Main Memory Database Systems",
SIGMOD 1984.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from sqlalchemy import Connection

from tideline.core.errors import FederationError, Unreachable
from tideline_server.store.database.dialect import translated
from tideline_server.store.database.prepared import directly, driver_of

T = TypeVar("T")
MOST = 64  # writes of one transaction
Work = Callable[[Connection], T]
new_turn = threading.Event


class Write(Generic[T]):
    """A write that waits for its turn. Then it was done by another thread, or leads the others that wait."""

    def __init__(self, work: Work[T]) -> None:
        self.work, self.turn, self.done = work, new_turn(), False
        self.value: T | None = None
        self.error: BaseException | None = None

    def within(self, connection: Connection) -> None:
        """Do it, in a savepoint of its own. Raises what it raises only if the database has undone the whole transaction."""
        directly(connection, "SAVEPOINT one")
        try:
            with translated():
                self.value = self.work(connection)
        except Exception as error:
            if not begun(connection):
                raise
            self.error = error
            directly(connection, "ROLLBACK TO one")
        directly(connection, "RELEASE one")

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


class Group:
    """The writers of one database. `transact` runs a function in a transaction and commits it."""

    def __init__(self, transact: Callable[[Work[None]], None], seconds: float) -> None:
        self._transact, self._seconds = transact, seconds
        self._lock = threading.Lock()
        self._waiting: deque[Write[object]] = deque()
        self._led = False

    def write(self, work: Work[T]) -> T:
        """Do some work and commit it, together with what others have to write. Raises what it raises, and Unreachable."""
        mine: Write[T] = Write(work)
        with self._lock:
            self._waiting.append(mine)  # type: ignore[arg-type]
            leads, self._led = not self._led, True
        if not leads:
            self._await(mine)
        if not mine.done:
            self._lead()
        return mine.result()

    def _await(self, mine: Write[T]) -> None:
        """Wait until it is done, or may lead. Raises Unreachable for one that nobody has begun in time."""
        try:
            if mine.turn.wait(self._seconds):
                return
            if self._taken_back(mine):
                what = "The store is too slow: other writes wait before this one"
                raise Unreachable(what, "Look at its disk or its database")
            mine.turn.wait()
        except Unreachable:
            raise
        except BaseException:  # the thread is interrupted: if it has been given the lead, another one must take it
            if not self._taken_back(mine) and mine.turn.is_set() and not mine.done:
                self._lead()
            raise

    def _taken_back(self, mine: Write[T]) -> bool:
        """Whether a write still waited, and waits no more."""
        with self._lock:
            waits = not mine.turn.is_set() and mine in self._waiting
            if waits:
                self._waiting.remove(mine)  # type: ignore[arg-type]
            return waits

    def _lead(self) -> None:
        """Do the first of those that wait, this thread's among them, and hand over to the next."""
        with self._lock:
            some = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
        try:
            self._do(some)
        finally:
            for each in some:
                each.done = True
                each.turn.set()
            with self._lock:
                self._led = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].turn.set()

    def _do(self, some: Sequence[Write[object]]) -> None:
        try:
            if len(some) == 1:
                self._transact(lambda connection: alone(some[0], connection))
            else:
                self._transact(lambda connection: each_within(some, connection))
        except BaseException as error:
            for each in some:
                each.error = each.error or (error if each is some[0] else again(error))
            if not isinstance(error, Exception):
                raise


def begun(connection: Connection) -> bool:
    """Whether a transaction goes on. A disk that is full ends it, and a savepoint would then begin another one."""
    return driver_of(connection).in_transaction


def alone(write: Write[object], connection: Connection) -> None:
    write.value = write.work(connection)


def each_within(some: Sequence[Write[object]], connection: Connection) -> None:
    for each in some:
        each.error = None
        each.within(connection)


def again(error: BaseException) -> BaseException:
    """The error for one more thread to raise: one instance would gather the traces of all."""
    if isinstance(error, FederationError):
        copy: BaseException = type(error)(error.what, error.todo, **error.context)
    else:
        copy = error if isinstance(error, Exception) else Unreachable("The write was interrupted", "It is tried again")
    if copy is not error:
        copy.__cause__ = error
    return copy
