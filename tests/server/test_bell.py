"""The bell: nobody sleeps through a ring; with Redis, other replicas hear it, and a dead Redis delays and loses nothing."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.redis import Redis
from tests.server.loops import LONG, on_a_loop
from tideline.core.errors import ConfigRefused
from tideline_server.bell import LocalBell, RedisBell

POLL = 0.05


@asynccontextmanager
async def replica(server: Redis) -> AsyncIterator[RedisBell]:
    """A bell that is connected."""
    bell = RedisBell(asyncio.get_running_loop(), server.url, POLL)
    bell.start()
    await until(lambda: bell.connected)
    yield bell
    await bell.close()


async def until(true: object) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(LONG):
        while not true():  # type: ignore[operator]
            await asyncio.sleep(0)


@asynccontextmanager
async def bell_of(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[LocalBell]:
    """Either bell."""
    if kind == "local":
        yield LocalBell(asyncio.get_running_loop())
        return
    async with replica(request.getfixturevalue("server")) as bell:
        yield bell


KINDS = pytest.mark.parametrize("kind", ["local", "redis"])


@KINDS
@on_a_loop
async def test_a_ring_wakes_who_waits(kind: str, request: pytest.FixtureRequest) -> None:
    """From any thread; only those who wait on its topic."""
    request.getfixturevalue("server") if kind == "redis" else None
    async with bell_of(kind, request) as bell:
        heard: list[str] = []
        bell.on_ring(heard.append)
        waiting = asyncio.create_task(bell.moved("run:a", bell.count("run:a"), LONG))
        await asyncio.sleep(0)
        threading.Thread(target=bell.ring, args=("run:a",)).start()
        assert await waiting
        assert "run:a" in heard
        assert not await bell.moved("run:b", bell.count("run:b"), 0.01)


@on_a_loop
async def test_a_bell_that_others_do_not_hear_lets_everybody_look() -> None:
    """Whoever waits is woken, as if its topic had rung; nobody is told of a ring."""
    bell, heard = LocalBell(asyncio.get_running_loop()), list[str]()
    bell.on_ring(heard.append)
    waiting = [asyncio.create_task(bell.moved(topic, bell.count(topic), LONG)) for topic in ("client:a", "client:b")]
    await asyncio.sleep(0)
    bell.nudge_all()
    assert await asyncio.gather(*waiting) == [True, True]
    assert heard == []


@KINDS
@on_a_loop
async def test_a_ring_between_look_and_wait_is_not_missed(kind: str, request: pytest.FixtureRequest) -> None:
    """The count from before the look tells."""
    request.getfixturevalue("server") if kind == "redis" else None
    async with bell_of(kind, request) as bell:
        seen = bell.count("run:a")
        bell.ring("run:a")
        await until(lambda: bell.count("run:a") != seen)
        assert await bell.moved("run:a", seen, 0.0)


@on_a_loop
async def test_of_many_topics_the_last_rung_are_remembered() -> None:
    """Who looked before a topic was forgotten is woken for nothing rather than not at all."""
    bell = LocalBell(asyncio.get_running_loop(), most=2)
    bell.nudge("run:a")
    seen = bell.count("run:a")
    assert not await bell.moved("run:a", seen, 0.0)
    for topic in ("run:b", "run:c", "run:b"):
        bell.nudge(topic)
    assert list(bell._rings) == ["run:c", "run:b"]
    assert not await bell.moved("run:a", bell.count("run:a"), 0.0)
    bell.nudge("run:a")
    assert await bell.moved("run:a", seen, 0.0)
    before = bell.count("run:new")
    bell.nudge("run:new")
    bell.nudge("run:x")
    bell.nudge("run:y")
    assert await bell.moved("run:new", before, 0.0)


@on_a_loop
async def test_replicas_hear_each_other(server: Redis) -> None:
    """What rings at one wakes who waits at the other; its own ring is counted once."""
    async with replica(server) as one, replica(server) as two:
        seen = one.count("run:a"), two.count("run:a")
        waiting = asyncio.create_task(two.moved("run:a", seen[1], LONG))
        await asyncio.sleep(0)
        one.ring("run:a")
        assert await waiting
        two.ring("run:b")
        await until(lambda: one.count("run:b"))
        assert one.count("run:a") == seen[0] + 1


@on_a_loop
async def test_a_dead_redis_delays_and_loses_nothing(server: Redis) -> None:
    """Rings are heard at home at once; who waits for another replica's looks by himself; later they hear each other again."""
    async with replica(server) as one, replica(server) as two:
        server.kill()
        await until(lambda: not (one.connected or two.connected))
        at_home = asyncio.create_task(one.moved("run:a", one.count("run:a"), LONG))
        elsewhere = asyncio.create_task(two.moved("run:a", two.count("run:a"), LONG))
        await asyncio.sleep(0)
        one.ring("run:a")
        assert await at_home
        assert await elsewhere, "by its own poll"
        server.start()
        await until(lambda: one.connected and two.connected)
        again = asyncio.create_task(two.moved("run:c", two.count("run:c"), LONG))
        await asyncio.sleep(0)
        one.ring("run:c")
        assert await again


@on_a_loop
async def test_a_redis_that_stands_still_counts_as_away(server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that takes a ping and never answers is given up, and whoever waits polls until Redis goes on."""
    monkeypatch.setattr("tideline_server.bell.bell.CALL_SECONDS", 0.2)
    async with replica(server) as bell:
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        try:
            await until(lambda: not bell.connected)
            assert "Redis is away" in bell.reaches
        finally:
            server.process.send_signal(signal.SIGCONT)
        await until(lambda: bell.connected)


@on_a_loop
async def test_nothing_of_it_is_kept_in_redis(server: Redis) -> None:
    """So that flushing loses nothing: there are no keys."""
    async with replica(server) as one, replica(server) as two:
        one.ring("run:a")
        await until(lambda: two.count("run:a"))
        assert await one._redis.dbsize() == 0


@on_a_loop
async def test_a_redis_that_is_not_there_is_no_reason_not_to_start(tmp_path: Path) -> None:
    """It may come later."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        bell = RedisBell(asyncio.get_running_loop(), f"redis://127.0.0.1:{free.getsockname()[1]}", POLL)
        bell.start()
        waiting = asyncio.create_task(bell.moved("run:a", bell.count("run:a"), LONG))
        assert await waiting
        await bell.close()
        assert not bell.connected


def test_a_malformed_address() -> None:
    """Said before anything starts."""

    async def play() -> None:
        RedisBell(asyncio.get_running_loop(), "http://127.0.0.1")

    with pytest.raises(ConfigRefused, match="address of Redis is malformed"):
        asyncio.run(play())
