"""Crowds of strangers at the gRPC port: nobody has signed anything."""

from __future__ import annotations

import contextlib
import gzip
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from tests.acceptance.hostile.siege.attack import LATE_SECONDS, Attack, Outcome, Target, closed, hold, line
from tests.acceptance.hostile.siege.http2 import CONTINUATION, Http2, frame, lines_of, literal, message
from tests.acceptance.raw import SERVICE, Raw

LARGEST = (8 << 20) - 1  # of a message, before there was a lower limit
STREAMS = 32  # on one connection


@contextlib.contextmanager
def channel(target: Target) -> Iterator[Any]:
    """A connection of its own to the gRPC port."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{target.grpc}", own) as made:
        yield made


def called(target: Target, calls: list[tuple[str, bytes]], outcome: Outcome, **more: Any) -> Outcome:
    """Make calls at once and count what is refused, and with which status."""
    with channel(target) as made:
        under_way = [made.unary_unary(SERVICE + name).future(body, timeout=LATE_SECONDS, **more) for name, body in calls]
        for each in under_way:
            outcome.tried += 1
            error = each.exception()
            if error is not None:
                outcome.refused += 1
                outcome.words.add(error.code().name)
    return outcome


def large_calls(target: Target, size: int) -> Outcome:
    """Unsigned calls of the largest message, old and new."""
    outcome = Outcome()
    with ThreadPoolExecutor(4) as pool:
        for nbytes in (LARGEST, (5 << 18) - 1):
            list(pool.map(lambda _, nbytes=nbytes: called(target, [("Report", bytes(nbytes))] * 5, outcome), range(size // 10)))  # type: ignore[misc]
    return outcome


def headless(target: Target, size: int) -> Outcome:
    """Streams of Push on which nothing comes."""
    made = [Http2(target.grpc) for _ in range(-(-size // STREAMS))]
    for each in made:
        for _ in range(min(size, STREAMS)):
            each.call("Push")
    outcome = Outcome(tried=size, refused=sum(each.over() for each in made))
    return hold(target, lines_of(made), outcome)


def trickling(target: Target, size: int) -> Outcome:
    """Messages that are announced and come byte by byte."""
    made = [Http2(target.grpc) for _ in range(-(-size // 10))]
    for each in made:
        for _ in range(10):
            each.call("Report", content=message(bytes(100), length=1 << 20))
    heard = sum(each.over(2.5) for each in made)
    return hold(target, lines_of(made), Outcome(tried=size, refused=heard))


def half_messages(target: Target, size: int) -> Outcome:
    """Messages of which all but the last byte comes, as far as the other end takes them."""
    made = [Http2(target.grpc) for _ in range(-(-size // 10))]
    for each in made:
        for _ in range(10):
            each.call("Fetch", content=message(bytes(60_000), length=60_001))
    heard = sum(each.over(2.5) for each in made)
    return hold(target, lines_of(made), Outcome(tried=size, refused=heard))


def idle(target: Target, size: int) -> Outcome:
    """Connections over which nothing is said."""
    return hold(target, [each for _ in range(size) if (each := line(target.grpc))], Outcome(tried=size))


def idle_http2(target: Target, size: int) -> Outcome:
    """Connections that agree on HTTP/2 and then say nothing."""
    return hold(target, lines_of([Http2(target.grpc) for _ in range(size)]), Outcome(tried=size))


def garbage(target: Target, size: int) -> Outcome:
    """The beginning of TLS, which this port does not speak, and no more."""
    lines = [each for _ in range(size) if (each := line(target.grpc))]
    for each in lines:
        with contextlib.suppress(OSError):
            each.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40))
    gone = closed(lines, 1.0)
    return hold(target, lines, Outcome(tried=size, refused=gone))


def bomb(target: Target, size: int) -> Outcome:
    """Messages of some kilobytes that would be unpacked to a gigabyte or so."""
    packed = gzip.compress(bytes(1 << 26))
    outcome = Outcome()
    for _ in range(size):
        made = Http2(target.grpc)
        made.call("Beat", ("grpc-encoding", "gzip"), content=message(packed, compressed=True), end=True)
        outcome.tried, outcome.refused = outcome.tried + 1, outcome.refused + (b"disabled" in made.heard())
        made.close()
    return outcome


def small_calls(target: Target, size: int) -> Outcome:
    """Calls of a few bytes that nobody has signed, as fast as they go."""
    outcome, until = Outcome(), target.until
    while True:
        called(target, [("Beat", b"")] * min(size, 100), outcome)
        if outcome.tried >= size and time.monotonic() >= until:
            return outcome


def unknown(target: Target, size: int) -> Outcome:
    outcome = Outcome()
    for _ in range(max(size // 100, 1)):
        called(target, [("Open", b"")] * min(size, 100), outcome)
    return outcome


def enrolments(target: Target, size: int) -> Outcome:
    """Agents with keys of their own and tokens that were guessed."""
    outcome = Outcome()
    with channel(target) as made:
        for at in range(size):
            outcome.tried += 1
            try:
                Raw(made, f"guest-{at}").enrol("guessed")
            except grpc.RpcError as error:
                outcome.refused += 1
                outcome.words.add(error.code().name)
    return outcome


def huge_metadata(target: Target, size: int) -> Outcome:
    """Headers of hundreds of kilobytes."""
    outcome = Outcome()
    for _ in range(size):
        made = Http2(target.grpc)
        made.call("Beat", *((f"x-{at}", "y" * 4000) for at in range(100)), content=message(b""), end=True)
        heard = made.heard()
        outcome.tried, outcome.refused = (
            outcome.tried + 1,
            outcome.refused + (b"grpc-status" in heard or not heard or closed(lines_of([made]))),
        )
        made.close()
    return outcome


def endless_headers(target: Target, size: int) -> Outcome:
    """Headers that never end: one frame after the other."""
    outcome, block = Outcome(), literal([("x", "y" * 4000)] * 4)
    for _ in range(size):
        made = Http2(target.grpc)
        stream = made.call("Beat", flags=0)
        sent = 0
        while sent < 2000 and made.send(frame(CONTINUATION, 0, stream, block)):
            sent += 1
        outcome.tried, outcome.refused = outcome.tried + 1, outcome.refused + (sent < 2000 or closed(lines_of([made]), 0.5))
        made.close()
    return outcome


def resets(target: Target, size: int) -> Outcome:
    """Calls that are given up as soon as they have begun."""
    made, outcome = Http2(target.grpc), Outcome()
    for _ in range(size):
        made.reset(made.call("Beat", content=message(bytes(10))))
        outcome.tried += 1
    return hold(target, lines_of([made]), outcome)


GRPC = (
    Attack("large unsigned calls", large_calls, 20, 200),
    Attack("pushes without a head", headless, 300, 8000),
    Attack("messages that trickle", trickling, 50, 1000),
    Attack("messages without their last byte", half_messages, 50, 1000),
    Attack("silent connections", idle, 200, 1100),
    Attack("silent HTTP/2 connections", idle_http2, 100, 1100),
    Attack("TLS where there is none", garbage, 50, 500),
    Attack("gzip bombs", bomb, 3, 30),
    Attack("small unsigned calls", small_calls, 200, 5000),
    Attack("unknown calls", unknown, 100, 2000),
    Attack("enrolments with guessed tokens", enrolments, 50, 1500),
    Attack("huge metadata", huge_metadata, 3, 30),
    Attack("headers without an end", endless_headers, 2, 20),
    Attack("calls that are reset at once", resets, 500, 20000),
)
