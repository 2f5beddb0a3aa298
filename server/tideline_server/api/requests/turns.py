"""Requests begin in turn, a few at each pass of the event loop.

Agents' calls are answered on the same loop. A call takes about ten passes of it, and each pass is as long as all that began
in it: a hundred lines with requests one after the other would delay every beat by a second.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Future
from collections import deque
from weakref import WeakKeyDictionary

from starlette.types import ASGIApp, Receive, Scope, Send

from tideline_server.api.requests.wrapping import Wrapping

AT_ONCE = 4  # a request takes about a millisecond until it first waits


class Turns:
    """The turns of one event loop: AT_ONCE at each of its passes, first come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[Future[None]] = deque()
        self._begun = 0

    async def come(self, loop: AbstractEventLoop) -> None:
        """Wait for a turn."""
        if self._begun < AT_ONCE and not self._waiting:
            if not self._begun:
                loop.call_soon(self._next, loop)
            self._begun += 1
        else:
            turn = loop.create_future()
            self._waiting.append(turn)
            await turn

    def _next(self, loop: AbstractEventLoop) -> None:
        """A pass is over: the next few begin. Whoever has given up takes no turn."""
        self._begun = 0
        while self._waiting and self._begun < AT_ONCE:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._begun += 1
        if self._begun:
            loop.call_soon(self._next, loop)


class InTurn(Wrapping):
    """Lets requests begin in turn, each on the loop that serves it. What has begun goes on undisturbed."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app)
        self._of: WeakKeyDictionary[AbstractEventLoop, Turns] = WeakKeyDictionary()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        await self._of.setdefault(loop, Turns()).come(loop)
        await self.app(scope, receive, send)
