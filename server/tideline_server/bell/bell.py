"""The bell: wakes what waits on a topic, in this process or, over Redis, at all replicas. A ring is only a hint."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import defaultdict
from collections.abc import Callable

import redis.asyncio as redis
import structlog
from redis.exceptions import RedisError

from tideline.core.errors import ConfigRefused

MOST = 10_000  # topics whose last ring is remembered


class LocalBell:
    """Rung from any thread, heard on one event loop. Rings are numbered, so that none is missed between look and wait."""

    connected: bool | None = None  # whether other replicas hear a ring; None where there is no Redis

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = MOST) -> None:
        self._loop, self._most = loop, most
        self._rings: dict[str, int] = {}  # the number of each topic's last ring, the oldest first
        self._last, self._forgotten = 0, 0
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._heard: list[Callable[[str], None]] = []

    def ring(self, topic: str) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring, topic)

    def start(self) -> None:
        """Nothing to begin."""

    async def close(self) -> None:
        """Nothing to let go of."""

    @property
    def reaches(self) -> str:
        return "this process"

    def on_ring(self, heard: Callable[[str], None]) -> None:
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

    def nudge_all(self) -> None:
        """Let everybody who waits here look: other replicas ring where nobody hears it. On the loop's own thread."""
        for topic in tuple(self._waiting):
            self.nudge(topic)

    def _ring(self, topic: str) -> None:
        self.nudge(topic)
        for heard in self._heard:
            heard(topic)


log = structlog.get_logger()
CHANNEL = "tideline:bell"  # topics of several federations on one Redis wake each other for nothing, and no more
POLL_SECONDS = 2.0  # while Redis is away, whoever waits looks this often by himself
CALL_SECONDS = 5.0  # after which a silent Redis counts as away
WAITING = 10_000  # rings that wait for Redis; more are dropped, for they are hints


class RedisBell(LocalBell):
    """A LocalBell whose rings the other replicas hear. No ring waits for Redis. Raises ConfigRefused for a malformed address."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str, poll: float = POLL_SECONDS) -> None:
        super().__init__(loop)
        try:
            self._redis = redis.from_url(url, socket_connect_timeout=CALL_SECONDS, socket_timeout=CALL_SECONDS)
        except ValueError as error:
            todo = "Give redis://HOST:PORT, or rediss:// for TLS"
            raise ConfigRefused(f"The address of Redis is malformed: {error}", todo) from None
        self.connected = False
        self._me, self._poll = secrets.token_hex(8), poll
        self._outgoing: asyncio.Queue[str] = asyncio.Queue(WAITING)
        self._tasks: list[asyncio.Task[None]] = []
        self._reported = False

    def ring(self, topic: str) -> None:
        super().ring(topic)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._publish, topic)

    @property
    def reaches(self) -> str:
        return "all replicas" if self.connected else "this process; Redis is away"

    def nudge_all(self) -> None:
        """Not needed: the others are heard, and polls stand in for them while Redis is away."""

    def start(self) -> None:
        self._tasks = [self._loop.create_task(work) for work in (self._listen(), self._send())]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(RedisError, OSError):
            await self._redis.aclose()

    def _publish(self, topic: str) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._outgoing.put_nowait(topic)

    async def _send(self) -> None:
        """Publish rings one after the other. One that Redis does not take is a hint that is lost."""
        while True:
            topic = await self._outgoing.get()
            with contextlib.suppress(RedisError, OSError):
                await self._redis.publish(CHANNEL, f"{self._me} {topic}")

    async def _listen(self) -> None:
        """Hear the others; while Redis is away, wake whoever waits once a poll."""
        while True:
            try:
                await self._hear()
            except (RedisError, OSError) as error:
                self._away(error)
            except Exception as error:
                log.exception("bell_failed")  # a fault of ours; whoever waits goes on by polls all the same
                self._away(error)
            self._wake_all()
            await asyncio.sleep(self._poll)

    async def _hear(self) -> None:
        """Listen until the connection breaks. What rang before it stood was missed, so everybody looks once."""
        async with self._redis.pubsub(ignore_subscribe_messages=False) as line:
            await line.subscribe(CHANNEL)
            asked = False
            while True:
                message = await line.get_message(timeout=CALL_SECONDS)
                if message is None and asked:
                    raise RedisError(f"silent for {2 * CALL_SECONDS:g} s")
                asked = message is None
                if message is None:
                    await line.ping()  # a line that was cut without a word gives no answer
                elif message["type"] == "subscribe":
                    self._back()
                elif message["type"] == "message":
                    self._heard_from(bytes(message["data"]).decode(errors="replace"))

    def _heard_from(self, message: str) -> None:
        """A ring, unless it is our own, which was heard when it rang."""
        sender, _, topic = message.partition(" ")
        if topic and sender != self._me:
            self._ring(topic)

    def _back(self) -> None:
        self.connected = True
        if self._reported:
            log.info("redis_back")
        self._reported = False
        self._wake_all()

    def _away(self, error: Exception) -> None:
        """Told once for each outage."""
        self.connected = False
        if not self._reported:
            log.warning("redis_away", reason=str(error), todo="Nothing is lost: the coordinator polls until it is back")
        self._reported = True

    def _wake_all(self) -> None:
        for topic in tuple(self._waiting):
            self._ring(topic)
