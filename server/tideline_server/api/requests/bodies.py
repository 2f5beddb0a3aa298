"""Bodies of requests: taken in up to a limit, and only as JSON that means the same to every reader."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tideline.archive.errors import DuplicateKey, TooLarge
from tideline.core.errors import FederationError, Malformed
from tideline_server.api.answers import answer
from tideline_server.api.requests.access import needs_key, streams
from tideline_server.errors import code_of

MAX_DEPTH = 32
STRANGERS_BYTES = 4096  # of a body that is read before anybody has shown a key
INT64 = 1 << 63
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def check_json(body: bytes) -> None:
    """Raises Malformed unless the body is strict JSON."""
    try:
        value = json.loads(body, object_pairs_hook=once, parse_constant=no_number, parse_int=whole, parse_float=finite)
    except (ValueError, RecursionError) as cause:
        reason = cause.msg if isinstance(cause, json.JSONDecodeError) else "it cannot be read as UTF-8 text of moderate depth"
        raise Malformed(f"The body is not JSON: {reason}", "Send one JSON object") from None
    check_value(value, MAX_DEPTH)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DuplicateKey(f"The body names {twice[:80]!r} twice", "Say everything once")
    return found


def no_number(word: str) -> Any:
    raise Malformed(f"The body holds {word}, which is not JSON", "Give a number")


def whole(digits: str) -> int:
    if len(digits) > 20 or not -INT64 <= int(digits) < INT64:
        raise Malformed(f"The number {digits[:24]} does not fit 64 bits", "Give a smaller number")
    return int(digits)


def finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise Malformed(f"The number {digits[:24]} does not fit 64 bits", "Give a smaller number")
    return number


def check_value(value: Any, depth: int) -> None:
    """Texts can be stored, and nesting is what people write by hand."""
    if depth == 0:
        raise Malformed(f"The body is nested more than {MAX_DEPTH} deep", "No experiment needs that")
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_text(key)
            check_value(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            check_value(item, depth - 1)


def check_text(text: str) -> None:
    """No NUL, which databases refuse, and no half of a surrogate pair, which UTF-8 cannot carry."""
    if UNSTORABLE.search(text):
        raise Malformed("A text in the body holds a NUL or half a surrogate pair", "Send plain Unicode text")


class Intake:
    """Takes a request's body in, up to the limit in bytes and in seconds, and lets only strict JSON through."""

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float) -> None:
        self.app, self.max_bytes, self.seconds = app, max_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or streams(scope["method"], scope["path"]):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        limit = self.max_bytes if needs_key(scope["path"]) else min(self.max_bytes, STRANGERS_BYTES)
        try:
            body = await self.in_time(headers, receive, limit)
            check_body(headers, body)
        except FederationError as error:
            await refusal(error)(scope, receive, send)
        else:
            await self.app(scope, again(body, receive), send)

    async def in_time(self, headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
        """The whole body. Raises TooSlow for one that trickles."""
        with anyio.move_on_after(self.seconds):
            return await self.take(headers, receive, limit)
        raise TooSlow(f"The body has not come within {self.seconds:g} s", "Send the call again, at once")

    async def take(self, headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
        """The whole body. Raises TooLarge as soon as it announces or shows itself to be above the limit, Encoded unread."""
        check_plain(headers)
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > limit:
            raise too_large(limit)
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Malformed("The body was cut short")  # told to nobody, but half a body is never acted on
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > limit:
                raise too_large(limit)
        return bytes(body)


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body is longer than {limit} bytes", "No call to this address needs that much", limit=limit)


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
