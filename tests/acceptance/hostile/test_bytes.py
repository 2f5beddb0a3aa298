"""Any bytes at every call of the gRPC port, signed and unsigned: an answer or a refusal in words, and the door stays open.

The long form takes a minute; TIDELINE_LONG=1 gives it ten.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.acceptance.harness import Net
from tests.acceptance.hostile.liar import Liar
from tests.acceptance.raw import SERVICE, Metadata
from tideline_protos.v1 import federation_pb2 as pb

pytestmark = pytest.mark.processes
SECONDS = 600.0 if os.environ.get("TIDELINE_LONG") == "1" else 60.0
OUTAGES = 3  # one after the other that a call bears
UNARY = ("Hello", "Enrol", "Rotate", "Report", "Beat")
DOWN, UP = ("Orders", "Fetch"), "Push"
CODES = {
    *(grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAUTHENTICATED),
    *(grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED, grpc.StatusCode.DATA_LOSS),
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
digests = texts | st.just("b3-" + "0" * 64)
sizes = st.integers(0, (1 << 64) - 1)
files = st.lists(st.builds(pb.File, digest=digests, size=sizes), max_size=3)
failures = st.none() | st.builds(pb.Failure, kind=texts, what=texts)
messages = {
    "Hello": st.builds(pb.HelloRequest, protocol=st.integers(0, 9), version=texts),
    "Enrol": st.builds(
        pb.EnrolRequest,
        protocol=st.integers(0, 3),
        token=texts,
        name=texts,
        roles=st.lists(texts, max_size=3),
        sign_key=st.binary(min_size=32, max_size=32),
        receive_key=st.binary(min_size=32, max_size=32),
    ),
    "Rotate": st.builds(pb.RotateRequest, sign_key=st.binary(max_size=33), signature=st.binary(max_size=70)),
    "Orders": st.builds(pb.OrdersRequest),
    "Fetch": st.builds(
        pb.FetchRequest, order=texts, parts=st.lists(st.builds(pb.Wanted, digest=digests, offset=sizes), max_size=3)
    ),
    "Push": st.builds(
        pb.PushHead, order=texts, parts=st.lists(st.builds(pb.Arrival, digest=digests, size=sizes, offset=sizes), max_size=3)
    ),
    "Report": st.builds(
        pb.ReportRequest,
        order=texts,
        files=files,
        metrics=st.dictionaries(texts, st.floats(), max_size=3),
        facts=texts,
        failure=failures,
    ),
    "Beat": st.builds(pb.BeatRequest, progress=st.dictionaries(texts, st.floats(), max_size=3)),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, Any, bytes, list[bytes], bool]:
    """A call, its message, or None and any bytes, what a push sends after it, and whether it is signed."""
    name = draw(st.sampled_from(sorted(messages)))
    message = draw(st.none() | messages[name])
    return name, message, draw(st.binary(max_size=64)), draw(st.lists(st.binary(max_size=64), max_size=3)), draw(st.booleans())


def status(liar: Liar, call: Any) -> grpc.StatusCode:
    """How a call is answered. As an agent does, it is made again where the other end is away: its line was cut under it, which
    happens to whoever proves nothing for long, or a machine under load was too slow to write something down.
    """
    for _ in range(OUTAGES):
        found = answer(liar, call)
        if found is not grpc.StatusCode.UNAVAILABLE:
            break
        with suppress(grpc.RpcError):  # what proves who calls makes the door patient again
            liar.beat()
    return found


def answer(liar: Liar, call: Any) -> grpc.StatusCode:
    """The same, of one try. A stream of orders that is open after a while is one that was let in."""
    name, message, body, rest, signed = call
    body = body if message is None else message.SerializeToString()
    metadata: Metadata = liar.proof(name, body) if signed else ()
    try:
        if name == UP:
            liar.channel.stream_unary(SERVICE + name, None, None)(iter([body, *rest]), metadata=metadata, timeout=5)
        elif name in DOWN:
            # Who is let in to hear orders mostly hears none: that is waited for no longer than it takes to be refused.
            patience = 1 if name == "Orders" and signed else 5
            stream = liar.channel.unary_stream(SERVICE + name, None, None)(body, metadata=metadata, timeout=patience)
            first = next(stream, None) if name == "Orders" else list(stream)
            stream.cancel()
            assert first is not None
        else:
            liar.channel.unary_unary(SERVICE + name, None, None)(body, metadata=metadata, timeout=5)
    except grpc.RpcError as error:
        listening = name == "Orders" and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # ours: there was nothing to hear
        return grpc.StatusCode.OK if listening else error.code()
    return grpc.StatusCode.OK


@pytest.fixture(scope="module")
def liar(coordinator: Net) -> Iterator[Liar]:
    """A coordinator, and a client with an open order."""
    with grpc.insecure_channel(coordinator.address) as channel:
        made = Liar(channel).begin(coordinator, "babbler")
        made.order = made.asked()
        yield made


def tried(liar: Liar, examples: int, seed: bool) -> None:
    """So many calls, half of them with the id of the order that the client has."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=seed,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(call=calls(), own=st.booleans())
    def ask(call: Any, own: bool) -> None:
        if (
            own
            and call[1] is not None
            and hasattr(call[1], "order")
            and not (call[0] == "Report" and call[1].HasField("failure"))
        ):
            call[1].order = liar.order.id
        found = status(liar, call)
        assert found in CODES, (found, call)
        assert call[4] or call[0] in ("Hello", "Enrol") or found is not grpc.StatusCode.OK, "a call without a proof was let in"

    ask()
    hello = liar.send("Hello", pb.HelloRequest(protocol=2).SerializeToString(), (), pb.HelloReply)
    assert hello.protocol == 2 and liar.beat() is not None


def test_any_bytes_at_any_call(liar: Liar) -> None:
    tried(liar, 150, True)


@pytest.mark.nightly(job="journeys")
@pytest.mark.timeout(SECONDS + 120)
def test_any_bytes_for_long(liar: Liar) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        tried(liar, 60, False)
