"""Notes at the gRPC port: signed, of known kinds, and few at once."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from tests.acceptance.raw import Raw, refused
from tests.server.grpc_port import grpc_port_of
from tests.synthetic import experiment
from tideline.core.run import RunId
from tideline.engine.simulation.federation import Federation
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.rpc.wire import MOST_NOTES


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Federation, Raw, Raw, RunId]]:
    """Two enrolled clients, of whom the first takes part in a run."""
    with grpc_port_of() as (federation, port), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        member, other = Raw(channel, "tess"), Raw(channel, "omar")
        for each in (member, other):
            each.enrol(federation.run_service.invite(each.name, {}, 60.0))
        run = federation.start(experiment("fedavg", {"tess": "source"}))
        yield federation, member, other, run


def order_of(federation: Federation, run: RunId) -> str:
    """What is asked."""
    return str(federation.journal.orders(run)[0].id)


def tell(raw: Raw, *notes: pb.Note) -> None:
    """Tell."""
    raw.ask("SendNotes", pb.SendNotesRequest(notes=notes), pb.SendNotesReply)


def told(federation: Federation, run: RunId) -> list[str]:
    """The kinds of notes in the journal."""
    return [str(e.data["note"]) for e in federation.journal.events(run) if e.kind == "note"]


def test_a_member_tells(opened: tuple[Federation, Raw, Raw, RunId]) -> None:
    """What it tells is in the journal when the call is answered."""
    federation, member, _, run = opened
    note = pb.Note(order=order_of(federation, run), kind="trained", numbers={"seconds": 1.5})
    tell(member, note)
    assert told(federation, run) == ["trained"]


def test_who_is_no_member_is_refused(opened: tuple[Federation, Raw, Raw, RunId]) -> None:
    """Also an enrolled one, and one who signs with another's name."""
    federation, member, other, run = opened
    note, before = pb.Note(order=order_of(federation, run), kind="order_started"), told(federation, run)
    assert refused(lambda: tell(other, note))[0] == "IdentityRefused"
    assert refused(lambda: tell(Raw(member.channel, member.name), note))[0] == "IdentityRefused"
    assert refused(lambda: member.send("SendNotes", b"", ()))[0] == "IdentityRefused"
    assert told(federation, run) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "the label of row 3 is SECRET"},
        {"kind": "order_started", "words": {"why": "SECRET"}},
        {"kind": "trained"},
        {"kind": "trained", "numbers": {"seconds": float("nan")}},
        {"kind": "declined", "words": {"error": "ValueError: SECRET"}},
    ],
    ids=["kind", "free words", "missing", "no number", "a sentence for a name"],
)
def test_what_is_no_note_is_refused(opened: tuple[Federation, Raw, Raw, RunId], wrong: dict[str, object]) -> None:
    """The coordinator holds each to its kind, whatever an agent does."""
    federation, member, _, run = opened
    before = told(federation, run)
    assert refused(lambda: tell(member, pb.Note(order=order_of(federation, run), **wrong)))[0] == "Malformed"
    assert told(federation, run) == before


def test_too_many_at_once_are_refused(opened: tuple[Federation, Raw, Raw, RunId]) -> None:
    """All of them."""
    federation, member, _, run = opened
    before = told(federation, run)
    notes = [pb.Note(order=order_of(federation, run), kind="order_started")] * (MOST_NOTES + 1)
    assert refused(lambda: tell(member, *notes))[0] == "Malformed"
    assert told(federation, run) == before
