"""The bell within one process: wakes what waits on a topic. A hint only; whoever is woken reads the journal."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

MOST = 10_000  # topics whose last ring is remembered


class LocalBell:
    """Rung from any thread, heard on one event loop. Rings are numbered, so that none is missed between look and wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = MOST) -> None:
        self._loop, self._most = loop, most
        self._rings: dict[str, int] = {}  # the number of each topic's last ring, the oldest first
        self._last, self._forgotten = 0, 0
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._heard: list[Callable[[str], None]] = []

    def ring(self, topic: str) -> None:
        """Wake everybody who waits on the topic."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring, topic)

    def start(self) -> None:
        """Nothing to begin."""

    async def close(self) -> None:
        """Nothing to let go of."""

    @property
    def reaches(self) -> str:
        """Who hears a ring, in words."""
        return "this process"

    def on_ring(self, heard: Callable[[str], None]) -> None:
        """Call `heard` on the loop at every ring."""
        self._heard.append(heard)

    def count(self, topic: str) -> int:
        """The number of the topic's last ring, or one that is newer; give it to `moved`, then look, then wait."""
        return self._rings.get(topic, self._forgotten)

    async def moved(self, topic: str, seen: int, timeout: float) -> bool:
        """Wait until the topic has rung after the ring `seen`; False when the time is up."""
        event = asyncio.Event()
        self._waiting[topic].add(event)
        try:
            if self.count(topic) != seen:
                return True
            async with asyncio.timeout(timeout):
                await event.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self._waiting[topic].discard(event)
            if not self._waiting[topic]:
                del self._waiting[topic]

    def nudge(self, topic: str) -> None:
        """Wake who waits here, as if it had rung; nobody else hears of it. On the loop's own thread."""
        self._last += 1
        self._rings.pop(topic, None)
        self._rings[topic] = self._last
        while len(self._rings) > self._most:
            self._forgotten = self._rings.pop(next(iter(self._rings)))  # who waits for it may be woken for nothing
        for event in self._waiting.get(topic, ()):
            event.set()

    def look_around(self) -> None:
        """Let everybody who waits here look: other replicas ring where nobody hears it. On the loop's own thread."""
        for topic in tuple(self._waiting):
            self.nudge(topic)

    def _ring(self, topic: str) -> None:
        self.nudge(topic)
        for heard in self._heard:
            heard(topic)
