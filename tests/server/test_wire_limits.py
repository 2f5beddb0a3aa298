"""How much one call of an agent may bring: looked at before it is parsed, and before values are made of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from tests.acceptance.raw import Raw, refused
from tests.server.grpc_port import grpc_port_of
from tideline.archive.errors import TooLarge
from tideline.core.errors import Malformed
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.rpc import polling, servicer, wire
from tideline_server.rpc.wire import MOST_BYTES, MOST_FACTS, MOST_FILES, MOST_METRICS

DIGEST = "b3-" + "f" * 64


def test_every_message_has_a_limit() -> None:
    """Each kind that the door parses, and Push's head."""
    text = "".join(map(inspect.getsource, (servicer, polling, wire)))
    asked = {kind for name, kind in vars(pb).items() if name.endswith("Request") and f"parsed(pb.{name}" in text}
    assert MOST_BYTES.keys() == asked | {pb.PushHead}
    assert max(MOST_BYTES.values()) == 1 << 20


def test_what_is_too_long_is_not_parsed(subtests: pytest.Subtests) -> None:
    """One byte more than the limit is refused, whatever the bytes are."""
    for kind, most in MOST_BYTES.items():
        with subtests.test(kind.__name__):
            with pytest.raises(TooLarge, match=f"bytes of one {kind.__name__} come at once; at most {most} may"):
                wire.parsed(kind, b"\xff" * (most + 1))
            with pytest.raises(Malformed, match=f"is no {kind.__name__}"):
                wire.parsed(kind, b"\xff" * most)


def head(parts: int) -> bytes:
    return pb.PushHead(order="o", parts=[pb.Arrival()] * parts).SerializeToString()


def reply(**said: Any) -> bytes:
    return pb.ReportRequest(order="o", **said).SerializeToString()


MANY: dict[str, tuple[Callable[[int], Any], int]] = {
    "parts that are announced": (lambda n: wire.announced(head(n)), MOST_FILES),
    "parts that are wanted": (lambda n: wire.wanted_in(pb.FetchRequest(parts=[pb.Wanted()] * n)), MOST_FILES),
    "files": (lambda n: wire.reply_in(reply(files=[pb.File()] * n)), MOST_FILES),
    "metrics": (lambda n: wire.reply_in(reply(metrics={f"m{i}": 1.0 for i in range(n)})), MOST_METRICS),
}


def test_how_many_there_may_be(subtests: pytest.Subtests) -> None:
    """The limit itself is taken, and one more is not."""
    for name, (read, most) in MANY.items():
        with subtests.test(name):
            read(most)
            with pytest.raises(TooLarge, match=f"{most + 1} .* come at once; at most {most} may"):
                read(most + 1)


def test_facts_are_short() -> None:
    """A truth value needs no more; what is longer is not parsed."""
    assert wire.facts_in('{"labelled": true}'.ljust(MOST_FACTS)) == {"labelled": True}
    with pytest.raises(Malformed, match="no JSON object of at most 1048576 characters"):
        wire.facts_in('{"labelled": true}'.ljust(MOST_FACTS + 1))


def test_the_largest_messages_fit() -> None:
    """A reply, a push and a fetch of as many parts as there may be, each of the largest size, are within their bytes."""
    size, names = (1 << 40) - 1, range(MOST_FILES)
    report = reply(
        files=[pb.File(digest=DIGEST, size=size) for _ in names], metrics={f"{i:064}": 1.0 for i in range(MOST_METRICS)}
    )
    push = pb.PushHead(order="o" * 32, parts=[pb.Arrival(digest=DIGEST, size=size, offset=size - 1) for _ in names])
    fetch = pb.FetchRequest(order="o" * 32, parts=[pb.Wanted(digest=DIGEST, offset=size) for _ in names])
    for made in (report, push.SerializeToString(), fetch.SerializeToString()):
        assert len(made) < 1 << 20


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    """A client that is let in."""
    with grpc_port_of() as (federation, port), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        made = Raw(channel)
        made.enrol(federation.run_service.invite("a", {}, 60.0))
        yield made


@pytest.mark.parametrize("files", [0, MOST_FILES])
def test_a_report_of_any_length_is_looked_at(raw: Raw, files: int) -> None:
    """Short ones are parsed on the loop, long ones on a thread."""
    told = pb.ReportRequest(order="f" * 32, files=[pb.File(digest=DIGEST, size=1)] * files)
    assert refused(lambda: raw.ask("Report", told, pb.Receipt)) == ("NotFound", "There is no order ffffffff")


def test_what_needs_no_proof_is_short(raw: Raw) -> None:
    """Nobody has to be known for these to be read."""
    for call, told in (("Enrol", pb.EnrolRequest(roles=[""] * 40_000)), ("Hello", pb.HelloRequest(version="9" * 70_000))):
        assert refused(lambda told=told, call=call: raw.ask(call, told, pb.EnrolReply))[0] == "TooLarge"  # type: ignore[misc]
