"""Crowds at the HTTP port."""

from __future__ import annotations

import contextlib
import socket
import time

from tests.acceptance.hostile.siege.attack import Attack, Outcome, Target, closed, hold, line

HEAD = b"GET /runs HTTP/1.1\r\nHost: x\r\n"
BODY = b"POST /runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\nAuthorization: Bearer "


def opened(target: Target, size: int, first: bytes = b"", buffer: int = 0) -> list[socket.socket]:
    """Lines, and what is said over each at first. buffer: bytes that this end takes without reading them."""
    lines = [each for _ in range(size) if (each := line(target.http))]
    for each in lines:
        if buffer:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        with contextlib.suppress(OSError):
            each.sendall(first)
    return lines


def refusals(lines: list[socket.socket]) -> int:
    """How many were turned away at once, or later: an answer, and the end."""
    return closed(lines, 0.5)


def silent(target: Target, size: int) -> Outcome:
    """Connections over which nothing is said."""
    lines = opened(target, size)
    return hold(target, lines, Outcome(tried=size, refused=refusals(lines)))


def slow_heads(target: Target, size: int) -> Outcome:
    lines = opened(target, size, HEAD)
    return hold(target, lines, Outcome(tried=size, refused=refusals(lines)), b"X-More: 1\r\n")


def endless_heads(target: Target, size: int) -> Outcome:
    outcome = Outcome()
    for _ in range(size):
        (each,) = opened(target, 1, HEAD) or (None,)
        outcome.tried += 1
        if each is None:
            outcome.refused += 1
            continue
        with each:
            try:
                for _ in range(1000):
                    each.sendall(b"X-More: " + b"y" * 1000 + b"\r\n")
                each.settimeout(5.0)  # the kernel may take all of it before anybody reads
                refused = each.recv(16).split()[1:2] == [b"400"]
            except TimeoutError:
                refused = False
            except OSError:
                refused = True
            outcome.refused += refused
    return outcome


def slow_bodies(target: Target, size: int) -> Outcome:
    """Bodies that are announced and come byte by byte, with a key and without."""
    lines = opened(target, size // 2, BODY + target.key.encode() + b"\r\n\r\n{") + opened(target, size // 2, BODY + b"x\r\n\r\n{")
    return hold(target, lines, Outcome(tried=size, refused=refusals(lines)), b" ")


def unknown_paths(target: Target, size: int) -> Outcome:
    """Requests without a key for what there is not, one after the other."""
    outcome, until = Outcome(), target.until
    while outcome.tried < size or time.monotonic() < until:
        for each in opened(target, min(size, 50), b"GET /../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"):
            outcome.tried += 1
            with contextlib.suppress(OSError), each:
                each.settimeout(5.0)
                outcome.refused += each.recv(16).split()[1:2] in ([b"401"], [b"404"], [b"429"])
    return outcome


def deaf_watchers(target: Target, size: int) -> Outcome:
    """People who follow a run, and never read what comes."""
    run = target.liar.asked().run
    events = f"GET /runs/{run}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.key}\r\n\r\n"
    lines = opened(target, size, events.encode(), buffer=1024)
    return hold(target, lines, Outcome(tried=size))


def deaf_askers(target: Target, size: int) -> Outcome:
    """Requests one after the other on each line, whose answers nobody reads."""
    asked = f"GET /openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.key}\r\n\r\n".encode() * 50
    return hold(target, opened(target, size, asked, buffer=1024), Outcome(tried=size))


HTTP = (
    Attack("silent HTTP connections", silent, 400, 1100),
    Attack("heads that come slowly", slow_heads, 100, 1000),
    Attack("heads without an end", endless_heads, 5, 100),
    Attack("bodies that come slowly", slow_bodies, 40, 400),
    Attack("requests for unknown paths", unknown_paths, 100, 2000),
    Attack("watchers that never read", deaf_watchers, 20, 200),
    Attack("answers that nobody reads", deaf_askers, 10, 100),
)
