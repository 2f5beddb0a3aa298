"""What becomes of a call: its answer, the error that it carries, or what its status means; and how long until the next try."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import TypeVar

import grpc
import tenacity

from tideline import __version__
from tideline.archive.errors import TooLarge
from tideline.core.errors import FederationError, Unreachable, VersionRefused
from tideline.core.signing import PROTOCOL
from tideline_agent.link.lines import MOST_RECEIVED
from tideline_agent.link.opening import AnyLine
from tideline_agent.link.outcomes import Absent, NotSpoken, error_of
from tideline_protos.v1 import federation_pb2 as pb

T = TypeVar("T")
CALL_SECONDS = 30.0
# The longest pause between two tries where nobody listens, and where a coordinator says that it cannot answer now.
ABSENT_SECONDS, TROUBLED_SECONDS = 0.8, 10.0
AWAY = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL")  # statuses of an end that may come back


def pause(state: tenacity.RetryCallState) -> float:
    """Seconds until the next try: drawn, so that agents do not come all at once, from a span that grows.

    Short where nobody listens, which costs nobody anything: an agent is back soon, however long its coordinator was away.
    """
    error = state.outcome.exception() if state.outcome else None
    most = ABSENT_SECONDS if isinstance(error, Absent) else TROUBLED_SECONDS
    return tenacity.wait_random_exponential(multiplier=0.2, max=most)(state)


def hail(line: AnyLine, body: bytes) -> pb.HelloReply:
    """Hello. Raises VersionRefused where it is not known."""
    try:
        reply: pb.HelloReply = line.calls["Hello"](body, timeout=CALL_SECONDS)
        return reply
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise other_version(line.address, "is none of Tideline's, or older than its first release") from None
        raise


def other_version(address: str, speaks: str) -> VersionRefused:
    what = f"The coordinator at {address} {speaks}; this agent (tideline {__version__}) speaks protocol {PROTOCOL}"
    todo = "Install the same version on both ends, the coordinator's first; see that the address is its gRPC port"
    return VersionRefused(what, todo)


def translated(call: Callable[[], T], address: str) -> T:
    """A call's answer; its errors as ours. Raises Unreachable where the other end is away."""
    try:
        return call()
    except grpc.RpcError as error:
        raise ours(error, address) from None
    except ValueError as error:  # a channel that was closed under the call
        raise Unreachable(f"The line to {address} is closed: {error}", "The agent is stopping") from None


def ours(error: grpc.RpcError, address: str) -> FederationError:
    """The FederationError that a gRPC error carries, or what its status means. What cannot be read there is as good as none."""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return error_of(json.loads(dict(error.trailing_metadata() or ())["tideline-error-bin"]))
    if error.code().name in AWAY:
        kind = Absent if error.code() is grpc.StatusCode.UNAVAILABLE else Unreachable
        return kind(f"{address} does not answer: {error.details()}", "Check the address and that the coordinator runs")
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in str(error.details()):
        return TooLarge(f"{address} sends more than {MOST_RECEIVED >> 20} MiB at once", "The coordinator is not to be trusted")
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return NotSpoken(f"{address} is no Tideline coordinator", "Give the address of its gRPC port")
    return FederationError(f"{address} answered {error.code().name}: {error.details()}", "See the coordinator's log")
