"""Signs of life, written beside the calls that bring them: a beat waits for no database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import structlog

from tideline.core.errors import FederationError

log = structlog.get_logger()
GATHER_SECONDS, AGAIN_SECONDS = 1.0, 10.0  # before they are written together, and after that has failed


class Heartbeats:
    """Has those written who live, in one transaction at a time. `work` blocks; `run` does it on a thread."""

    def __init__(
        self,
        work: Callable[[], None],
        run: Callable[..., Awaitable[Any]],
        closing: asyncio.Event,
        gather: float = GATHER_SECONDS,
        again: float = AGAIN_SECONDS,
    ) -> None:
        self._work, self._run, self._closing, self._gather, self._again = work, run, closing, gather, again
        self._writing: asyncio.Task[None] | None = None

    def write(self) -> None:
        """See that it is done soon."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._written())

    async def ended(self) -> None:
        """Wait for what is under way. Raises nothing: what failed is in the log."""
        if self._writing is not None:
            await self._writing

    async def _written(self) -> None:
        await self._pause(self._gather)
        try:
            await self._run(self._work)
        except FederationError as error:
            log.warning("signs_of_life_wait", reason=str(error))
            await self._pause(self._again)
        except Exception:  # nobody awaits this task but a door that closes, which has more to close
            log.exception("signs_of_life_failed")
            await self._pause(self._again)

    async def _pause(self, seconds: float) -> None:
        """Let others come; not where the door closes."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
