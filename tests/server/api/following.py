"""A page that follows a stream of a coordinator, on the loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.types import ASGIApp

from tests.server.loops import LONG


class Stream:
    """A stream that has begun: its status, and its events as they come."""

    def __init__(self) -> None:
        self.status, self.headers = 0, dict[str, str]()
        self.begun, self.gone = asyncio.Event(), asyncio.Event()
        self.text = ""
        self._came = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        """An empty body, and nothing more until the page goes."""
        if not self.begun.is_set() and not self.status:
            self.status = -1
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """What the coordinator says."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
            self.begun.set()
        self.text += message.get("body", b"").decode()
        self._came.set()

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The whole events so far: kind and data."""
        found = []
        for block in self.text.split("\n\n")[:-1]:
            lines = dict(line.partition(": ")[::2] for line in block.splitlines() if not line.startswith(":"))
            if "event" in lines:
                found.append((lines["event"], json.loads(lines["data"])))
        return found

    async def until_text(self, text: str) -> None:
        """Wait until a text has come."""
        async with asyncio.timeout(LONG):
            while text not in self.text:
                self._came.clear()
                await self._came.wait()

    async def until(self, count: int) -> list[tuple[str, Any]]:
        """The events, once there are so many."""
        async with asyncio.timeout(LONG):
            while len(self.events) < count:
                self._came.clear()
                await self._came.wait()
        return self.events


@contextlib.asynccontextmanager
async def following(app: ASGIApp, path: str, headers: dict[str, str]) -> AsyncIterator[tuple[Stream, asyncio.Task[None]]]:
    """A stream, and the call that it is the answer of: it ends with the block, if nothing ended it before."""
    address, _, query = path.partition("?")
    raw = [(name.lower().encode(), value.encode()) for name, value in ({"Host": "coordinator"} | headers).items()]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http"}
    scope |= {"path": address, "raw_path": address.encode(), "query_string": query.encode(), "root_path": ""}
    scope |= {"headers": raw, "client": ("127.0.0.1", 41234), "server": ("coordinator", 80)}
    stream = Stream()
    call = asyncio.ensure_future(app(scope, stream.receive, stream.send))
    try:
        async with asyncio.timeout(LONG):
            await stream.begun.wait()
        yield stream, call  # type: ignore[misc]
    finally:
        stream.gone.set()
        async with asyncio.timeout(LONG):
            await call
