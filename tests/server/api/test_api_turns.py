"""Requests begin in turn, so that a crowd of them delays nothing else on the loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.types import Receive, Scope, Send

from tests.server.loops import LONG, on_a_loop
from tideline_server.api.requests.turns import AT_ONCE, InTurn

Begun = list[tuple[int, int]]  # (pass of the loop, request)


async def crowd(size: int, gone: frozenset[int] = frozenset()) -> Begun:
    """`size` requests at once, of which some have hung up before their turn; when each began."""
    loop, begun, passes = asyncio.get_running_loop(), Begun(), 0

    def count() -> None:
        nonlocal passes
        passes += 1
        loop.call_soon(count)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append((passes, scope["number"]))

    door: Any = InTurn(app)
    tasks = [asyncio.ensure_future(door({"type": "http", "number": i}, None, None)) for i in range(size)]
    loop.call_soon(count)
    await asyncio.sleep(0)
    for i in gone:
        tasks[i].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return begun


def test_a_few_begin_at_each_pass() -> None:
    """Each once, in the order in which they came."""
    for size in (1, AT_ONCE, AT_ONCE + 1, 50):
        begun = asyncio.run(crowd(size))
        assert [number for _, number in begun] == list(range(size))
        assert max(Counter(at for at, _ in begun).values()) <= AT_ONCE


def test_who_hangs_up_takes_no_turn() -> None:
    """The others go on, and the next crowd too."""
    gone = frozenset(range(AT_ONCE, 3 * AT_ONCE))
    begun = asyncio.run(crowd(20, gone))
    assert [number for _, number in begun] == [i for i in range(20) if i not in gone]


@on_a_loop
async def test_what_waits_holds_nobody_up() -> None:
    """Requests that go on for long, such as streams of events, leave their turn to others at once."""

    end, begun = asyncio.Event(), list[Scope]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope)
        await end.wait()

    door: Any = InTurn(app)
    tasks = [asyncio.ensure_future(door({"type": "http"}, None, None)) for _ in range(5 * AT_ONCE)]
    while len(begun) < len(tasks):
        await asyncio.sleep(0)
    end.set()
    await asyncio.gather(*tasks)


def test_each_loop_has_turns_of_its_own() -> None:
    """An app that is served by several threads, as tests do, wakes nobody on another's loop."""
    at_once, served = 3 * AT_ONCE, list[int]()
    together = threading.Barrier(at_once)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        served.append(scope["number"])

    door: Any = InTurn(app)

    def serve(thread: int) -> None:
        async def three() -> None:
            for i in range(3):
                await asyncio.wait_for(door({"type": "http", "number": 3 * thread + i}, None, None), LONG)

        together.wait()
        asyncio.run(three())

    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(serve, range(at_once)))
    assert sorted(served) == list(range(3 * at_once))
