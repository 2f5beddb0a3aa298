"""Signs of life are written together, beside the beats that bring them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from tideline.core.errors import Unreachable
from tideline_server.rpc.servicer import Heartbeats

HOUR = 3600.0


async def at_once(call: Callable[[], None]) -> None:
    """Stands for a thread."""
    call()


def play(test: Callable[[], Any]) -> None:
    """A test on a loop."""
    asyncio.run(test())


def test_hundreds_of_beats_are_one_write() -> None:
    """Those that come while it is under way, too: what they brought is written next time."""
    written: list[int] = []

    async def test() -> None:
        living = Heartbeats(lambda: written.append(len(written)), at_once, asyncio.Event(), gather=0.0)
        for _ in range(300):
            living.write()
        await living.ended()
        assert written == [0]
        living.write()
        await living.ended()
        assert written == [0, 1]

    play(test)


def test_a_door_that_closes_writes_what_it_has() -> None:
    """It waits for no more, and for nothing at all where nobody called."""
    written: list[str] = []

    async def test() -> None:
        closing = asyncio.Event()
        living = Heartbeats(lambda: written.append("now"), at_once, closing, gather=HOUR)
        await living.ended()
        living.write()
        closing.set()
        await living.ended()

    play(test)
    assert written == ["now"]


def test_a_database_that_is_away_is_left_alone_for_a_while() -> None:
    """One line of the log for each try, and none of the beats between asks it."""
    tried: list[str] = []

    def away() -> None:
        tried.append("tried")
        raise Unreachable("away")

    async def test() -> None:
        closing = asyncio.Event()
        living = Heartbeats(away, at_once, closing, gather=0.0, again=HOUR)
        living.write()
        while not tried:
            await asyncio.sleep(0)
        for _ in range(300):
            living.write()
        closing.set()
        await living.ended()

    with capture_logs() as logs:
        play(test)
    assert tried == ["tried"]
    assert [each["event"] for each in logs] == ["signs_of_life_wait"]


def test_what_nobody_foresaw_keeps_no_door_open() -> None:
    """It is in the log, and whoever closes goes on closing."""

    def broken() -> None:
        raise RuntimeError("broken")

    async def test() -> None:
        closing = asyncio.Event()
        living = Heartbeats(broken, at_once, closing, gather=0.0, again=HOUR)
        living.write()
        closing.set()
        await living.ended()

    with capture_logs() as logs:
        play(test)
    assert [each["event"] for each in logs] == ["signs_of_life_failed"]
