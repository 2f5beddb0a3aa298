"""Each request has an id: the caller's, if it is a sane one, or one that is made here. It is in the answer and in the log."""

from __future__ import annotations

import re
import secrets

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "X-Request-Id"
SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Numbered:
    """Binds the id to what is logged while a request is served, and writes it on the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        said = Headers(scope=scope).get(HEADER, "")
        request = said if SANE.fullmatch(said) else secrets.token_hex(8)

        async def numbered(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request
            await send(message)

        with structlog.contextvars.bound_contextvars(request=request):
            await self.app(scope, receive, numbered)


def request_id() -> str | None:
    """The id of the request that is being served, if one is."""
    found = structlog.contextvars.get_contextvars().get("request")
    return None if found is None else str(found)
