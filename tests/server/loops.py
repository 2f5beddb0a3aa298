"""Tests that are played on an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

LONG = 60.0  # nothing here takes so long; what does has failed
Given = ParamSpec("Given")


def on_a_loop(test: Callable[Given, Awaitable[None]]) -> Callable[Given, None]:
    """Play an async test on a loop of its own, for two minutes at most."""

    @functools.wraps(test)
    def play(*args: Given.args, **more: Given.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(2 * LONG):
                await test(*args, **more)

        asyncio.run(bounded())

    return play
