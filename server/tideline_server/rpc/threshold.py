"""What calls may hold before it is proven who makes them.

A call's bytes are not read until there is room for them: until then gRPC's window for a stream bounds what is in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from tideline.core.errors import FederationError, Malformed, TooMany, Unreachable
from tideline_server.limits import address_of, network_of
from tideline_server.rpc.wire import MAX_KIND, Context

T = TypeVar("T")
STRIKES = 32  # calls without a proof that are refused on one connection, before it is cut
MOST_STRUCK = 10_000  # connections whose refused calls are counted


class TooSlow(Unreachable):
    """The caller makes us wait. To an agent it is an outage: it calls again."""

    @property
    def kind(self) -> str:
        """Known by its base to whoever is told."""
        return Unreachable.__name__


@dataclass(frozen=True)
class Bounds:
    """Calls that wait for their proof, of one place and of all, and how many of them are read at once. calls: in all.

    Seconds: for a first message, and for one whose room others wait for.
    """

    unproven_from: int = 64
    unproven: int = 512
    reads_from: int = 4
    reads: int = 16
    calls: int = 10_000
    seconds: float = 30.0
    hasty: float = 2.0


@dataclass(frozen=True)
class Connections:
    """The connections of a port, by their peers: which one a client calls over, and how to end one. Here: nothing is done."""

    proven: Callable[[str], None] = lambda peer: None
    cut: Callable[[str], None] = lambda peer: None


class Line:
    """Those who wait at one place: at an address, or under a client's name there."""

    def __init__(self, reads: int) -> None:
        self.calls, self.turn = 0, asyncio.Semaphore(reads)


class Queue:
    """Calls that are not proven yet, in a line for each place. All on one loop."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._lines: dict[str, Line] = {}
        self._turn = asyncio.Semaphore(bounds.reads)
        self.calls, self._waiting = 0, 0
        self._reading: dict[asyncio.Timeout, float] = {}

    @contextlib.contextmanager
    def standing(self, place: str) -> Iterator[Line]:
        """A call in its line. Raises TooMany."""
        bounds, line = self._bounds, self._lines.get(place) or Line(self._bounds.reads_from)
        if line.calls >= bounds.unproven_from or self.calls >= bounds.unproven:
            raise crowded(f"{bounds.unproven_from} calls from one place, or {bounds.unproven} in all, are not proven yet")
        self._lines[place] = line
        line.calls, self.calls = line.calls + 1, self.calls + 1
        try:
            yield line
        finally:
            line.calls, self.calls = line.calls - 1, self.calls - 1
            if not line.calls:
                self._lines.pop(place, None)

    @contextlib.asynccontextmanager
    async def reading(self, line: Line) -> AsyncIterator[None]:
        """The turn to read a first message; it is over sooner where others wait. Raises TimeoutError."""
        async with asyncio.timeout(self._bounds.seconds):
            await self._take(line)
        try:
            async with asyncio.timeout(self._bounds.hasty if self._waiting else self._bounds.seconds) as limit:
                self._reading[limit] = asyncio.get_running_loop().time()
                try:
                    yield
                finally:
                    del self._reading[limit]
        finally:
            line.turn.release()
            self._turn.release()

    async def _take(self, line: Line) -> None:
        """Wait for a turn at the place, and for one of all."""
        self._waiting += 1
        try:
            if line.turn.locked() or self._turn.locked():
                self._hurry()
            await line.turn.acquire()
            try:
                await self._turn.acquire()
            except BaseException:
                line.turn.release()
                raise
        finally:
            self._waiting -= 1

    def _hurry(self) -> None:
        """Somebody waits: those who are read have little time left."""
        for limit, began in self._reading.items():
            until = limit.when()
            if until is not None:
                limit.reschedule(min(until, began + self._bounds.hasty))


class Place:
    """Where a call stands: in a line until it is proven, and then with its client."""

    def __init__(self, peer: str, queue: Queue) -> None:
        self.peer, self.queue, self.proven = peer, queue, False
        self.line: Line | None = None
        self._stands = contextlib.ExitStack()

    def move(self, standing: contextlib.AbstractContextManager[T]) -> T:
        """Stand somewhere, and no more where it stood."""
        self._stands.close()
        return self._stands.enter_context(standing)

    def leave(self) -> None:
        self._stands.close()


PLACE: ContextVar[Place] = ContextVar("place")  # of the call at hand


class Threshold:
    """Lets calls in, each to its line. known: whether a name is that of a client that is let in; it asks nobody."""

    def __init__(
        self, known: Callable[[str], bool], connections: Connections | None = None, bounds: Bounds | None = None
    ) -> None:
        self._known, self.connections, self.bounds = known, connections or Connections(), bounds or Bounds()
        # Strangers take no room from clients. Whoever uses a client's name takes it from that name at his own address.
        self._strangers, self._clients = Queue(self.bounds), Queue(self.bounds)
        self._strikes: Counter[str] = Counter()
        self.calls = 0

    @property
    def unproven(self) -> int:
        """Calls that are not proven yet."""
        return self._strangers.calls + self._clients.calls

    @contextlib.contextmanager
    def entering(self, context: Context) -> Iterator[Place]:
        """A call, from its first moment to its last. Raises TooMany."""
        if self.calls >= self.bounds.calls:
            raise crowded(f"{self.bounds.calls} calls are under way")
        peer, name = context.peer(), str(dict(context.invocation_metadata() or ()).get("tideline-client", ""))[:MAX_KIND]
        address, is_client = network_of(address_of(peer)), bool(name) and self._known(name)
        place = Place(peer, self._clients if is_client else self._strangers)
        PLACE.set(place)
        self.calls += 1
        try:
            place.line = place.move(place.queue.standing(f"{name} at {address}" if is_client else address))
            yield place
        except FederationError:
            self._refused(place)
            raise
        finally:
            self.calls -= 1
            place.leave()

    async def first(self, place: Place, chunks: AsyncIterable[bytes]) -> bytes:
        """A call's first message, as soon as there is room for it. Raises TooSlow, Malformed."""
        assert place.line is not None, "it stands in a line"
        try:
            async with place.queue.reading(place.line):
                return await anext(aiter(chunks))  # not opened before: what is opened and not read is warned of
        except TimeoutError:
            raise TooSlow("The call's first message has not come in time", "Call again; an agent does by itself") from None
        except StopAsyncIteration:
            raise Malformed("The call brings no message", "Install the same version on both ends") from None

    def proven(self, standing: contextlib.AbstractContextManager[T]) -> T:
        """The call at hand is a client's: from here on it stands with it. Raises what `standing` does."""
        place = PLACE.get()
        place.proven = True
        self._strikes.pop(place.peer, None)
        self.connections.proven(place.peer)
        return place.move(standing)

    def _refused(self, place: Place) -> None:
        """Who is refused again and again, and proves nothing, has to connect anew."""
        if place.proven:
            return
        self._strikes[place.peer] += 1
        if self._strikes[place.peer] >= STRIKES:
            del self._strikes[place.peer]
            self.connections.cut(place.peer)
        if len(self._strikes) > MOST_STRUCK:
            self._strikes.clear()


def crowded(what: str) -> TooMany:
    return TooMany(what, "Call again in 1 s; an agent does by itself", retry_after=1)
