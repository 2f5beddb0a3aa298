"""Handshakes of TLS under way at the HTTP port: only so many, and the oldest make room."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tideline_server.api.handshakes import Handshakes, Listener

SECONDS = 60.0
Ends = tuple[socket.socket, socket.socket]  # the caller's, and the door's


class Entrance:
    """A door, and callers who wait for their handshakes."""

    def __init__(self, within: ExitStack, handshakes: Handshakes) -> None:
        self.within, self.handshakes = within, handshakes
        listening = within.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.door = within.enter_context(Listener.of(listening, handshakes))

    def caller(self) -> Ends:
        """One more, taken up."""
        caller = self.within.enter_context(socket.create_connection(self.door.getsockname(), SECONDS))
        return caller, self.within.enter_context(self.door.accept()[0])


def open_of(callers: list[Ends]) -> list[bool]:
    """Which of the callers have a line that is still open."""
    found = []
    for caller, _ in callers:
        caller.settimeout(0.05)  # an end that was closed in this process is seen at once
        try:
            found.append(caller.recv(1) != b"")
        except TimeoutError:
            found.append(True)
    return found


@pytest.fixture
def within() -> Iterator[ExitStack]:
    """What is closed at the end."""
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(("from_one", "in_all"), [(2, 9), (9, 2)])
def test_the_oldest_makes_room(within: ExitStack, from_one: int, in_all: int) -> None:
    """Of one address, or of all: whoever comes last is served."""
    entrance = Entrance(within, Handshakes(from_one, in_all))
    assert open_of([entrance.caller() for _ in range(4)]) == [False, False, True, True]


def test_what_is_done_or_closed_makes_room(within: ExitStack) -> None:
    """A handshake that is done is a connection, which others count; a line that was closed is none."""
    entrance = Entrance(within, Handshakes(2, 2))
    done, closed = entrance.caller(), entrance.caller()
    entrance.handshakes.end(done[1].fileno())
    closed[1].close()
    later = [entrance.caller(), entrance.caller()]
    assert open_of([done, *later]) == [True, True, True]
    assert open_of([entrance.caller(), later[0]]) == [True, False]


def test_an_address_shuts_its_own(within: ExitStack) -> None:
    """A crowd from one address leaves the handshakes of others alone."""
    handshakes, pairs = Handshakes(2, 9), [socket.socketpair() for _ in range(4)]
    for each in (end for pair in pairs for end in pair):
        within.enter_context(each)
    for origin, (_, line) in zip("abbb", pairs, strict=True):
        handshakes.begin(line, origin)
    assert open_of(pairs) == [True, False, True, True]
