"""Responses that the caller has already (304), and ranges of a file (RFC 9110)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tideline.core.errors import FederationError

NOT_KEPT = "no-store"
REVALIDATE = "private, no-cache"  # may be kept, and is asked for again each time


class Tags:
    """Marks what a GET tells of a state, which is JSON, with a weak tag of its body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self.app(scope, receive, send)
            return
        held = Held(Headers(scope=scope).getlist("if-none-match"), send)
        await self.app(scope, receive, held.take)


class Held:
    """An answer on its way out; held back until it is whole if it tells a state in JSON."""

    def __init__(self, known: list[str], send: Send) -> None:
        self.known, self.send = known, send
        self.start: Message | None = None
        self.body = bytearray()

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start" and tells_state(message):
            self.start = message
        elif self.start is None:
            await self.send(message)
        else:
            self.body += message.get("body", b"")
            if not message.get("more_body", False):
                await self.finish(self.start)

    async def finish(self, start: Message) -> None:
        headers = MutableHeaders(scope=start)
        headers["ETag"] = tag = tag_of(self.body)
        if headers.get("cache-control") != NOT_KEPT:  # what has a secret is left as it is marked
            headers["Cache-Control"] = REVALIDATE
        body = bytes(self.body)
        if matches(self.known, tag):
            start, body = {**start, "status": 304}, b""
            del headers["content-length"], headers["content-type"]
        await self.send(start)
        await self.send({"type": "http.response.body", "body": body})


def tag_of(body: bytes | bytearray) -> str:
    """The weak tag of a body."""
    return f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'


def tells_state(start: Message) -> bool:
    """Whether an answer that begins like this is JSON and has no tag of its own."""
    headers = Headers(scope=start)
    plain = headers.get("content-type", "").partition(";")[0] == "application/json"
    return start["status"] == 200 and plain and "etag" not in headers


def matches(known: Iterable[str], tag: str) -> bool:
    """Whether one of the tags of If-None-Match is this one; weak or strong makes no difference here (RFC 9110, 13.1.2)."""
    named = {each.strip().removeprefix("W/") for field in known for each in field.split(",")}
    return "*" in named or tag.removeprefix("W/") in named


def unchanged(headers: dict[str, str]) -> Response:
    return Response(status_code=304, headers={k: v for k, v in headers.items() if k.lower() != "content-length"})


ONE = re.compile(r"bytes=[ \t]*(\d{0,19})-(\d{0,19})[ \t]*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Span:
    """Bytes from `first` to before `end`, of `size`."""

    first: int
    end: int
    size: int

    @property
    def content_range(self) -> str:
        return f"bytes {self.first}-{self.end - 1}/{self.size}"


class OutOfRange(FederationError):
    """A range that begins behind the end."""


def span_of(asked: str | None, size: int) -> Span | None:
    """The bytes that a Range header asks for; None for all. Raises OutOfRange."""
    found = ONE.fullmatch(asked or "")
    if found is None or not any(found.groups()):
        return None
    first, last = (int(digits) if digits else None for digits in found.groups())
    if first is None:  # the last so many bytes
        assert last is not None
        first, last = (max(size - last, 0), size - 1) if last else (size, None)
    elif last is not None and last < first:
        return None
    if first >= size:
        what = f"The file has {size} bytes; none of those asked for is among them"
        raise OutOfRange(what, "Ask for bytes that it has", size=size)
    return Span(first, min(size, (size if last is None else last + 1)), size)
