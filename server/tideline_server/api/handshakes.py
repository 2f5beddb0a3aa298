"""Handshakes of TLS that are under way at the HTTP port: only so many, for each holds memory before anybody could be counted.

The event loop gives each 256 KiB from its first byte on, and makes the protocol that counts connections only when it is done. So
they are counted as they are taken up. Where there are too many, the oldest is shut: one that is honest is long done.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

from tideline_server.limits import network_of

FROM_ONE, IN_ALL = 64, 256  # of one address (of IPv6: each /64), and of all


class Handshakes:
    """Those under way, by descriptor, the oldest first. Of one event loop."""

    def __init__(self, from_one: int = FROM_ONE, in_all: int = IN_ALL) -> None:
        self._from_one, self._in_all = from_one, in_all
        self._open: dict[int, tuple[str, socket.socket]] = {}

    def begin(self, line: socket.socket, origin: str) -> None:
        """One more. Of an address that has too many, or else of all, the oldest is shut; the loop reads its end and closes it."""
        self._open[line.fileno()] = origin, line
        own = [each for each, (where, _) in self._open.items() if where == origin]
        if len(own) > self._from_one:
            self._shut(own[0])
        elif len(self._open) > self._in_all:
            self._shut(next(iter(self._open)))

    def end(self, descriptor: int) -> None:
        """One is done, or its line is closed."""
        self._open.pop(descriptor, None)

    def _shut(self, descriptor: int) -> None:
        _, line = self._open.pop(descriptor)
        with contextlib.suppress(OSError):  # the other end may have gone
            line.shutdown(socket.SHUT_RDWR)


class Line(socket.socket):
    """A connection that was taken up, and says when it is closed."""

    handshakes: Handshakes | None = None

    def close(self) -> None:
        if self.handshakes is not None:
            self.handshakes.end(self.fileno())
        super().close()


class Listener(socket.socket):
    """A listening socket whose connections begin with a handshake."""

    handshakes: Handshakes

    @classmethod
    def of(cls, each: socket.socket, handshakes: Handshakes) -> Listener:
        """Beside a socket, whose port it shares; whoever made that closes it."""
        made = cls(each.family, each.type, each.proto, os.dup(each.fileno()))
        made.handshakes = handshakes
        return made

    def accept(self) -> tuple[socket.socket, Any]:
        taken, where = super().accept()
        line = Line(taken.family, taken.type, taken.proto, taken.detach())
        line.handshakes = self.handshakes
        self.handshakes.begin(line, network_of(str(where[0])))
        return line, where
