"""Signs of life are written together, beside the beats that bring them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from structlog.testing import capture_logs

from tests.server.loops import on_a_loop
from tideline.core.errors import Unreachable
from tideline.core.run import ClientId, OrderId
from tideline_server.rpc.heartbeats import Beats, Heartbeats

HOUR = 3600.0


async def at_once(call: Callable[[], None]) -> None:
    """Stands for a thread."""
    call()


@on_a_loop
async def test_hundreds_of_beats_are_one_write() -> None:
    """Those that come while it is under way, too: what they brought is written next time."""
    written: list[int] = []
    living = Heartbeats(lambda: written.append(len(written)), at_once, asyncio.Event(), gather=0.0)
    for _ in range(300):
        living.write()
    await living.ended()
    assert written == [0]
    living.write()
    await living.ended()
    assert written == [0, 1]


@on_a_loop
async def test_a_door_that_closes_writes_what_it_has() -> None:
    """It waits for no more, and for nothing at all where nobody called."""
    written, closing = list[str](), asyncio.Event()
    living = Heartbeats(lambda: written.append("now"), at_once, closing, gather=HOUR)
    await living.ended()
    living.write()
    closing.set()
    await living.ended()
    assert written == ["now"]


@on_a_loop
async def test_a_database_that_is_away_is_left_alone_for_a_while() -> None:
    """One line of the log for each try, and none of the beats between asks it."""
    tried, closing = list[str](), asyncio.Event()

    def away() -> None:
        tried.append("tried")
        raise Unreachable("away")

    with capture_logs() as logs:
        living = Heartbeats(away, at_once, closing, gather=0.0, again=HOUR)
        living.write()
        while not tried:
            await asyncio.sleep(0)
        for _ in range(300):
            living.write()
        closing.set()
        await living.ended()
    assert tried == ["tried"]
    assert [line["event"] for line in logs] == ["signs_of_life_wait"]


@on_a_loop
async def test_what_nobody_foresaw_keeps_no_door_open() -> None:
    """It is in the log, and whoever closes goes on closing."""

    def broken() -> None:
        raise RuntimeError("broken")

    with capture_logs() as logs:
        closing = asyncio.Event()
        living = Heartbeats(broken, at_once, closing, gather=0.0, again=HOUR)
        living.write()
        closing.set()
        await living.ended()
    assert [line["event"] for line in logs] == ["signs_of_life_failed"]


ANN, BOB = ClientId("ann"), ClientId("bob")
ONE, TWO = OrderId("one"), OrderId("two")


class Slow:
    """A database that takes its time, and remembers what it was told, in which transactions."""

    def __init__(self) -> None:
        self.reported: list[Mapping[ClientId, Mapping[OrderId, float]]] = []
        self.may = asyncio.Event()
        self.fails = False

    def write(self, reported: Mapping[ClientId, Mapping[OrderId, float]]) -> Mapping[ClientId, Sequence[OrderId]]:
        self.reported.append(reported)
        if self.fails:
            raise Unreachable("away")
        return {client: [order for order in progress if order == TWO] for client, progress in reported.items()}

    async def run(self, call: Callable[..., Any], *args: Any) -> Any:
        await self.may.wait()
        return call(*args)


async def turns() -> None:
    """Let everybody who can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


@on_a_loop
async def test_a_name_that_no_order_has_spoils_nobody_elses_beat() -> None:
    """A database may refuse a text with a zero in it; who named it is told that there is no such order."""
    slow, odd = Slow(), OrderId("\0")
    slow.may.set()
    beats = Beats(slow.write, slow.run)
    assert await beats.report(ANN, {odd: 0.1}) == [odd] and not slow.reported
    assert await beats.report(ANN, {odd: 0.1, ONE: 0.2, TWO: 0.3}) == [odd, TWO]
    assert slow.reported == [{ANN: {ONE: 0.2, TWO: 0.3}}]


@on_a_loop
async def test_what_is_told_while_one_is_written_is_written_together() -> None:
    """Each caller hears of its own orders, and only of those that it named."""
    slow = Slow()
    beats = Beats(slow.write, slow.run)
    first = asyncio.ensure_future(beats.report(ANN, {ONE: 0.1}))
    await turns()
    rest = [asyncio.ensure_future(beats.report(*each)) for each in ((ANN, {ONE: 0.2}), (ANN, {TWO: 0.3}), (BOB, {TWO: 0.4}))]
    await turns()
    slow.may.set()
    assert await first == []
    assert await asyncio.gather(*rest) == [[], [TWO], [TWO]]
    assert slow.reported == [{ANN: {ONE: 0.1}}, {ANN: {ONE: 0.2, TWO: 0.3}, BOB: {TWO: 0.4}}]


@on_a_loop
async def test_a_caller_that_hangs_up_takes_no_answer_with_it() -> None:
    """The others of its transaction get theirs."""
    slow = Slow()
    beats = Beats(slow.write, slow.run)
    gone, stays = (asyncio.ensure_future(beats.report(who, {TWO: 0.5})) for who in (ANN, BOB))
    await turns()
    gone.cancel()
    await turns()
    slow.may.set()
    assert await stays == [TWO]


@on_a_loop
async def test_beats_that_cannot_be_written_are_told_so_and_the_next_are_tried() -> None:
    """An agent takes it for an outage, and beats again."""
    slow = Slow()
    slow.may.set()
    slow.fails = True
    beats = Beats(slow.write, slow.run)
    reported = await asyncio.gather(*(beats.report(who, {ONE: 0.5}) for who in (ANN, BOB)), return_exceptions=True)
    assert [type(each) for each in reported] == [Unreachable, Unreachable]
    slow.fails = False
    assert await beats.report(BOB, {TWO: 0.5}) == [TWO]
