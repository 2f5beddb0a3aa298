"""A holder that seals badly: its readers find it and name it; a run that goes on without one of them tells whom to ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.engine.passing import ALL
from tests.engine.sealing_stage import ANNA, BERT, CARL, given, owner, stage
from tests.laws.stage import Stage, ready
from tideline.archive import sealing
from tideline.cli.coordinator.runs import show_result
from tideline.client.events import happening
from tideline.core.run import Digest, RunId
from tideline.engine.model.orders import Envelope, Order
from tideline.engine.model.runs import Status
from tideline.engine.peers.peer_keys import MemoryPins, Pin, fresh, raw, shown
from tideline.engine.peers.sealing import about, handed
from tideline.report.page import heading

Bad = Callable[[Stage, Order, Envelope], Envelope]


def boxed(on: Stage, envelope: Envelope, key: bytes) -> Envelope:
    """An envelope with a content key in bert's box."""
    box = sealing.seal_key(key, raw(on.peer_keys_of[BERT].own().public)[1]).hex()
    return replace(envelope, keys={**envelope.keys, BERT: box})


def junk_box(on: Stage, order: Order, envelope: Envelope) -> Envelope:
    """Bytes that no key opens."""
    return replace(envelope, keys={**envelope.keys, BERT: "ab" * sealing.SEALED_KEY_BYTES})


def other_key(on: Stage, order: Order, envelope: Envelope) -> Envelope:
    """A key that is not that of the file."""
    return boxed(on, envelope, sealing.new_key())


def other_value(on: Stage, order: Order, envelope: Envelope) -> Envelope:
    """Another value under this one's name."""
    key, what = sealing.new_key(), about(order.run, envelope.handle)
    sealed = sealing.Sealing(memoryview(bytes(envelope.handle.size)), key, what)
    return boxed(on, replace(envelope, cipher=on.vaults[ANNA].parts(order.run).put(sealed)), key)


def other_length(on: Stage, order: Order, envelope: Envelope) -> Envelope:
    """A file that is no sealed file of this size, under the name of its own bytes."""
    cipher = on.vaults[ANNA].parts(order.run).put([bytes(envelope.bytes)])
    return boxed(on, replace(envelope, cipher=cipher), sealing.new_key())


BAD: dict[str, tuple[Bad, str]] = {
    "a box that nothing opens": (junk_box, "opens with none of bert's keys"),
    "the key of another file": (other_key, "its key does not open its file"),
    "a file that is none": (other_length, "its key does not open its file"),
    "another value": (other_value, "what its file holds has another digest"),
}


def sealing_badly(on: Stage, order: Order, bad: Bad) -> None:
    """Let anna answer an order with a value that she sealed badly for bert, and signed."""
    head, own = ready(on.agents[ANNA], order), on.peer_keys_of[ANNA].own()
    sealed = tuple(signed(bad(on, order, each), order.run, own.sign) for each in head.sealed)
    on.vaults[ANNA].commit(order.run, replace(head, sealed=sealed))
    receipt = on.agents[ANNA].handle(order)
    assert receipt is not None
    assert receipt.verdict == "accepted", "the coordinator cannot open it, and so cannot know"


def signed(envelope: Envelope, run: RunId, key: bytes) -> Envelope:
    """An envelope that its holder signs as it is."""
    signatures = {name: sealing.sign(handed(run, envelope, name), key).hex() for name in envelope.keys}
    return replace(envelope, signatures=signatures)


def played_badly(on: Stage, bad: Bad, **experiment: object) -> RunId:
    """A run in whose first round anna seals badly, to its end."""
    run = on.start(given(rounds=4) | experiment)
    for action in on.actions(run):
        for order in on.waiting():
            if order.cursor == 0 and owner(on, order.id) == ANNA:
                sealing_badly(on, order, bad)
        action()
    return run


@pytest.mark.parametrize("bad", BAD)
def test_the_holder_is_named(bad: str) -> None:
    """By each reader that cannot open its value; nobody on the way is blamed."""
    seals, words = BAD[bad]
    on = stage()
    run = played_badly(on, seals)
    row = on.row(run)
    assert row.status is Status.STALLED
    assert "bert: anna sealed the value " in row.cause
    assert words in row.cause
    assert "Ask anna's owner" in row.cause
    assert "look at the coordinator" not in row.cause


def test_a_round_that_closes_without_a_reader_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """In the run's notes, its events, what people are shown of it and its report: the kind of error, the holder, whom to ask."""
    on = stage()
    run = played_badly(on, other_key, waiting={"min_replies": 2})
    assert on.row(run).status is Status.COMPLETED
    result = on.result(run)
    (note,) = result["notes"]
    assert note.startswith("Round 4 of pass, and 1 round before it, closed without bert. SealBroken: anna sealed the value ")
    assert "Ask anna's owner" in note
    events = [{"kind": e.kind, "at": e.at, "data": e.data} for e in on.journal.events(run)]
    left = {e["data"]["round"]: e["data"].get("without") for e in events if e["kind"] == "closed"}
    assert left == {1: None, 2: {"bert": "SealBroken"}, 3: None, 4: {"bert": "SealBroken"}}
    told = [happening(e) for e in events]
    assert "closed pass 2 with 2 replies, without bert (SealBroken)" in [each.what for each in told]
    assert any(each.level == "error" and each.client == BERT and "Ask anna's owner" in each.what for each in told)
    show_result(result, False)
    assert "SealBroken: anna sealed the value" in " ".join(capsys.readouterr().out.split())
    assert "SealBroken: anna sealed the value" in heading(result)


def test_a_round_that_closes_without_one_who_mistrusts_a_peer_says_why() -> None:
    """With whose keys, and what to do about them."""
    on = stage()
    run = on.start(given(rounds=4) | {"waiting": {"min_replies": 2}})
    for action in on.actions(run):
        if on.row(run).cursor == 1:
            other = fresh().public
            on.peer_keys_of[BERT].pins = MemoryPins({CARL: Pin(other, shown(other))})
        action()
    assert on.row(run).status is Status.COMPLETED
    (note,) = on.result(run)["notes"]
    assert note.startswith("Round 4 of pass, and 2 rounds before it, closed without bert. PeerRefused: carl is shown with other")
    assert "tideline site trust carl" in note


def test_a_round_that_was_asked_again_says_nothing() -> None:
    """Its reader answered at last; the failure stands among its site's, and nowhere else."""
    on = stage()
    run = on.start(given())
    for action in on.actions(run):
        for order in on.waiting():
            if order.sealed and order.round == 2 and owner(on, order.id) == CARL and not on.journal.orders(run, 1)[2].failure:
                on.agents[CARL].handle(replace(order, sealed=()))
        action()
    assert on.row(run).status is Status.STALLED
    on.rebuild()
    on.run_service.resume(run)
    assert on.play(run).status is Status.COMPLETED
    result = on.result(run)
    assert [len(client["failures"]) for client in result["clients"]] == [0, 0, 1]
    assert result["notes"] == []
    assert [site["name"] for site in result["clients"]] == list(ALL)


def test_the_other_readers_open_what_is_good() -> None:
    """Each box is signed by itself: a bad one harms its reader alone."""
    on = stage()
    run = played_badly(on, junk_box, waiting={"min_replies": 2})
    answered = [o.client for o in on.journal.orders(run, 1) if o.failure is None]
    assert answered == [ANNA, CARL]
    assert on.parts.has(Digest(on.row(run).state_digest or ""))
