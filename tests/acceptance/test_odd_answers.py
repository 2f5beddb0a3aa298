"""Answers of a coordinator that nobody can read, or that are larger than any: the agent goes on."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import grpc
import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from tests.acceptance.hostile.false_coordinator import FalseCoordinator
from tests.acceptance.test_stalls import DIGEST, FILES, ORDER
from tests.acceptance.test_withdrawn import PATIENCE, calling, order
from tideline.archive.errors import TooLarge
from tideline.archive.parts import MemoryParts
from tideline.core.errors import FederationError, Unreachable
from tideline.core.notes import Note
from tideline.core.run import OrderId
from tideline.engine.model.orders import Receipt, Reply
from tideline_agent.link import grpc_link
from tideline_agent.link.calls import ours
from tideline_agent.link.lines import MOST_RECEIVED
from tideline_agent.link.outcomes import FullThere
from tideline_agent.metrics import AgentMetrics, CountedLink
from tideline_agent.notes import NoteQueue
from tideline_protos.v1 import federation_pb2 as pb

STARTED = Note("order_started")


class Answer:
    """A call that failed, as gRPC tells it."""

    def __init__(self, trailer: bytes, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        self._trailer, self._code = trailer, code

    def trailing_metadata(self) -> list[tuple[str, bytes]]:
        return [("other-bin", b"x"), ("tideline-error-bin", self._trailer)]

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "away"


@pytest.mark.parametrize(
    "trailer",
    [
        *(b"", b"\xff\xfe", b"{", b"[]", b"7", b"null", b"{}", b'{"kind": "Refused"}', b'{"kind": {}, "what": 1}'),
        *(b'{"kind": "Refused", "what": "x", "context": [1]}', b'{"kind": "Refused", "what": "x", "context": {"what": 1}}'),
        b"[" * 100_000,
    ],
    ids=lambda trailer: repr(trailer[:40]),
)
def test_an_error_that_cannot_be_read_is_none(trailer: bytes) -> None:
    assert isinstance(ours(Answer(trailer), "a:1"), Unreachable)
    assert type(ours(Answer(trailer, grpc.StatusCode.DATA_LOSS), "a:1")) is FederationError


def test_an_error_that_can_be_read() -> None:
    full = json.dumps({"kind": "StorageFull", "what": "no room", "todo": ""}).encode()
    assert isinstance(ours(Answer(full), "a:1"), FullThere)
    newer = ours(Answer(json.dumps({"kind": "Newer", "what": "odd", "todo": "do"}).encode()), "a:1")
    assert str(newer) == "odd. do"


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[FalseCoordinator]:
    """One that is not to be trusted, and an agent that does not wait long."""
    monkeypatch.setattr(grpc_link, "FULL_SECONDS", 0.0)
    with closing(FalseCoordinator()) as made:
        yield made


def test_an_order_of_endless_length_is_not_taken_in(coordinator: FalseCoordinator) -> None:
    """Nor is one whose brief is longer than any; the next one is heard."""
    away: list[BaseException | None] = []

    def tell_on(error: BaseException | None) -> None:
        """The stream was left; what tells over it may not know that yet, and lose one of each."""
        away.append(error)
        for _ in range(3):
            coordinator.orders.put(order("wordy", brief=json.dumps({"method": "x" * (1 << 20)})))
            coordinator.orders.put(order("honest"))

    coordinator.orders.put(order("endless", phase="x" * MOST_RECEIVED))
    with closing(calling(coordinator.port, away=tell_on)) as link, closing(link.orders()) as told:
        heard = {each.id: each for each in itertools.islice(told, 3)}
    assert isinstance(away[0], TooLarge) and set(heard) == {"wordy", "honest"}
    assert dict(heard["wordy"].brief) == {} and heard["honest"].brief["method"] == "fedavg"


def test_a_chunk_of_endless_length_is_refused(coordinator: FalseCoordinator) -> None:
    coordinator.parts = [bytes(MOST_RECEIVED + 1)]
    with closing(calling(coordinator.port)) as link, pytest.raises(TooLarge, match="sends more than 64 MiB at once"):
        link.fetch(ORDER, FILES, MemoryParts())


def test_the_largest_order_is_heard(coordinator: FalseCoordinator) -> None:
    large = order("large")
    large.files.extend([pb.File(digest=DIGEST, size=1 << 40)] * 200_000)
    coordinator.orders.put(large)
    with closing(calling(coordinator.port)) as link:
        told = link.orders()
        assert len(next(told).files) == 200_001
        told.close()


def test_whatever_becomes_of_notes_the_next_are_sent() -> None:
    heard: list[int] = []
    over = threading.Event()

    def send(notes: Any) -> None:
        heard.append(len(notes))
        if len(heard) == 1:
            raise RecursionError("deep")
        over.set()

    stop = threading.Event()
    queue = NoteQueue(send, stop)
    queue.put(OrderId("o"), STARTED)
    queue.put(OrderId("o"), STARTED)
    assert queue.send_batch() > 0
    queue.put(OrderId("o"), STARTED)
    with capture_logs():
        queue.start()
        assert over.wait(PATIENCE)
        stop.set()
    assert heard == [2, 2]  # the second with a note that two were left out


def test_notes_that_nobody_answers_move_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for notes, so the agent stays with the coordinator that it is served by."""
    monkeypatch.setattr(grpc_link, "NOTES_SECONDS", 0.1)
    with closing(FalseCoordinator()) as one, closing(FalseCoordinator()) as two, closing(calling(one.port, two.port)) as link:
        before = link._lines.now
        link.hello()
        one.deaf = two.deaf = True
        with pytest.raises(Unreachable):
            link.send_notes([(OrderId("o"), STARTED)])
        assert link._lines.now is before


class Saying:
    """A line whose coordinator says whatever it likes."""

    def __init__(self, verdict: str) -> None:
        self.verdict = verdict

    def report(self, order: object, reply: object) -> Receipt:
        return Receipt(self.verdict)


def test_a_verdict_that_there_is_not_is_no_label() -> None:
    """Numbers have labels of ours alone, however many words a coordinator makes up."""
    metrics = AgentMetrics("1")
    for verdict in ("accepted", "SECRET", "", "x" * 1000):
        CountedLink(Saying(verdict), metrics).report(ORDER, Reply(ORDER.id))  # type: ignore[arg-type]
    told = generate_latest(metrics.registry).decode()
    assert 'verdict="other"} 3.0' in told and 'verdict="accepted"} 1.0' in told and "SECRET" not in told
