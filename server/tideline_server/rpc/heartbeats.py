"""Signs of life, written together: many come, and each transaction takes a turn at the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from tideline.core.errors import FederationError
from tideline.core.run import ClientId, OrderId

log = structlog.get_logger()
Reported = Mapping[ClientId, Mapping[OrderId, float]]
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
        except Exception:  # only a servicer that closes awaits this task, and has more to close
            log.exception("signs_of_life_failed")
            await self._pause(self._again)

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the servicer closes."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)


class Beats:
    """Has what clients tell of their orders written: all that comes while one transaction is under way is the next one's.

    `work` blocks; `run` does it on a thread.
    """

    def __init__(
        self, work: Callable[[Reported], Mapping[ClientId, Sequence[OrderId]]], run: Callable[..., Awaitable[Any]]
    ) -> None:
        self._work, self._run = work, run
        self._reported: dict[ClientId, dict[OrderId, float]] = {}
        self._next: asyncio.Task[Mapping[ClientId, Sequence[OrderId]]] | None = None
        self._writing = asyncio.Lock()

    async def report(self, client: ClientId, progress: Mapping[OrderId, float]) -> list[OrderId]:
        """Note progress, together with what others tell; gives the orders that the client should give up."""
        # A database may refuse a name that cannot be one, and with it all that others tell.
        odd = [order for order in progress if not order.isprintable()]
        progress = {order: share for order, share in progress.items() if order.isprintable()}
        if not progress:
            return odd
        self._reported.setdefault(client, {}).update(progress)
        if self._next is None:
            self._next = asyncio.ensure_future(self._write())
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())  # all callers may have hung up
        gone = await asyncio.shield(self._next)  # a caller that hangs up takes nobody else's answer with it
        return [*odd, *(order for order in gone.get(client, ()) if order in progress)]

    async def _write(self) -> Mapping[ClientId, Sequence[OrderId]]:
        async with self._writing:
            reported, self._reported, self._next = self._reported, {}, None
            gone: Mapping[ClientId, Sequence[OrderId]] = await self._run(self._work, reported)
            return gone
