"""Limits: so many calls a minute and no more, counted by all replicas together; whoever waits as told is let in."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.budgets import examples
from tests.redis import Redis, running
from tests.server.grpc_port import grpc_port_of
from tests.server.loops import LONG, on_a_loop
from tideline.core.errors import TooMany
from tideline.core.run import Role
from tideline.engine.audit.entries import Refusals
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.journal import MemoryJournal
from tideline_agent import main as agent
from tideline_agent.home.identity import Keys
from tideline_agent.link import Endpoints, GrpcLink
from tideline_agent.settings import AgentSettings
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.bell import LocalCounts, RedisCounts
from tideline_server.bell.counts import MINUTE, Tally, minute_of, seconds_to_wait
from tideline_server.limits import Limits, Refusing, address_of, network_of
from tideline_server.settings import CoordinatorSettings

NOON = 1_000_000_040.0  # a third of a minute of the clock has passed


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """One for many examples."""
    with running(tmp_path_factory.mktemp("redis")) as made:
        yield made


# The arithmetic


@given(before=st.integers(0, 50), within=st.integers(0, 50), limit=st.integers(1, 20), passed=st.floats(0, 1, exclude_max=True))
def test_whoever_waits_as_told_is_let_in(before: int, within: int, limit: int, passed: float) -> None:
    """And not a second sooner than that."""
    wait = seconds_to_wait(Tally(7, before, within), passed, limit)
    assert 0 <= wait <= 2 * MINUTE

    def left(seconds: float) -> float:
        at, share = minute_of((7 + passed) * MINUTE + seconds)
        return seconds_to_wait(Tally(7, before, within).moved(at), share, limit)

    assert left(wait + 1e-3) == 0
    assert wait < 0.01 or left(wait - 5e-3) > 0


calls = st.lists(st.floats(0, 30), min_size=1, max_size=120)


@given(limit=st.integers(1, 10), pauses=calls)
@settings(max_examples=examples(60))
def test_a_minute_has_no_more_than_the_limit(limit: int, pauses: list[float]) -> None:
    """No minute of the clock lets in more, nor any other minute more than twice that; a patient caller is always let in."""

    async def play() -> list[float]:
        counts, now, taken = LocalCounts(), NOON, list[float]()
        for pause in pauses:
            now += pause
            if await counts.take("ann", limit, now) == 0:
                taken.append(now)
        assert taken[0] == NOON + pauses[0]
        return taken

    taken = asyncio.run(play())
    for at in {math.floor(t / MINUTE) for t in taken}:
        assert sum(math.floor(t / MINUTE) == at for t in taken) <= limit
    for first in taken:
        assert sum(first <= t < first + MINUTE for t in taken) <= 2 * limit


@given(pauses=calls, limit=st.integers(1, 6))
@settings(max_examples=examples(20))
def test_both_count_alike(shared: Redis, pauses: list[float], limit: int) -> None:
    """In this process and in Redis the same calls are let in, and the others are told the same."""

    async def play(url: str) -> None:
        here, there, now = LocalCounts(), RedisCounts(url, 30.0), NOON
        for pause in pauses:
            now += pause
            assert await here.take("ann", limit, now) == pytest.approx(await there.take("ann", limit, now), abs=1e-3)
        await there._redis.flushdb()
        await there.close()

    asyncio.run(play(shared.url))


# In this process


@on_a_loop
async def test_callers_do_not_share(server: Redis) -> None:
    """One who calls too often delays nobody else; what is refused is not counted, so that it ends."""
    for counts in (LocalCounts(), RedisCounts(server.url, 30.0)):
        assert [await counts.take("ann", 2, NOON) for _ in range(2)] == [0, 0]
        assert [math.ceil(await counts.take("ann", 2, NOON)) for _ in range(50)] == [70] * 50
        assert await counts.take("bob", 2, NOON) == 0
        assert await counts.take("ann", 2, NOON + 70.01) == 0
        await counts.close()


@on_a_loop
async def test_a_clock_that_is_set_back_begins_anew() -> None:
    """Nobody is kept out for an hour because somebody mended the clock."""
    counts = LocalCounts()
    assert await counts.take("ann", 1, NOON) == 0
    assert await counts.take("ann", 1, NOON) > 0
    assert await counts.take("ann", 1, NOON - 3600) == 0


def test_a_flood_of_callers_is_forgotten() -> None:
    """What is remembered is bounded; who called last is remembered longest."""

    async def play() -> None:
        counts = LocalCounts(most=100)
        for at in range(1000):
            assert await counts.take(str(at), 1, NOON) == 0
        assert len(counts._tallies) == 100
        assert await counts.take("999", 1, NOON) > 0 and await counts.take("0", 1, NOON) == 0

    asyncio.run(play())


# In Redis


@asynccontextmanager
async def replicas(url: str, number: int = 2) -> Any:
    """The counts of so many replicas, with patience: a busy machine is not a Redis that is away."""
    async with AsyncExitStack() as stack:
        made = [RedisCounts(url, 30.0) for _ in range(number)]
        for each in made:
            stack.push_async_callback(each.close)
        yield made


@on_a_loop
async def test_replicas_count_together(server: Redis) -> None:
    """Whichever is asked, and at the same moment: no more than the limit in all."""
    async with replicas(server.url, 3) as made:
        waits = await asyncio.gather(*(made[at % 3].take("ann", 10, NOON) for at in range(60)))
        assert waits.count(0) == 10


@on_a_loop
async def test_nothing_is_kept_for_long(server: Redis) -> None:
    """Each count is gone after two minutes; flushing Redis, scripts and all, only begins the minute anew."""
    async with replicas(server.url, 1) as (counts,):
        assert [await counts.take("ann", 1, NOON) == 0 for _ in range(2)] == [True, False]
        keys = await counts._redis.keys("*")
        assert len(keys) == 1 and 0 < await counts._redis.ttl(keys[0]) <= 120
        await counts._redis.flushall()
        await counts._redis.script_flush()
        assert [await counts.take("ann", 1, NOON) == 0 for _ in range(2)] == [True, False]


@on_a_loop
async def test_a_dead_redis_refuses_nobody(server: Redis) -> None:
    """Each replica counts for itself; once it is back, they count together again."""
    async with replicas(server.url) as (one, two):
        assert await one.take("ann", 2, NOON) == await two.take("ann", 2, NOON) == 0
        assert await one.take("ann", 2, NOON) > 0
        server.kill()
        for each in (one, two):
            assert [await each.take("ann", 2, NOON) == 0 for _ in range(3)] == [True, True, False]
        server.start()
        assert await one.take("ann", 2, NOON + 1) > 0, "not asked again so soon"
        assert await one.take("ann", 2, NOON + 6) == await two.take("ann", 2, NOON + 6) == 0
        assert await one.take("ann", 2, NOON + 6) > 0


def test_a_silent_redis_delays_one_call(tmp_path: Path) -> None:
    """A Redis that takes connections and says nothing counts as away: it is not asked at every call."""

    async def play() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            counts = RedisCounts(f"redis://127.0.0.1:{silent.getsockname()[1]}")
            async with asyncio.timeout(10):  # a thousand times what a silent call costs would be minutes
                assert [await counts.take("ann", 5000, NOON) for _ in range(1000)] == [0] * 1000
            await counts.close()

    asyncio.run(play())


# At the doors


def test_who_calls() -> None:
    """Addresses as sockets and gRPC tell them. Of IPv6 a caller has at least the second half to choose from."""
    peers = ("ipv4:10.0.0.7:41234", "ipv6:%5B2001:db8::7%5D:41234", "ipv6:[::1]:41234", "unix:/tmp/socket")
    told = ("10.0.0.7", "2001:db8::7", "::1", "unix:/tmp/socket")
    assert tuple(map(address_of, peers)) == told
    nets = ("10.0.0.7", "2001:db8::/64", "::1", "unix:/tmp/socket")
    assert tuple(map(network_of, told)) == nets
    assert network_of("fe80::1%eth0") == "fe80::/64" and network_of("::ffff:10.0.0.7") == "10.0.0.7" and network_of("") == ""


@on_a_loop
async def test_what_is_switched_off_is_not_counted() -> None:
    """A limit of 0 is none."""
    limits = Limits(LocalCounts(), ManualClock(NOON), calls=0, wrong_keys=1, enrolments=0)
    for _ in range(100):
        await limits.call("10.0.0.7")
        await limits.enrolment("10.0.0.7")
    await limits.wrong_key("10.0.0.7")
    with (
        capture_logs() as logs,
        pytest.raises(TooMany, match=r"More than 1 requests without the right key a minute come from 10\.0\.0\.7") as told,
    ):
        await limits.wrong_key("10.0.0.7")
    assert told.value.context["retry_after"] == 100 and "--rate-wrong-keys" in told.value.todo
    with capture_logs() as more, pytest.raises(TooMany):
        await limits.wrong_key("10.0.0.7")
    assert [entry["event"] for entry in logs + more] == ["limit_reached"], "told once a minute"


@on_a_loop
async def test_five_hundred_agents_do_not_meet_the_limit() -> None:
    """From one address, started and started again within a minute, with the settings as they come."""
    limits = Limits(LocalCounts(), ManualClock(NOON), enrolments=CoordinatorSettings().rate_enrol)
    for _ in range(2 * 500):
        await limits.enrolment("10.0.0.7")


KEYS = Keys.made()


class Hurried(ManualClock):
    """A clock that goes on by half a minute whenever it is looked at."""

    def now(self) -> float:
        self.advance(30.0)
        return super().now()


def test_an_agent_that_is_put_off_comes_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It says so and tries again, though it would wait for no coordinator that is away; then it is let in."""
    monkeypatch.setattr(agent, "TURN_SECONDS", 0.01)
    with grpc_port_of(Limits(LocalCounts(), Hurried(NOON), enrolments=1)) as (federation, port):
        link = GrpcLink(Endpoints((f"127.0.0.1:{port}",)), "dora", KEYS, threading.Event())
        token = federation.run_service.invite("dora", {}, 600.0)
        settings = AgentSettings(f"127.0.0.1:{port}", tmp_path, (Role.SOURCE,), "dora", token, wait=0.0)
        with capture_logs() as logs:
            assert agent.admission(link, settings, KEYS)
            assert agent.admission(link, settings, KEYS)
        link.close()
    events = [entry["event"] for entry in logs if entry["event"] != "limit_reached"]
    assert events[0] == events[-1] == "enrolled" and set(events[1:-1]) == {"enrolment_put_off"}


def test_enrolments_are_limited_by_address() -> None:
    """The gRPC port says RESOURCE_EXHAUSTED and when to come again; later the same token is good. Other calls go on."""
    clock = ManualClock(NOON)
    with grpc_port_of(Limits(LocalCounts(), clock, enrolments=3)) as (federation, port):
        token = federation.run_service.invite("dora", {}, 600.0)
        link = GrpcLink(Endpoints((f"127.0.0.1:{port}",)), "dora", KEYS, threading.Event())
        for _ in range(3):
            link.enrol(token, ("source",))
        with pytest.raises(TooMany, match=r"More than 3 enrolments a minute come from 127\.0\.0\.1\. Ask again in \d+ s"):
            link.enrol(token, ("source",))
        with pytest.raises(grpc.RpcError) as told:
            link._lines.now.calls["Enrol"](pb.EnrolRequest(protocol=1).SerializeToString(), timeout=LONG)
        assert told.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for _ in range(20):
            assert link.beat({}).gone == ()
        clock.advance(90.0)
        assert link.enrol(token, ("source",)).name == "dora"
        link.close()


@on_a_loop
async def test_a_caller_who_hangs_up_is_noted_all_the_same() -> None:
    """A refused sign-in is written, also where the write waits for its turn: it counts as told, and would not be told later."""
    journal, turn, begun = MemoryJournal(), threading.Event(), asyncio.Event()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(turn.wait, LONG)

        async def run(call: Any, *args: Any) -> None:
            waiting = asyncio.get_running_loop().run_in_executor(threads, call, *args)
            begun.set()
            await waiting

        refusing = Refusing(Refusals(journal, ManualClock(), "grpc"), run)
        calling = asyncio.ensure_future(refusing.note("dora", "10.0.0.7", "another's key"))
        await begun.wait()
        calling.cancel()
        with suppress(asyncio.CancelledError):
            await calling
        turn.set()
    await refusing.note("dora", "10.0.0.7", "another's key")
    assert [(entry.kind, entry.client) for entry in journal.audit()[1:]] == [("sign_in_refused", "dora")]
