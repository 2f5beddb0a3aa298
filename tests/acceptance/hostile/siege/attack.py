"""What an attack is, and the lines that it opens."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

LATE_SECONDS = 20.0  # in which a line that is to end has ended


@dataclass
class Outcome:
    """How often something was tried, how often it was refused, and how many lines the other end closed."""

    tried: int = 0
    refused: int = 0
    closed: int = 0
    words: set[str] = field(default_factory=set)  # statuses of refusals


@dataclass(frozen=True)
class Target:
    """A coordinator: its ports, a key of its API, and a client that is enrolled and signs. resting: seconds that an attack lasts
    once all is open.
    """

    grpc: int
    http: int
    key: str
    liar: Any
    resting: float = 0.0

    @property
    def until(self) -> float:
        """When an attack that begins to rest now is over."""
        return time.monotonic() + self.resting


@dataclass(frozen=True)
class Attack:
    """An attack, in a small size for tests and a full one."""

    name: str
    make: Callable[[Target, int], Outcome]
    small: int
    full: int
    tls: bool = False  # whether it is one on a coordinator whose doors have TLS


def line(port: int) -> socket.socket | None:
    """A connection; None where nobody takes it any more."""
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=5.0)
    except OSError:
        return None


def said(each: socket.socket, content: bytes) -> bool:
    """Whether bytes could be sent; a line that is full or closed takes none."""
    each.setblocking(False)
    with contextlib.suppress(OSError):
        return each.send(content) == len(content)
    return False


def closed(lines: Iterable[socket.socket], seconds: float = 0.0) -> int:
    """How many lines the other end has closed, within some seconds."""
    left, end, gone = list(lines), time.monotonic() + seconds, 0
    while left:
        ready, _, _ = select_in(left, max(end - time.monotonic(), 0.0))
        over = [each for each in ready if ended(each)]
        gone += len(over)
        left = [each for each in left if each not in over]
        if time.monotonic() >= end:
            break
    return gone


def select_in(lines: list[socket.socket], seconds: float) -> tuple[list[socket.socket], None, None]:
    """As `select.select`, for any number of lines."""
    poll, by = select.poll(), {each.fileno(): each for each in lines if each.fileno() >= 0}
    for descriptor in by:
        poll.register(descriptor, select.POLLIN)
    return [by[descriptor] for descriptor, _ in poll.poll(min(seconds, 0.2) * 1000)], None, None


def ended(each: socket.socket) -> bool:
    """Whether nothing more comes over a line; what has come is read."""
    each.setblocking(False)
    try:
        while more := each.recv(1 << 16):
            del more
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def hold(target: Target, lines: list[socket.socket], outcome: Outcome, each: bytes = b"", pause: float = 0.5) -> Outcome:
    """Rest with open lines, saying something over each now and then; then count the lines that were closed, and close all."""
    until = target.until
    while time.monotonic() < until:
        time.sleep(pause)
        for one in lines if each else ():
            said(one, each)
    outcome.tried = outcome.tried or len(lines)
    outcome.closed += closed(lines)
    for one in lines:
        one.close()
    return outcome
