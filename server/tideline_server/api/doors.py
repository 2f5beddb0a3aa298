"""What every request passes before it reaches a router, outermost first: Shield, KeyCheck, Intake; then Once (once)."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tideline.archive.errors import TooLarge
from tideline.core.errors import FederationError, IdentityRefused, Malformed, TooMany
from tideline.engine.office import secret_hash
from tideline_server.api.answers import LOG, answer
from tideline_server.api.strict import check_json
from tideline_server.errors import code_of
from tideline_server.limits import Limits

OPEN_PATHS = frozenset({"/health", "/docs", "/openapi.json"})


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


class KeyCheck:
    """Everything but health and the manual asks for the key, and counts for the caller's limits."""

    def __init__(self, app: ASGIApp, key_hash: str | None, limits: Limits) -> None:
        self.app, self.key_hash, self.limits = app, key_hash, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
                await self.admit(Headers(scope=scope), (scope.get("client") or ("",))[0])
        except IdentityRefused as error:
            await answer(401, error, headers={"WWW-Authenticate": "Bearer"})(scope, receive, send)
        except TooMany as error:
            await answer(code_of(error).http, error)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def admit(self, headers: Mapping[str, str], address: str) -> None:
        """Let a caller in. Raises IdentityRefused, TooMany."""
        if self.opens(headers):
            await self.limits.call(address)
            return
        await self.limits.wrong_key(address)
        raise IdentityRefused("The API key is missing or wrong", "Send the header Authorization: Bearer KEY")

    def opens(self, headers: Mapping[str, str]) -> bool:
        """Whether the request carries the key. Hashes are compared, in constant time."""
        if self.key_hash is None:
            return True
        scheme, _, key = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(secret_hash(key.strip()), self.key_hash)
        return same and scheme.lower() == "bearer"


class Intake:
    """Takes a request's body in, up to the limit, and lets only strict JSON through."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            body = await self.take(headers, receive)
            check_body(headers, body)
        except FederationError as error:
            status = 415 if isinstance(error, NotLabelled) else code_of(error).http
            await answer(status, error, kind="Malformed" if status == 415 else None)(scope, receive, send)
        else:
            await self.app(scope, again(body, receive), send)

    async def take(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """The whole body. Raises TooLarge as soon as it announces or shows itself to be above the limit."""
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


class NotLabelled(Malformed):
    """A body that does not say that it is JSON. A browser cannot be tricked into sending one that does."""


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
