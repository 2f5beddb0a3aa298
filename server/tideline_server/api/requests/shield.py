"""What a request passes: Shield before the key is checked (access), Intake after it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tideline.archive.errors import TooLarge
from tideline.core.errors import FederationError, Malformed
from tideline_server.api.answers import LOG, answer
from tideline_server.api.requests.roles import streams
from tideline_server.api.requests.strict_json import check_json
from tideline_server.errors import code_of


class Shield:
    """Unexpected errors are logged in full and answered with a number to find them by, and with nothing else."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except Exception:
            if scope["type"] != "http" or begun:
                raise  # the server cuts the connection, so that nobody takes a half for the whole
            await unexpected(scope)(scope, receive, send)


def unexpected(scope: Scope) -> Response:
    """Log the error at hand; the answer names the log's entry."""
    incident = secrets.token_hex(4)
    LOG.exception("request_failed", method=scope["method"], path=scope["path"], incident=incident)
    told = FederationError(
        "The coordinator failed in an unexpected way", "Its log says more; search the incident", incident=incident
    )
    return answer(500, told, kind="InternalError")


class Intake:
    """Takes a request's body in, up to the limit in bytes and in seconds, and lets only strict JSON through."""

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float) -> None:
        self.app, self.max_bytes, self.seconds = app, max_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or streams(scope["method"], scope["path"]):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            body = await self.in_time(headers, receive)
            check_body(headers, body)
        except FederationError as error:
            await refusal(error)(scope, receive, send)
        else:
            await self.app(scope, again(body, receive), send)

    async def in_time(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """The whole body. Raises TooSlow for one that trickles."""
        with anyio.move_on_after(self.seconds):
            return await self.take(headers, receive)
        raise TooSlow(f"The body has not come within {self.seconds:g} s", "Send the call again, at once")

    async def take(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """The whole body. Raises TooLarge as soon as it announces or shows itself to be above the limit, Encoded unread."""
        check_plain(headers)
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self.max_bytes:
            raise self.too_large()
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Malformed("The body was cut short")  # told to nobody, but half a body is never acted on
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.max_bytes:
                raise self.too_large()
        return bytes(body)

    def too_large(self) -> TooLarge:
        """The refusal of a long body."""
        return TooLarge(f"The body is longer than {self.max_bytes} bytes", "No experiment needs that much", limit=self.max_bytes)


def check_plain(headers: Mapping[str, str]) -> None:
    """Raises Encoded for a body that is compressed."""
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise Encoded("The body is compressed, which is not undone here", "Send it plain, without Content-Encoding")


class NotLabelled(Malformed):
    """A body that does not say that it is JSON. A browser cannot be tricked into sending one that does."""


class Encoded(NotLabelled):
    """A body that would have to be unpacked, to whatever size."""


class TooSlow(Malformed):
    """A body that did not come in time."""


class NoLength(Malformed):
    """A file whose length is not announced."""


def refusal(error: FederationError) -> Response:
    """The answer to a body that was not taken. What is left of a slow one is not waited for."""
    if isinstance(error, NotLabelled):
        more = {"Accept-Encoding": "identity"} if isinstance(error, Encoded) else {}
        return answer(415, error, kind="Malformed", headers=more)
    if isinstance(error, TooSlow):
        return answer(408, error, kind="Malformed", headers={"Connection": "close"})
    if isinstance(error, NoLength):
        return answer(411, error, kind="Malformed")
    return answer(code_of(error).http, error)


def check_body(headers: Mapping[str, str], body: bytes) -> None:
    """A body is JSON and says so. No body is fine here; the endpoints know what they need."""
    if not body:
        return
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise NotLabelled("The body is not labelled as JSON", "Send the header Content-Type: application/json")
    check_json(body)


def again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once more, and then what really comes."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
