"""Calls as no agent of ours would make them: each is refused with a sentence, and nothing is spoilt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.acceptance.harness import Net
from tests.acceptance.hostile.liar import Liar
from tests.acceptance.raw import Raw, refused
from tideline.archive.digests import digest_of, shard_of
from tideline_protos.v1 import federation_pb2 as pb

pytestmark = pytest.mark.processes
PART = bytes(range(256)) * 40
DIGEST = digest_of([PART])


class Site(Raw):
    """An enrolled client that says whatever it likes, with an open order of a run's first step."""

    def begin(self, federation: Net) -> Site:
        self.federation = federation
        self.order = Liar(self.channel, self.name, self.key, self.receive).begin(federation, self.name).at_work().id
        return self

    def push(self, chunks: list[bytes], offset: int = 0) -> None:
        head = pb.PushHead(order=self.order, parts=[pb.Arrival(digest=DIGEST, size=len(PART), offset=offset)])
        self.stream([head.SerializeToString(), *chunks])

    def report(self, **said: Any) -> Any:
        return self.ask("Report", pb.ReportRequest(order=self.order, **said), pb.Receipt)


@pytest.fixture(scope="module")
def there(coordinator: Net) -> Iterator[Site]:
    """A coordinator, and a client without an agent."""
    with grpc.insecure_channel(coordinator.address) as channel:
        yield Site(channel).begin(coordinator)


@pytest.mark.parametrize("first", [[b""], [PART], [pb.PushHead(order="o").SerializeToString()]])
def test_a_push_that_does_not_say_what_it_brings(there: Site, first: list[bytes]) -> None:
    assert refused(lambda: there.stream(first)) == ("Malformed", "The call does not say which parts it brings")


def test_a_push_that_says_nothing(there: Site) -> None:
    assert refused(lambda: there.stream([])) == ("Malformed", "The call brings no message")


def test_a_push_of_more_or_less_than_it_said(there: Site) -> None:
    assert refused(lambda: there.push([PART, b"more"]))[0] == "TooLarge"
    assert refused(lambda: there.push([PART[:10]]))[0] in ("DataTruncated", "Stale")


def test_a_push_from_a_wrong_offset(there: Site) -> None:
    """Bytes that do not follow those that are here would spoil the part: it is refused, and goes on where it was."""
    (missing,) = there.report(files=[pb.File(digest=DIGEST, size=len(PART))]).missing
    here = missing.offset
    assert refused(lambda: there.push([PART[here + 1 :]], offset=here + 1))[0] == "Stale"
    there.push([PART[here : here + 300], PART[here + 300 :]], offset=here)
    assert (there.federation.folder / "parts" / shard_of(DIGEST) / DIGEST).read_bytes() == PART


@pytest.mark.parametrize("facts", ["{", "[" * 100_000, "[1]", "7", '"labelled"'])
def test_facts_that_are_no_object(there: Site, facts: str) -> None:
    """Garbage where JSON is expected is refused, and the order stays open."""
    assert refused(lambda: there.report(facts=facts))[0] == "Malformed"


def test_a_beat_without_a_number(there: Site) -> None:
    """A share that is no number does not keep the agent from hearing which orders are gone."""
    for share in (float("nan"), float("inf"), -1.0):
        beat = pb.BeatRequest(progress={there.order: share, "unknown": share})
        assert list(there.ask("Beat", beat, pb.BeatReply).gone) == ["unknown"]


@pytest.mark.parametrize("call", ["Beat", "Report", "Rotate"])
def test_a_request_that_is_no_message(there: Site, call: str) -> None:
    """It is proven before it is parsed, and garbage is refused in words."""
    body = b"\xff" * 9
    assert refused(lambda: there.send(call, body, there.proof(call, body)))[0] == "Malformed"
    assert refused(lambda: there.send(call, body, ()))[0] == "IdentityRefused"


def test_a_message_of_many_megabytes(there: Site) -> None:
    """It is refused before it is taken in: whoever reaches the door could fill the coordinator's memory."""
    with pytest.raises(grpc.RpcError) as caught:
        there.push([bytes(65 << 20)])
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_many_metrics(there: Site) -> None:
    """More than any method declares are not taken up; so many as could be are refused at the first that nobody declared."""
    with pytest.raises(grpc.RpcError) as caught:
        there.report(metrics={f"m{i}": 1.0 for i in range(60_000)})
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    receipt = there.report(metrics={f"m{i}": 1.0 for i in range(1000)})
    assert receipt.verdict == "refused" and receipt.error.kind == "Undeclared"
    assert Path(there.federation.folder / "coordinator.json").exists()
