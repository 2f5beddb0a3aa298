"""A relay that lies about sealed values: their receiver finds it, says so, and the run goes on once the lie is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.engine.passing import ALL, Given, Value
from tests.engine.present import present
from tests.engine.sealing_stage import (
    ANNA,
    BERT,
    CARL,
    answered_to,
    first_order_with_values,
    given,
    lying,
    orders_with_values,
    owner,
    stage,
)
from tests.laws.stage import Stage, ready
from tideline.archive import sealing
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.cli.coordinator.runs import show_result
from tideline.client.events import happening
from tideline.core.run import Digest, RunId
from tideline.engine.model.orders import Envelope, Order
from tideline.engine.model.runs import Status
from tideline.engine.peers.peer_keys import MemoryPins, Pin, fresh, raw, shown
from tideline.engine.peers.sealing import about, handed
from tideline.report.page import heading


def swap_files(on: Stage, order: Order) -> Order:
    """Each value's sealed file is another's."""
    one, two = order.sealed
    return replace(
        order, sealed=(replace(one, cipher=two.cipher, bytes=two.bytes), replace(two, cipher=one.cipher, bytes=one.bytes))
    )


def swap_envelopes(on: Stage, order: Order) -> Order:
    """Each value comes in the other's envelope."""
    one, two = order.sealed
    return replace(order, sealed=(replace(two, handle=one.handle), replace(one, handle=two.handle)))


def change_bytes(on: Stage, order: Order) -> Order:
    """A sealed file with a bit flipped, under a name that fits."""
    return refile(on, order, lambda data: bytes([data[0] ^ 1]) + data[1:])


def cut_bytes(on: Stage, order: Order) -> Order:
    """A sealed file without its end."""
    return refile(on, order, lambda data: data[:-1])


def refile(on: Stage, order: Order, change: Callable[[bytes], bytes]) -> Order:
    """The first value's sealed file, changed."""
    first, *rest = order.sealed
    data = change(bytes(on.parts.view(first.cipher)))
    return replace(order, sealed=(replace(first, cipher=on.parts.put([data]), bytes=len(data)), *rest))


def forged(on: Stage, order: Order) -> Order:
    """A value that the coordinator made, sealed to the site, and signed by keys of its own."""
    first, *rest = order.sealed
    liar = fresh()
    sealed = seal_as(on, order, first, liar.sign)
    return replace(order, sealed=(sealed, *rest))


def seal_as(on: Stage, order: Order, envelope: Envelope, sign: bytes) -> Envelope:
    """A whole new envelope for a handle, signed by somebody."""
    what, key = about(order.run, envelope.handle), sealing.new_key()
    cipher = on.parts.put(sealing.Sealing(memoryview(bytes(envelope.handle.size)), key, what))
    me = owner(on, order.id)
    box = sealing.seal_key(key, raw(on.peer_keys_of[me].own().public)[1])
    signature = sealing.sign(sealing.Handed(what, cipher, me, box), sign).hex()
    return replace(envelope, cipher=cipher, keys={me: box.hex()}, signatures={me: signature})


def other_box(on: Stage, order: Order) -> Order:
    """A value whose key is in a box that the relay made, beside the holder's signature of its own."""
    first, *rest = order.sealed
    me = owner(on, order.id)
    box = sealing.seal_key(sealing.new_key(), raw(on.peer_keys_of[me].own().public)[1]).hex()
    return replace(order, sealed=(replace(first, keys={me: box}), *rest))


def longer(on: Stage, order: Order) -> Order:
    """A value whose sealed file is said to be longer than it is."""
    first, *rest = order.sealed
    return replace(order, sealed=(replace(first, bytes=first.bytes + 1), *rest))


def without_key(on: Stage, order: Order) -> Order:
    """A value whose key is kept back."""
    first, *rest = order.sealed
    return replace(order, sealed=(replace(first, keys={}), *rest))


def left_out(on: Stage, order: Order) -> Order:
    """A value that is kept back."""
    return replace(order, sealed=order.sealed[1:])


def of_a_stranger(on: Stage, order: Order) -> Order:
    """Values of one whom the order does not tell of."""
    holder = order.sealed[0].handle.holder
    peers = {name: told for name, told in order.brief["peers"].items() if name != holder}
    return replace(order, brief={**order.brief, "peers": peers})


def other_keys(on: Stage, order: Order) -> Order:
    """A peer that is shown with the liar's keys."""
    holder, liar = order.sealed[0].handle.holder, fresh().public
    told = {"sign": liar.sign, "receive": liar.receive, "handovers": []}
    return replace(order, brief={**order.brief, "peers": {**order.brief["peers"], holder: told}})


LIES = {
    "sealed files swapped": (swap_files, "has not signed it"),
    "envelopes swapped": (swap_envelopes, "has not signed it"),
    "a sealed file changed": (change_bytes, "has not signed it"),
    "a sealed file cut": (cut_bytes, "has not signed it"),
    "a value forged": (forged, "has not signed it"),
    "a box of the relay's own": (other_box, "has not signed it"),
    "a file said to be longer": (longer, "which is not what was signed"),
    "a key kept back": (without_key, "it came without a key for"),
    "a value kept back": (left_out, "does not bring it"),
    "a value of nobody": (of_a_stranger, "who is no peer of this run"),
    "another's keys": (other_keys, "is shown with other keys"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_on_the_way_is_found_by_the_receiver(lie: str) -> None:
    """Its answer says what is wrong with whose value; the run stalls with these words, and goes on when the lie is over."""
    tell, words = LIES[lie]
    on, run, order = first_order_with_values()
    me = owner(on, order.id)
    original = on.agents[me].link.fetch
    on.agents[me].link.fetch = lying(on, original)  # type: ignore[method-assign]
    present(on.agents[me].handle(tell(on, order)))
    row = present(on.journal.order(order.id))
    assert row.failure is not None
    assert words in row.failure.what, row.failure
    if row.failure.kind == "SealBroken":
        assert "look at the coordinator" in row.failure.what, "nobody else is to blame"
    on.rebuild()
    stalled = on.play(run)
    assert stalled.status is Status.STALLED and words in stalled.cause
    on.run_service.resume(run)
    assert on.play(run).status is Status.COMPLETED


def test_a_replayed_value_is_found() -> None:
    """One of the round before, also where the handle is changed with it: it is signed for its own round."""
    on = stage()
    run = on.start(given())
    old = {e.handle.holder: e for o in orders_with_values(on, run) for e in o.sealed}
    order = orders_with_values(on, run, 3)[0]
    me = owner(on, order.id)
    replayed = tuple(replace(old[e.handle.holder], handle=replace(old[e.handle.holder].handle, round=2)) for e in order.sealed)
    on.agents[me].link.fetch = lying(on, on.agents[me].link.fetch)  # type: ignore[method-assign]
    on.agents[me].handle(replace(order, sealed=replayed))
    row = present(on.journal.order(order.id))
    assert row.failure is not None


def renamed(on: Stage, order: Order, to: dict[str, tuple[str, int]]) -> Order:
    """An order whose root names other values under the same holders and exchange, and envelopes that vouch for none."""
    old = decode(Given, order.files[0][0], on.parts)
    values = {n: replace(h, digest=to[n][0], size=to[n][1], kind=None) for n, h in old.values.items()}
    sealed = tuple(replace(e, handle=values[e.handle.holder], signatures={}) for e in order.sealed)
    return replace(order, files=encode(Given(values), on.parts).files, sealed=sealed)


def test_a_value_that_the_relay_made_itself_is_found() -> None:
    """Also where it lies at the site already, as a file of the message: that something is here does not say whose it is."""
    on, run, order = first_order_with_values()
    forged = encode(Value(torch.full((8,), 666.0)), on.parts).files[0]
    lie = renamed(on, order, dict.fromkeys(ALL, forged))
    assert "does not name" in answered_to(on, replace(lie, files=(*lie.files, forged)))
    on.rebuild()
    on.run_service.resume(run) if on.play(run).status is Status.STALLED else None
    assert on.play(run).status is Status.COMPLETED


def test_a_value_of_before_under_a_new_handle_is_found() -> None:
    """It lies at the site still, opened in the round before; the new handle says that it is of this one."""
    on = stage()
    run = on.start(given(rounds=4))
    before = orders_with_values(on, run, 2)[0]
    me = owner(on, before.id)
    old = {e.handle.holder: (e.handle.digest, e.handle.size) for e in before.sealed}
    order = next(o for o in orders_with_values(on, run, 3) if owner(on, o.id) == me)
    assert all(on.vaults[me].parts(run).has(Digest(digest)) for digest, _ in old.values())
    assert "has not signed it" in answered_to(on, renamed(on, order, {str(name): told for name, told in old.items()}))


def test_an_order_for_a_round_that_is_not_there_is_refused() -> None:
    """What a site signs says in which exchange it was made; that is its own plan's word, not the coordinator's."""
    on, _run, order = first_order_with_values()
    assert "place 1 and round 77, which the run's plan has not" in answered_to(on, replace(order, round=77))


NAMES = ("c'; touch x", "a/b", "", "..", "a" * 65, "a\nb")


@pytest.mark.parametrize("name", NAMES)
def test_peers_have_names_that_clients_can_have(name: str) -> None:
    """They are shown to people, in a command that these may paste."""
    on, _, order = first_order_with_values()
    told = on.agents[owner(on, order.id)].peer_keys.own().public
    peers = {**order.brief["peers"], name: {"sign": told.sign, "receive": told.receive, "handovers": []}}
    words = answered_to(on, replace(order, brief={**order.brief, "peers": peers}))
    assert "peers cannot be understood" in words


def test_keys_are_the_same_however_they_are_written() -> None:
    """Hexadecimal has two cases."""
    on, _run, order = first_order_with_values()
    loud = {n: {**p, "sign": p["sign"].upper(), "receive": p["receive"].upper()} for n, p in order.brief["peers"].items()}
    receipt = present(on.agents[owner(on, order.id)].handle(replace(order, brief={**order.brief, "peers": loud})))
    assert receipt.verdict == "accepted"


# A holder that seals badly: its readers find it and name it; a run that goes on without one of them tells whom to ask.
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
    receipt = present(on.agents[ANNA].handle(order))
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
    assert row.status is Status.STALLED and "bert: anna sealed the value " in row.cause and words in row.cause
    assert "Ask anna's owner" in row.cause and "look at the coordinator" not in row.cause


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
    assert [len(client["failures"]) for client in result["clients"]] == [0, 0, 1] and result["notes"] == []
    assert [site["name"] for site in result["clients"]] == list(ALL)


def test_the_other_readers_open_what_is_good() -> None:
    """Each box is signed by itself: a bad one harms its reader alone."""
    on = stage()
    run = played_badly(on, junk_box, waiting={"min_replies": 2})
    answered = [o.client for o in on.journal.orders(run, 1) if o.failure is None]
    assert answered == [ANNA, CARL] and on.parts.has(Digest(on.row(run).state_digest or ""))
