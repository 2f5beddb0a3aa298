"""How much one client does at once, once its calls are proven."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from tideline.core.run import ClientId
from tideline_server.rpc.threshold import crowded


@dataclass(frozen=True)
class Most:
    """Of one client at once: calls, transfers, reports that are worked at, bytes of reports that wait for that, and streams
    of orders. After a cut line an agent opens another such stream: beyond so many, the oldest ends.
    """

    calls: int = 256
    transfers: int = 16
    reports: int = 4
    report_bytes: int = 16 << 20
    listening: int = 4


@dataclass
class Share:
    """What one client does now."""

    transfers: asyncio.Semaphore
    reports: asyncio.Semaphore
    calls: int = 0
    report_bytes: int = 0
    listening: deque[asyncio.Event] = field(default_factory=deque)


class Shares:
    """The shares of all clients that call now. All on one loop."""

    def __init__(self, most: Most | None = None) -> None:
        self.most = most or Most()
        self._of: dict[ClientId, Share] = {}

    @contextlib.contextmanager
    def call(self, client: ClientId) -> Iterator[None]:
        """A call under way. Raises TooMany."""
        most = self.most
        share = self._of.get(client) or Share(asyncio.Semaphore(most.transfers), asyncio.Semaphore(most.reports))
        if share.calls >= most.calls:
            raise crowded(f"{client} has {most.calls} calls under way")
        self._of[client] = share
        share.calls += 1
        try:
            yield
        finally:
            share.calls -= 1
            if not share.calls:
                del self._of[client]

    def transfer(self, client: ClientId) -> asyncio.Semaphore:
        """The turn to send or to take bytes."""
        return self._of[client].transfers

    @contextlib.asynccontextmanager
    async def report(self, client: ClientId, nbytes: int) -> AsyncIterator[None]:
        """The turn to have a report worked at. Raises TooMany where too many bytes of others wait for that."""
        share = self._of[client]
        if share.report_bytes + nbytes > self.most.report_bytes:
            raise crowded(f"{share.report_bytes} bytes of reports of {client} wait to be looked at")
        share.report_bytes += nbytes
        try:
            async with share.reports:
                yield
        finally:
            share.report_bytes -= nbytes

    @contextlib.contextmanager
    def listening(self, client: ClientId) -> Iterator[asyncio.Event]:
        """A stream of orders; the event is set when it is to end, as there are newer ones."""
        listening, over = self._of[client].listening, asyncio.Event()
        listening.append(over)
        if len(listening) > self.most.listening:
            listening.popleft().set()
        try:
            yield over
        finally:
            with contextlib.suppress(ValueError):
                listening.remove(over)
