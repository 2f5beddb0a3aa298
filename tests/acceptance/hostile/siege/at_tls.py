"""Crowds at doors with TLS: handshakes that begin and never end."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time

from tests.acceptance.hostile.siege.attack import Attack, Outcome, Target, closed, hold, line

ANSWER_SECONDS = 5.0  # in which a door answers the first message of a handshake
AT_ONCE = 20  # lines over which a handshake is begun before the first of them is left


def hello() -> bytes:
    """The first message of a client's handshake."""
    context, into, out = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(into, out, server_hostname="localhost").do_handshake()
    return out.read()


def stopped(port: int, size: int, first: bytes) -> list[socket.socket]:
    """Lines over which so much of a handshake is said, and nothing more."""
    lines = [each for _ in range(size) if (each := line(port))]
    for each in lines:
        with contextlib.suppress(OSError):
            each.sendall(first)
    return lines


def begun(target: Target, size: int, first: bytes) -> list[socket.socket]:
    """Lines at both doors, half of them at each."""
    return stopped(target.grpc, size // 2, first) + stopped(target.http, size // 2, first)


def unfinished(target: Target, size: int) -> Outcome:
    """Handshakes that stop after the first message, or within it."""
    first = hello()
    lines = begun(target, size // 2, first) + begun(target, size // 2, first[: len(first) // 2])
    return hold(target, lines, Outcome(tried=size, refused=closed(lines)))


def slow(target: Target, size: int) -> Outcome:
    """Handshakes that come byte by byte."""
    lines = begun(target, size, hello()[:1])
    return hold(target, lines, Outcome(tried=size), b"\x00")


def left(target: Target, size: int) -> Outcome:
    """Handshakes that the door has answered, which is all of its work, and whose lines are closed then; again and again."""
    outcome, until, first = Outcome(), target.until, hello()
    while outcome.tried < size or time.monotonic() < until:
        for each in begun(target, AT_ONCE, first):
            outcome.tried += 1
            with contextlib.suppress(OSError), each:
                each.settimeout(ANSWER_SECONDS)
                outcome.refused += not each.recv(1)
    return outcome


TLS = (
    Attack("handshakes that stop", unfinished, 200, 2000, tls=True),
    Attack("handshakes that come slowly", slow, 100, 1000, tls=True),
    Attack("handshakes that are left", left, 100, 2000, tls=True),
)
