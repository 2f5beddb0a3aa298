"""What a door does about a sign-in that it refused: it has it written, though the caller hangs up meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tideline.engine.audit.entries import Refusals
from tideline_server.limits import network_of


class Refusing:
    """The refused sign-ins of one door. `run` does on a thread what asks the journal."""

    def __init__(self, refusals: Refusals, run: Callable[..., Awaitable[Any]]) -> None:
        self._refusals, self._run = refusals, run
        self._writing: set[asyncio.Task[None]] = set()  # the loop itself keeps no task

    async def note(self, who: str, address: str, why: str) -> None:
        """Have a refusal written, if it is to be. What was counted as told is told, whatever becomes of the call."""
        event = self._refusals.seen(who, network_of(address), why)
        if event is None:
            return

        async def write() -> None:
            await self._run(self._refusals.write, event)

        task = asyncio.ensure_future(write())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        await asyncio.shield(task)
