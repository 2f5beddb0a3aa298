"""Bodies of agents' requests, as the messages of a call: the first is read whole, in bounds; what follows comes in pieces."""

from __future__ import annotations

from starlette.types import Receive

from tideline.archive.errors import TooLarge
from tideline_server.rpc import MAX_MESSAGE

LENGTH_BYTES = 4  # of what stands before the first message of a push, the highest byte first


class HungUp(Exception):
    """The caller has gone: nobody hears an answer."""


class Messages:
    """What a request brings. framed: whether more follows its first message, whose length then stands before it."""

    def __init__(self, receive: Receive, framed: bool) -> None:
        self._receive, self._framed = receive, framed
        self._begun, self._more, self._rest = False, True, b""

    @property
    def over(self) -> bool:
        """Whether all has been read."""
        return not self._more

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> bytes:
        """The next message. Raises TooLarge for a first one out of bounds, HungUp for a body that is cut."""
        if not self._begun:
            first = await (self._head() if self._framed else self._whole())
            self._begun = True
            return first
        while not self._rest:
            if not self._more:
                raise StopAsyncIteration
            self._rest = await self._piece()
        rest, self._rest = self._rest, b""
        return rest

    async def _whole(self) -> bytes:
        body = bytearray()
        while self._more:
            body += await self._piece()
            within(len(body))
        return bytes(body)

    async def _head(self) -> bytes:
        start = await self._at_least(bytearray(), LENGTH_BYTES)
        length = int.from_bytes(start[:LENGTH_BYTES])
        within(length)
        end = LENGTH_BYTES + length
        start = await self._at_least(start, end)
        self._rest = bytes(start[end:])
        return bytes(start[LENGTH_BYTES:end])

    async def _at_least(self, body: bytearray, nbytes: int) -> bytearray:
        """What has come, so many bytes of it, or all that there is."""
        while self._more and len(body) < nbytes:
            body += await self._piece()
        return body

    async def _piece(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise HungUp
        self._more = message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece


def within(nbytes: int) -> None:
    if nbytes > MAX_MESSAGE:
        raise TooLarge(f"The call's first message has more than {MAX_MESSAGE} bytes", "Send fewer")
