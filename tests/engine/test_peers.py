"""Values for peers, end to end in one process: sealed, relayed, opened."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.engine.handovers import rotated
from tests.engine.low_order import LOW_ORDER
from tests.engine.passing import ALL, CANARY
from tests.engine.sealing_stage import BERT, CARL, METHODS, given, orders_with_values, owner, played, stage
from tests.laws.stage import Cuts
from tests.synthetic import sites
from tideline.archive import sealing
from tideline.archive.errors import SealBroken
from tideline.core.errors import NotFound, RosterRefused
from tideline.core.run import ClientId, Digest
from tideline.engine.model.accounts import Keys
from tideline.engine.model.orders import Envelope, Order, OrderRow
from tideline.engine.model.runs import Status
from tideline.engine.peers.peer_keys import raw
from tideline.engine.peers.sealing import about, ciphers
from tideline.engine.simulation.federation import SimSite, simulate


@pytest.mark.parametrize("ring", [False, True])
def test_values_reach_their_peers_and_nobody_else(ring: bool) -> None:
    """Every site adds up what the others gave; of the numbers nothing crosses the wire that could be read there."""
    on = stage()
    run = played(on, ring=ring)
    heard = [o.metrics["heard"] for o in on.journal.orders(run) if o.cursor == 1]
    assert heard == ([1.0] if ring else [2.0]) * 3
    wire = on.wire.all()
    for length in {len(name) for name in ALL}:
        assert struct.pack("<f", CANARY + length) not in wire
    values = {e.handle.digest for d in on.journal._sealed.values() for _, e in d.values()}
    assert not values & set(map(str, on.parts.digests()))


def test_the_same_bytes_whoever_seals() -> None:
    """Keys and sealed files are new each time, and states, replies and orders are not."""
    first, second = stage(), stage()
    one, two = played(first), played(second)
    assert first.row(one).state_digest == second.row(two).state_digest
    assert [o.reply for o in first.journal.orders(one)] == [o.reply for o in second.journal.orders(two)]
    result = simulate(METHODS, given(), sites())
    assert result["state_digest"] == first.row(one).state_digest
    here = {s["name"]: (s["bytes_up"], s["bytes_down"]) for s in result["clients"]}
    assert here == {s["name"]: (s["bytes_up"], s["bytes_down"]) for s in first.result(one)["clients"]}


def test_a_process_may_end_anywhere() -> None:
    """The coordinator's or a site's, in the middle of a sealed file too: the run ends in the undisturbed bytes."""
    quiet = stage()
    digest = quiet.row(played(quiet)).state_digest
    cuts = Cuts(every=True)
    on = stage(cuts)
    run = on.start(given())
    assert on.play(run).state_digest == digest
    assert len(cuts.reached) > 100


def test_values_are_kept_as_long_as_they_are_needed() -> None:
    """The first ones to the end, as the state names them; the others as long as their round may be computed again."""
    on = stage()
    run = on.start(given(rounds=6))
    seen = []
    for action in on.actions(run):
        on.alive(action)
        on.part_store.collect()
        if on.row(run).status is Status.RUNNING:
            seen.append({each.round for each in on.journal._sealed.get(run, {})})
    assert max(map(len, seen)) <= 4
    assert all(1 in rounds for rounds in seen if max(rounds, default=0) > 1)
    on.part_store.collect()
    assert on.journal._sealed.get(run) is None
    assert len(set(on.parts.digests())) == 1, "the final state alone"


def test_a_part_opens_to_an_open_order_that_names_it() -> None:
    """A digest alone opens nothing: not that of a value's plaintext, nor that of a sealed file which is for others."""
    on = stage()
    run = on.start(given(ring=True))
    orders: list[Order] = []
    for action in on.actions(run):
        on.alive(action)
        orders = [o for o in on.waiting() if o.sealed]
        if orders:
            break
    for order in orders:
        me = owner(on, order.id)
        for other in orders:
            for envelope in other.sealed:
                named = [(envelope.cipher, 0)]
                if other is order:
                    assert b"".join(map(bytes, on.agent_service.fetch(me, order.id, named)))
                    assert set(envelope.keys) == {me}
                else:
                    with pytest.raises(NotFound, match="names no part"):
                        list(on.agent_service.fetch(me, order.id, named))
                with pytest.raises(NotFound):
                    list(on.agent_service.fetch(me, order.id, [(Digest(envelope.handle.digest), 0)]))


def test_what_the_relay_holds_opens_nothing() -> None:
    """It has sealed files, sealed keys, signatures and everybody's public keys; and so has a site that is no reader."""
    on = stage()
    run = on.start(given(ring=True))
    orders_with_values(on, run)
    envelopes = [e for _, e in on.journal._sealed[run].values()]
    assert envelopes
    public = [raw(c.keys) for c in on.journal.clients() if c.keys]
    for envelope in envelopes:
        (reader,) = envelope.keys
        box = bytes.fromhex(envelope.keys[reader])
        others = [on.peer_keys_of[name].own().receive[0] for name in ALL if name != reader]
        assert not any(sealing.open_key(box, key) for key in (*others, *(key for pair in public for key in pair)))
        assert sealing.open_key(box, on.peer_keys_of[reader].own().receive[0])
        for guess in (bytes(32), box[:32], box[-32:], *(key for pair in public for key in pair)):
            with pytest.raises(SealBroken):
                list(sealing.opened(on.parts.view(envelope.cipher), guess, about(run, envelope.handle)))


def reply_changed(change: Callable[[tuple[Envelope, ...]], tuple[Envelope, ...]]) -> OrderRow:
    """What the coordinator makes of a reply whose envelopes were changed at the site."""
    on = stage()
    run = on.start(given())
    for action in on.actions(run):
        on.alive(action)
        if on.row(run).cursor == 0 and on.waiting():
            break
    order = on.waiting()[0]
    agent = on.agents[owner(on, order.id)]
    report = agent.link.report
    agent.link.report = lambda o, r: report(o, replace(r, sealed=change(r.sealed)))  # type: ignore[method-assign]
    agent.handle(order)
    row = on.journal.order(order.id)
    assert row is not None
    return row


BAD: dict[str, tuple[Callable[[Envelope], Envelope], str]] = {
    "of another round": (lambda e: replace(e, handle=replace(e.handle, round=9)), "not those that its root names"),
    "for nobody": (lambda e: replace(e, keys={}), "it is for nobody"),
    "for a stranger": (lambda e: replace(e, keys={ClientId("mallory"): "00" * 80}), "it is for mallory"),
    "with a key that is none": (lambda e: replace(e, keys={BERT: "zz"}), "no sealed key"),
    "not signed": (lambda e: replace(e, signatures={}), "has not signed it for"),
    "signed for one reader alone": (lambda e: replace(e, signatures=dict([*e.signatures.items()][:1])), "has not signed it for"),
    "signed for more": (lambda e: replace(e, signatures={**e.signatures, CARL: "00" * 64, ClientId("dora"): ""}), "for dora"),
    "with another box": (lambda e: replace(e, keys={**e.keys, CARL: "00" * 80}), "has not signed it for carl"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_envelope_is_refused_where_it_was_made(bad: str) -> None:
    """The coordinator says so to its sender, before any reader has to."""
    change, words = BAD[bad]
    row = reply_changed(lambda envelopes: tuple(map(change, envelopes)))
    assert row.failure is not None
    assert words in row.failure.what
    assert "look at the coordinator" not in row.failure.what, "its maker is to blame"
    missing = reply_changed(lambda envelopes: ())
    assert missing.failure is not None
    assert "not those that its root names" in missing.failure.what


def test_keys_may_be_rotated_amid_a_run() -> None:
    """Peers follow; what was sealed to the old keys is opened with them."""
    on = stage()
    run = on.start(given(rounds=4))
    orders_with_values(on, run, 3)
    rotated(on, BERT)
    row = on.play(run)
    assert row.status is Status.COMPLETED, row.cause


def test_a_client_whose_keys_are_of_no_use_is_refused_at_the_start() -> None:
    """One from before that was looked at."""
    on = stage()
    bert = on.run_service.enrolment.find(BERT)
    assert on.journal.rekey(BERT, bert.sign_key, Keys(bert.sign_key, LOW_ORDER[0]))
    with pytest.raises(RosterRefused, match="bert has a key to receive that is none, or of low order") as refusal:
        on.start(given())
    assert refusal.value.context["path"] == "roster.bert"


def test_a_site_may_forbid_peers() -> None:
    """By its policy, as any other clause: it joins no such run."""
    shut = {name: SimSite(site.open_site_data, frozenset()) for name, site in sites().items()}
    result = simulate(METHODS, given(), shut)
    assert result["status"] == "stalled"
    assert "sends value.v (n) as WEIGHTS to peers" in result["cause"]
    assert ciphers(()) == ()
