"""Every request is counted, by the route that it takes: an address that is none counts as `other`, whatever was typed."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tideline_server.api.requests.roles import OPEN_PATHS, route_of

Seen = Callable[[str, str, int, float], None]  # method, route, status, seconds until the answer began
CUT = 499  # the status of a call whose caller went away before there was an answer


def unseen(method: str, route: str, status: int, seconds: float) -> None:
    """Nobody counts."""


class Counting:
    """Tells of each request when its answer begins, as a stream may last for days."""

    def __init__(self, app: ASGIApp, seen: Seen) -> None:
        self.app, self.seen = app, seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self.seen(scope["method"], route(scope), status, time.monotonic() - began)
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            if not status:
                self.seen(scope["method"], route(scope), CUT, time.monotonic() - began)


def route(scope: Scope) -> str:
    """The route of a request, by its template."""
    path: str = scope["path"]
    return path if path in OPEN_PATHS else route_of(path)
