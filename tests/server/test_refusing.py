"""A refused sign-in is written, whatever its caller does meanwhile."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tideline.engine.audit.entries import Refusals
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.limits import Refusing


def test_a_caller_who_hangs_up_is_noted_all_the_same() -> None:
    """Also where the write waits for its turn: it is marked as told by then, and would be told at no later time."""
    journal, turn = MemoryJournal(), threading.Event()

    async def play() -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(turn.wait, 30)

            async def run(call: Any, *args: Any) -> None:
                waiting = asyncio.get_running_loop().run_in_executor(threads, call, *args)
                begun.set()
                await waiting

            begun = asyncio.Event()
            refusing = Refusing(Refusals(journal, ManualClock(), "grpc"), run)
            calling = asyncio.ensure_future(refusing.note("dora", "10.0.0.7", "another's key"))
            await begun.wait()
            calling.cancel()
            with suppress(asyncio.CancelledError):
                await calling
            turn.set()
        await refusing.note("dora", "10.0.0.7", "another's key")

    asyncio.run(play())
    assert [(each.kind, each.client) for each in journal.audit()[1:]] == [("sign_in_refused", "dora")]
