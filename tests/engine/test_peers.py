"""Values for peers, end to end in one process: sealed, relayed, opened; and what becomes of lies on the way."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.engine import passing
from tests.engine.handovers import handed_over, peer, rotated
from tests.engine.passing import ALL, CANARY, Given, Value
from tests.laws.stage import Cuts, Stage
from tests.synthetic import FEATURES, sites
from tideline.archive import sealing
from tideline.archive.codec import decode, encode
from tideline.archive.errors import SealBroken
from tideline.core.errors import NotFound, PeerRefused, Refused, RosterRefused
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.engine.enrolment import Applicant
from tideline.engine.peers import MemoryPins, Pin, Ring, about, ciphers, fresh, raw, shown
from tideline.engine.rows import Envelope, Keys, Order, OrderRow, Status
from tideline.engine.simulate import SimSite, simulate

METHODS = passing.METHODS
ANNA, BERT, CARL = ALL


def stage(cuts: Cuts | None = None) -> Stage:
    """Three sites."""
    return Stage(METHODS, sites(), cuts)


def given(**config: Any) -> dict[str, Any]:
    """An experiment."""
    roster = dict.fromkeys(map(str, ALL), "peer")
    return {"method": "passing", "world": FEATURES, "roster": roster, "config": config, "seed": 7}


def played(on: Stage, **config: Any) -> RunId:
    """A run to its end."""
    run = on.start(given(**config))
    row = on.play(run)
    assert row.status is Status.COMPLETED, row.cause
    return run


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
        on.room.collect()
        if on.row(run).status is Status.RUNNING:
            seen.append({each.round for each in on.journal._sealed.get(run, {})})
    assert max(map(len, seen)) <= 4
    assert all(1 in rounds for rounds in seen if max(rounds, default=0) > 1)
    on.room.collect()
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
                    assert b"".join(map(bytes, on.desk.fetch(me, order.id, named)))
                    assert set(envelope.keys) == {me}
                else:
                    with pytest.raises(NotFound, match="names no part"):
                        list(on.desk.fetch(me, order.id, named))
                with pytest.raises(NotFound):
                    list(on.desk.fetch(me, order.id, [(Digest(envelope.handle.digest), 0)]))


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
        others = [on.rings[name].own().receive[0] for name in ALL if name != reader]
        assert not any(sealing.open_key(box, key) for key in (*others, *(key for pair in public for key in pair)))
        assert sealing.open_key(box, on.rings[reader].own().receive[0])
        for guess in (bytes(32), box[:32], box[-32:], *(key for pair in public for key in pair)):
            with pytest.raises(SealBroken):
                list(sealing.opened(on.parts.view(envelope.cipher), guess, about(run, envelope.handle)))


def owner(on: Stage, order: OrderId) -> ClientId:
    """Whose order it is."""
    row = on.journal.order(order)
    assert row is not None
    return row.client


def orders_with_values(on: Stage, run: RunId, rounds: int = 2) -> list[Order]:
    """The orders of the round from which on values are handed out."""
    for action in on.actions(run):
        on.alive(action)
        found = [o for o in on.waiting() if o.sealed and o.round == rounds]
        if found:
            return found
    raise AssertionError("no order hands a value out")


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
    box = sealing.seal_key(key, raw(on.rings[me].own().public)[1]).hex()
    return replace(envelope, cipher=cipher, keys={me: box}, signature=sealing.sign(what, cipher, sign).hex())


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
    "a key kept back": (without_key, "is not sealed to"),
    "a value kept back": (left_out, "does not bring it"),
    "a value of nobody": (of_a_stranger, "who is no peer of this run"),
    "another's keys": (other_keys, "is shown with other keys"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_on_the_way_is_found_by_the_receiver(lie: str) -> None:
    """Its answer says what is wrong with whose value; the run stalls with these words, and goes on when the lie is over."""
    tell, words = LIES[lie]
    on = stage()
    run = on.start(given())
    order = orders_with_values(on, run)[0]
    me = owner(on, order.id)
    original = on.agents[me].link.fetch
    on.agents[me].link.fetch = lying(on, original)  # type: ignore[method-assign]
    receipt = on.agents[me].handle(tell(on, order))
    assert receipt is not None
    row = on.journal.order(order.id)
    assert row is not None
    assert row.failure is not None
    assert words in row.failure.what, row.failure
    on.rebuild()
    stalled = on.play(run)
    assert stalled.status is Status.STALLED
    assert words in stalled.cause
    on.office.resume(run)
    assert on.play(run).status is Status.COMPLETED


def lying(on: Stage, fetch: Callable[..., None]) -> Callable[..., None]:
    """A relay that hands out whatever file is asked for, as one that is not to be trusted would."""

    def fetched(order: Order, files: Any, parts: Any) -> None:
        for digest, _ in files:
            parts.put([bytes(on.parts.view(digest))])

    return fetched


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
    row = on.journal.order(order.id)
    assert row is not None
    assert row.failure is not None


def answered_to(on: Stage, order: Order) -> str:
    """What a site answers to an order of a relay that lies: the words of its failure."""
    me = owner(on, order.id)
    on.agents[me].link.fetch = lying(on, on.agents[me].link.fetch)  # type: ignore[method-assign]
    on.agents[me].handle(order)
    row = on.journal.order(order.id)
    assert row is not None
    assert row.failure is not None, "the lie was believed"
    return row.failure.what


def renamed(on: Stage, order: Order, to: dict[str, tuple[str, int]]) -> Order:
    """An order whose root names other values under the same holders and exchange, and envelopes that vouch for none."""
    old = decode(Given, order.files[0][0], on.parts)
    values = {n: replace(h, digest=to[n][0], size=to[n][1], kind=None) for n, h in old.values.items()}
    sealed = tuple(replace(e, handle=values[e.handle.holder], signature="", keys={}) for e in order.sealed)
    return replace(order, files=encode(Given(values), on.parts).files, sealed=sealed)


def test_a_value_that_the_relay_made_itself_is_found() -> None:
    """Also where it lies at the site already, as a file of the message: that something is here does not say whose it is."""
    on = stage()
    run = on.start(given())
    order = orders_with_values(on, run)[0]
    forged = encode(Value(torch.full((8,), 666.0)), on.parts).files[0]
    lie = renamed(on, order, dict.fromkeys(ALL, forged))
    assert "does not name" in answered_to(on, replace(lie, files=(*lie.files, forged)))
    on.rebuild()
    on.office.resume(run) if on.play(run).status is Status.STALLED else None
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
    on = stage()
    run = on.start(given())
    order = orders_with_values(on, run)[0]
    assert "place 1 and round 77, which the run's plan has not" in answered_to(on, replace(order, round=77))


NAMES = ("c'; touch x", "a/b", "", "..", "a" * 65, "a\nb")


@pytest.mark.parametrize("name", NAMES)
def test_peers_have_names_that_clients_can_have(name: str) -> None:
    """They are shown to people, in a command that these may paste."""
    on = stage()
    run = on.start(given())
    order = orders_with_values(on, run)[0]
    told = on.agents[owner(on, order.id)].ring.own().public
    peers = {**order.brief["peers"], name: {"sign": told.sign, "receive": told.receive, "handovers": []}}
    words = answered_to(on, replace(order, brief={**order.brief, "peers": peers}))
    assert "tells of peers in a way that cannot be understood" in words


def test_keys_are_the_same_however_they_are_written() -> None:
    """Hexadecimal has two cases."""
    on = stage()
    run = on.start(given())
    order = orders_with_values(on, run)[0]
    loud = {n: {**p, "sign": p["sign"].upper(), "receive": p["receive"].upper()} for n, p in order.brief["peers"].items()}
    receipt = on.agents[owner(on, order.id)].handle(replace(order, brief={**order.brief, "peers": loud}))
    assert receipt is not None
    assert receipt.verdict == "accepted"


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
    "not signed": (lambda e: replace(e, signature=""), "has not signed it"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_envelope_is_refused_where_it_was_made(bad: str) -> None:
    """The coordinator says so to its sender, before any reader has to."""
    change, words = BAD[bad]
    row = reply_changed(lambda envelopes: tuple(map(change, envelopes)))
    assert row.failure is not None
    assert words in row.failure.what
    missing = reply_changed(lambda envelopes: ())
    assert missing.failure is not None
    assert "not those that its root names" in missing.failure.what


def test_keys_are_pinned_when_they_are_met() -> None:
    """Others follow by the old keys' signature alone; a person may say otherwise by the fingerprint."""
    on = stage()
    played(on)
    ring = on.rings[ANNA]
    known = ring.pins.read()
    assert set(known) == set(ALL)
    assert known[BERT].keys == on.rings[BERT].own().public


def test_a_handover_is_followed_and_a_gap_is_not() -> None:
    """From keys to keys by signature: also over several, and from any of them on."""
    first, second, third = fresh(), fresh(), fresh()
    chain = (handed_over(BERT, first, second), handed_over(BERT, second, third))
    for pinned in (first, second, third):
        ring = on_ring(pinned.public)
        ring.trust({BERT: peer(third, *chain)})
        pin = ring.pins.read()[BERT]
        assert pin.keys == third.public
        assert pin.former == tuple(own.public for own in (first, second, third)[(first, second, third).index(pinned) : 2])
    for handovers in ((), chain[1:], chain[:1], (handed_over(CARL, first, third),), (handed_over(BERT, second, third),)):
        ring = on_ring(first.public)
        with pytest.raises(PeerRefused, match="tideline site trust bert"):
            ring.trust({BERT: peer(third, *handovers), CARL: peer(first)})
        assert CARL not in ring.pins.read()
        assert ring.pins.read()[BERT].keys == first.public


def on_ring(keys: Keys) -> Ring:
    """A ring that knows bert by these keys."""
    own, pins = fresh(), MemoryPins()
    pins.write({BERT: Pin(keys, shown(keys))})
    return Ring(lambda: own, pins)


def test_keys_may_be_rotated_amid_a_run() -> None:
    """Peers follow; what was sealed to the old keys is opened with them."""
    on = stage()
    run = on.start(given(rounds=4))
    orders_with_values(on, run, 3)
    rotated(on, BERT)
    row = on.play(run)
    assert row.status is Status.COMPLETED, row.cause


def test_a_client_without_keys_is_refused_at_the_start() -> None:
    """Nothing could be sealed to it; the words say what to do."""
    on = stage()
    on.office.enrol(on.office.invite("dora", {}, 60.0), "dora", "a credential", ("peer",), "0.1")
    with pytest.raises(RosterRefused, match="dora speaks protocol 1 and has no keys"):
        on.start(given() | {"roster": {"anna": "peer", "dora": "peer"}})
    assert issubclass(PeerRefused, Refused)


def test_a_site_may_forbid_peers() -> None:
    """By its policy, as any other clause: it joins no such run."""
    shut = {name: SimSite(site.open_shelf, frozenset()) for name, site in sites().items()}
    result = simulate(METHODS, given(), shut)
    assert result["status"] == "stalled"
    assert "sends value.v (n) as WEIGHTS to peers" in result["cause"]
    assert ciphers(()) == ()


def test_who_applies_with_keys() -> None:
    """A simulated site is enrolled as a real one is."""
    assert Applicant("a", (), "").keys is None
