"""One look a second for all who listen to an event loop; the looks end when the last listener goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import structlog

from tideline.core.errors import FederationError

log = structlog.get_logger()
T = TypeVar("T")
MOST_WAITING = 30  # batches for a listener who takes none; then it is over for him, and he comes again
Poll = Callable[[], Sequence[T]]


class Listener(Generic[T]):
    """Who hears of changes, on one event loop."""

    def __init__(self) -> None:
        self._batches: asyncio.Queue[Sequence[T]] = asyncio.Queue(MOST_WAITING)
        self.over = False  # something may have been missed: begin anew

    def give(self, batch: Sequence[T]) -> None:
        try:
            self._batches.put_nowait(batch)
        except asyncio.QueueFull:
            self.over = True

    async def next(self, seconds: float) -> Sequence[T]:
        """The next batch; nothing when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._batches.get()
        return ()


class Watch(Generic[T]):
    """The looks for one event loop. begin: the first look, from which on changes are told; it blocks, as each look does."""

    def __init__(self, begin: Callable[[], Poll[T]], pause: float) -> None:
        self._begin, self._pause = begin, pause
        self._beginning = asyncio.Lock()
        self._listeners: set[Listener[T]] = set()
        self._polling: asyncio.Task[None] | None = None

    async def join(self) -> Listener[T]:
        """A new listener, who hears of what changes from now on. Raises Unreachable."""
        async with self._beginning:
            if self._polling is None or self._polling.done():
                poll = await asyncio.to_thread(self._begin)
                self._polling = asyncio.create_task(self._poll(poll))
            listener = Listener[T]()
            self._listeners.add(listener)  # in the same pass of the loop, so that the looks do not end between the two
        return listener

    def leave(self, listener: Listener[T]) -> None:
        """Whoever was the last to listen ends the looks."""
        self._listeners.discard(listener)
        if not self._listeners and self._polling is not None:
            self._polling.cancel()
            self._polling = None

    async def _poll(self, poll: Poll[T]) -> None:
        failure = ""
        try:
            while True:
                await asyncio.sleep(self._pause)
                try:
                    batch, failure = await asyncio.to_thread(poll), ""
                except FederationError as error:  # the next look finds what this one would have found
                    if str(error) != failure:
                        failure = str(error)
                        log.warning("changes_unknown", reason=failure)
                    continue
                if batch:
                    for listener in tuple(self._listeners):
                        listener.give(batch)
        except Exception:
            log.exception("changes_failed")
            for listener in self._listeners:
                listener.over = True


class Feed(Generic[T]):
    """The watches of a coordinator: one for each event loop that somebody listens on."""

    def __init__(self, begin: Callable[[], Poll[T]], pause: float) -> None:
        self._begin, self._pause = begin, pause
        self._of: WeakKeyDictionary[asyncio.AbstractEventLoop, Watch[T]] = WeakKeyDictionary()

    async def join(self) -> tuple[Watch[T], Listener[T]]:
        """The loop's watch, and a new listener of it, who has to leave it. Raises Unreachable."""
        watch = self._of.setdefault(asyncio.get_running_loop(), Watch(self._begin, self._pause))
        return watch, await watch.join()
