"""Values for peers, end to end in one process: sealed, relayed, opened."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.handovers import rotated
from tests.engine.low_order import LOW_ORDER
from tests.engine.passing import ALL, CANARY
from tests.engine.present import present
from tests.engine.sealing_stage import ANNA, BERT, CARL, METHODS, answered_to, given, orders_with_values, owner, played, stage
from tests.laws.stage import ROLES, Cuts, Stage, WatchedVault, ready
from tests.synthetic import sites
from tideline.archive import sealing
from tideline.archive.errors import SealBroken
from tideline.core.errors import Malformed, NotFound, PeerRefused, RosterRefused
from tideline.core.handle import Handle
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.engine.coordinator.enrolment import Applicant
from tideline.engine.model.accounts import Keys
from tideline.engine.model.brief import brief_in
from tideline.engine.model.orders import Envelope, Order, OrderRow, Reply
from tideline.engine.model.runs import JOIN, Status
from tideline.engine.peers.peer_keys import Known, MemoryPins, PeerKeys, Pins, fresh, raw
from tideline.engine.peers.sealing import about, ciphers, sealed_in, sealed_out
from tideline.engine.ports.site import Head
from tideline.engine.simulation.federation import SimSite, simulate
from tideline.engine.site.agent import new_peer_keys
from tideline.engine.site.remembered import members
from tideline_agent.link.wire import order_in, reply_out
from tideline_agent.vault import FolderVault
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.rpc.wire import order_out, reply_in


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
    assert on.play(run).state_digest == digest and len(cuts.reached) > 100


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
    assert max(map(len, seen)) <= 4 and all(1 in rounds for rounds in seen if max(rounds, default=0) > 1)
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
    return present(on.journal.order(order.id))


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
    assert row.failure is not None and words in row.failure.what
    assert "look at the coordinator" not in row.failure.what, "its maker is to blame"
    missing = reply_changed(lambda envelopes: ())
    assert missing.failure is not None and "not those that its root names" in missing.failure.what


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
    assert result["status"] == "stalled" and "sends value.v (n) as WEIGHTS to peers" in result["cause"]
    assert ciphers(()) == ()


# The sites of a run whose sites seal for each other are those that it began with: nobody else is sealed to later.


def with_peers(order: Order, names: Iterable[str]) -> Order:
    """An order that shows these sites: those that it has not, with keys of the coordinator's making."""
    made = fresh().public
    shown = {n: order.brief["peers"].get(n, {"sign": made.sign, "receive": made.receive, "handovers": []}) for n in names}
    return replace(order, brief={**order.brief, "peers": shown})


@pytest.mark.parametrize("number", [2, 3])
def test_a_newcomer_is_refused(number: int, tmp_path: Path) -> None:
    """Nothing is sealed to it, and nobody keeps its keys; what the site remembers lies on its disk."""
    on = stage()
    on.vaults[ANNA] = FolderVault(tmp_path)  # type: ignore[assignment]
    on.rebuild()
    run = on.start(given(rounds=4))
    order = next(o for o in orders_with_values(on, run, number) if owner(on, o.id) == ANNA)
    on.vaults[ANNA] = FolderVault(tmp_path)  # type: ignore[assignment]
    on.rebuild()
    words = answered_to(on, with_peers(order, (*ALL, "mallory")))
    assert words.startswith(
        "mallory is shown as a site of this run, and was none when it began. Ask whoever runs the coordinator"
    )
    assert ClientId("mallory") not in on.peer_keys_of[ANNA].pins.read()
    on.rebuild()
    stalled = on.play(run)
    assert (stalled.status, "mallory is shown" in stalled.cause) == (Status.STALLED, True)
    on.run_service.resume(run)
    assert on.play(run).status is Status.COMPLETED


def members_of(order: Order, head: Head | None) -> tuple[ClientId, ...] | None:
    """The run's sites, as an agent with this head takes them from an order."""
    return members(order, brief_in(order), head)


def test_a_record_of_before_learns_the_sites_at_the_next_order() -> None:
    """An agent may be of a newer version than its home; and a site may be missing later."""
    on = stage()
    run = on.start(given())
    order = next(o for o in orders_with_values(on, run, 2) if owner(on, o.id) == ANNA)
    head = present(on.vaults[ANNA].head(run))
    assert head.peers == ALL and members_of(order, replace(head, peers=None)) == ALL
    assert members_of(with_peers(order, ALL[:2]), head) == ALL
    assert members_of(with_peers(order, (*ALL, "mallory")), None) == (*ALL, "mallory")
    assert members_of(replace(with_peers(order, (*ALL, "mallory")), cursor=JOIN), None) is None
    assert members_of(replace(with_peers(order, (*ALL, "mallory")), cursor=JOIN), head) == ALL
    with pytest.raises(PeerRefused) as refusal:
        members_of(with_peers(order, (*ALL, "mallory")), head)
    assert refusal.value.context["peer"] == "mallory"


def test_to_join_again_is_no_new_beginning() -> None:
    """A coordinator that says of a method that it keeps nothing has a site join anew; its sites stay those that they were."""
    on = stage()
    run = on.start(given(rounds=4))
    order = next(o for o in orders_with_values(on, run, 3) if owner(on, o.id) == ANNA)
    place = {"cursor": JOIN, "phase": "join", "step": "join", "round": 1, "after": JOIN - 1, "files": (), "sealed": ()}
    again = replace(order, **place, brief={**order.brief, "keeps": False})  # type: ignore[arg-type]
    with pytest.raises(Malformed, match="keeps nothing at sites, which is not so"):
        ready(on.agents[ANNA], again)
    with pytest.raises(PeerRefused, match="mallory is shown as a site of this run, and was none when it began"):
        ready(on.agents[ANNA], replace(with_peers(order, (*ALL, "mallory")), after=JOIN))


def test_peers_are_looked_at_once_for_all_values_of_an_order() -> None:
    """With hundreds of sites a look takes long, and an order may bring a value of each."""
    on = stage()
    run = on.start(given())
    order = next(o for o in orders_with_values(on, run) if owner(on, o.id) == ANNA)
    pins = CountedPins(on.peer_keys_of[ANNA].pins)
    on.peer_keys_of[ANNA] = PeerKeys(on.peer_keys_of[ANNA].own, pins)
    on.rebuild()
    one = replace(order, sealed=order.sealed[:1])
    on.agents[ANNA].open(one, brief_in(one))
    first = pins.reads
    on.agents[ANNA].open(order, brief_in(order))
    assert len(order.sealed) > 1 and pins.reads == 2 * first == 2


def test_a_site_may_enrol_when_the_others_have_joined() -> None:
    """The roster names it from the beginning; the others are shown its keys when it is there."""
    on, late = stage(), ClientId("dora")
    run = on.start(given() | {"roster": dict.fromkeys((*ALL, late), "peer")})
    on.scheduler.turn(run)
    for name in ALL:
        (order,) = on.agent_service.orders(name)
        assert late not in order.brief["peers"]
        on.handle(order)
    enrolled(on, late)
    row = on.play(run)
    assert row.status is Status.COMPLETED, row.cause
    heads = [on.vaults[name].head(run) for name in (*ALL, late)]
    assert {head.peers for head in heads if head} == {(*ALL, late)}


class CountedPins(MemoryPins):
    """Pins that count how often they are read."""

    def __init__(self, like: Pins) -> None:
        super().__init__(like.read())
        self.reads = 0

    def read(self) -> Known:
        self.reads += 1
        return super().read()


def enrolled(on: Stage, name: ClientId) -> None:
    """One more site."""
    on.sites = sites((*ALL, name))
    on.vaults[name], on.peer_keys_of[name] = WatchedVault(on.cuts), new_peer_keys()
    on.rebuild()
    on.run_service.enrolment.admit(
        on.run_service.invite(name, {}, 60.0), Applicant(name, ROLES, "test", on.peer_keys_of[name].own().public)
    )


# An envelope over the wire: both ends write and read the same message.
ANN, BOB = ClientId("ann"), ClientId("bob")
HANDLE: Handle[object] = Handle("b3-" + "d" * 64, 2**40, ANN, "train", 7)
ENVELOPE = Envelope(HANDLE, Digest("c" * 64), 2**40 + 48, {ANN: "ab" * 80, BOB: "cd" * 80}, {ANN: "ef" * 64, BOB: "01" * 64})
EMPTY = Envelope(HANDLE, Digest("c" * 64), 48, {}, {})


def test_an_envelope_comes_back() -> None:
    """With all that is in it, also where that is nothing."""
    for envelope in (ENVELOPE, EMPTY):
        assert sealed_in(pb.Sealed.FromString(sealed_out(envelope, pb.Sealed()).SerializeToString())) == envelope


def test_replies_and_orders_bring_envelopes() -> None:
    """What an agent reports the coordinator reads, and what the coordinator hands out the agent reads."""
    reply = Reply(OrderId("order"), sealed=(ENVELOPE, EMPTY))
    assert reply_in(reply_out(reply).SerializeToString()).sealed == reply.sealed
    order = Order(OrderId("order"), RunId("run"), 3, "train", "work", 4, (), 1, 2, 9.0, {}, (ENVELOPE, EMPTY))
    assert order_in(pb.Order.FromString(order_out(order).SerializeToString())).sealed == order.sealed
