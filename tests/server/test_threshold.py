"""Who waits before a call is proven: lines for each address, turns to be read, and time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.server.loops import on_a_loop
from tideline.core.errors import Malformed, TooMany
from tideline.core.run import ClientId
from tideline_server.rpc.shares import Most, Shares
from tideline_server.rpc.threshold import STRIKES, Bounds, Connections, Threshold, TooSlow


class Call:
    """What the threshold asks of a call's context."""

    def __init__(self, peer: str = "ipv4:10.0.0.1:1", client: str = "") -> None:
        self._peer, self._client = peer, client

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("tideline-client", self._client),) if self._client else ()


async def nothing() -> AsyncIterator[bytes]:
    """A call that never says anything."""
    await asyncio.Event().wait()
    yield b""


async def messages_of(*contents: bytes) -> AsyncIterator[bytes]:
    """A call of these messages."""
    for content in contents:
        yield content


def threshold(connections: Connections | None = None, **bounds: Any) -> Threshold:
    return Threshold(lambda name: name == "known", connections, Bounds(**bounds))


def test_a_line_is_as_long_as_it_may_be() -> None:
    """From one address, and not from another; a client stands in a line of its own."""
    door = threshold(unproven_from=2)
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(door.entering(Call()))
        with pytest.raises(TooMany, match="2 calls from one place"), door.entering(Call()):
            pass
        stack.enter_context(door.entering(Call(client="known")))
        stack.enter_context(door.entering(Call("ipv4:10.0.0.2:1", "unknown")))
        assert (door.calls, door.unproven) == (4, 4)
    assert (door.calls, door.unproven) == (0, 0)


def test_in_all() -> None:
    """However many addresses there are."""
    door = threshold(unproven=2, calls=3)
    with contextlib.ExitStack() as stack:
        for at in range(2):
            stack.enter_context(door.entering(Call(f"ipv4:10.0.0.{at}:1")))
        with pytest.raises(TooMany), door.entering(Call("ipv4:10.0.0.9:1")):
            pass
        stack.enter_context(door.entering(Call(client="known")))
        with pytest.raises(TooMany, match="3 calls are under way"), door.entering(Call(client="known")):
            pass


@on_a_loop
async def test_a_first_message_is_awaited_for_so_long() -> None:
    """And no longer; one that is there is given, and a call without any is refused."""
    door = threshold(seconds=0.05)

    async def first(messages: AsyncIterator[bytes]) -> bytes:
        with door.entering(Call()) as place:
            return await door.first(place, messages)

    assert await first(messages_of(b"x")) == b"x"
    with pytest.raises(TooSlow):
        await first(nothing())
    with pytest.raises(Malformed, match="brings no message"):
        await first(messages_of())


@on_a_loop
async def test_who_is_read_hurries_where_others_wait() -> None:
    """All turns are taken by calls that say nothing, which have long: the next one still comes soon."""
    door = threshold(reads_from=2, reads=2, seconds=600.0, hasty=0.01)
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(door.entering(Call())) for _ in range(3)]
        silent = [asyncio.ensure_future(door.first(place, nothing())) for place in places[:2]]
        await asyncio.sleep(0)
        assert await door.first(places[2], messages_of(b"x")) == b"x"
        ends = await asyncio.gather(*silent, return_exceptions=True)
    assert all(isinstance(end, TooSlow) for end in ends)


def test_who_is_refused_again_and_again_is_cut() -> None:
    """Unless somebody proves himself over that connection."""
    cut: list[str] = []
    door = threshold(Connections(cut=cut.append))
    for _ in range(STRIKES):
        with pytest.raises(Malformed), door.entering(Call()):
            raise Malformed("x")
    assert cut == ["ipv4:10.0.0.1:1"]
    for _ in range(2 * STRIKES):
        with pytest.raises(Malformed), door.entering(Call("ipv4:10.0.0.2:1")):
            door.proven(contextlib.nullcontext())
            raise Malformed("x")
    assert len(cut) == 1


@on_a_loop
async def test_a_client_has_so_many_calls_and_streams() -> None:
    """One more call is refused; one more stream of orders ends the oldest."""
    shares, a = Shares(Most(calls=3, listening=2, report_bytes=10)), ClientId("a")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(shares.call(a))
        with pytest.raises(TooMany, match="a has 3 calls"), shares.call(a):
            pass
        stack.enter_context(shares.call(ClientId("b")))
        streams = [stack.enter_context(shares.listening(a)) for _ in range(3)]
        assert [each.is_set() for each in streams] == [True, False, False]
        with pytest.raises(TooMany, match="8 bytes of reports"):
            async with shares.report(a, 8), shares.report(a, 3):
                pass
    with shares.call(a):
        pass
