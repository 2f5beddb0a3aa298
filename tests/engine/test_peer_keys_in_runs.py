"""By which keys a site knows its peers: pinned at first, followed along handovers, believed for a while, trusted by a person."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from nacl.signing import SigningKey

from tests.engine.handovers import handed_over, peer, rotated
from tests.engine.low_order import LOW_ORDER
from tests.engine.passing import ALL
from tests.engine.present import present
from tests.engine.sealing_stage import ANNA, BERT, CARL, given, orders_with_values, owner, played, stage
from tests.laws.stage import Stage
from tideline.archive.errors import SealBroken
from tideline.core.errors import PeerRefused
from tideline.core.signing import handover_bytes
from tideline.engine.model.accounts import Handover, Keys, Peer
from tideline.engine.model.brief import peers_in
from tideline.engine.model.orders import Order
from tideline.engine.peers.peer_keys import (
    FORMER_SECONDS,
    MOST_FORMER,
    Former,
    Known,
    MemoryPins,
    PeerKeys,
    Pin,
    fresh,
    raw,
    shown,
)
from tideline.engine.peers.sealing import vouched


def test_keys_are_pinned_when_they_are_met() -> None:
    """Others follow by the old keys' signature alone; a person may say otherwise by the fingerprint."""
    on = stage()
    played(on)
    peer_keys = on.peer_keys_of[ANNA]
    known = peer_keys.pins.read()
    assert set(known) == set(ALL) and known[BERT].keys == on.peer_keys_of[BERT].own().public


def test_a_handover_is_followed_and_a_gap_is_not() -> None:
    """From keys to keys by signature: also over several, and from any of them on."""
    first, second, third = fresh(), fresh(), fresh()
    chain = (handed_over(BERT, first, second), handed_over(BERT, second, third))
    for pinned in (first, second, third):
        peer_keys = on_ring(pinned.public)
        peer_keys.trust({BERT: peer(third, *chain)})
        pin = peer_keys.pins.read()[BERT]
        assert pin.keys == third.public
        path = (first, second, third)
        assert [each.keys for each in pin.former] == [own.public for own in path[path.index(pinned) : 2]]
    for handovers in ((), chain[1:], chain[:1], (handed_over(CARL, first, third),), (handed_over(BERT, second, third),)):
        peer_keys = on_ring(first.public)
        with pytest.raises(PeerRefused, match="tideline site trust bert"):
            peer_keys.trust({BERT: peer(third, *handovers), CARL: peer(first)})
        assert CARL not in peer_keys.pins.read() and peer_keys.pins.read()[BERT].keys == first.public


def on_ring(keys: Keys) -> PeerKeys:
    """A ring that knows bert by these keys."""
    own = fresh()
    return PeerKeys(lambda: own, MemoryPins({BERT: Pin(keys, shown(keys))}))


def test_former_keys_are_believed_for_a_while() -> None:
    """From when others were first seen in their place; a run that goes on longer is told why, and what to do."""
    on = stage()
    run = on.start(given(rounds=4))
    order = next(o for o in orders_with_values(on, run, 3) if owner(on, o.id) == ANNA)
    rotated(on, BERT)
    now = [5000.0]
    on.peer_keys_of[ANNA] = PeerKeys(on.peer_keys_of[ANNA].own, on.peer_keys_of[ANNA].pins, lambda: now[0])
    on.rebuild()
    seen = next(o for o in on.agent_service.orders(ANNA) if o.id == order.id)
    on.peer_keys_of[ANNA].trust(peers_in(seen.brief))
    (former,) = on.peer_keys_of[ANNA].pins.read()[BERT].former
    assert former.until == 5000.0 + FORMER_SECONDS
    for at in (5000.0 + FORMER_SECONDS, 5000.0 - FORMER_SECONDS, 1e12):
        now[0] = at
        with pytest.raises(
            SealBroken, match=r"is signed by keys that it has replaced; they were believed until 1970-01-08"
        ) as old:
            vouched_by_bert(on, seen)
        assert "Begin the run again" in old.value.todo
    now[0] = 4999.0 + FORMER_SECONDS
    assert vouched_by_bert(on, seen)
    receipt = present(on.handle(seen))
    assert receipt.verdict == "accepted"


def vouched_by_bert(on: Stage, order: Order) -> bytes:
    """Anna looks at the value that bert made."""
    envelope = next(e for e in order.sealed if e.handle.holder == BERT)
    peer_keys = on.peer_keys_of[ANNA]
    return vouched(order, envelope, ANNA, peer_keys, peer_keys.trust(peers_in(order.brief)))


def test_keys_of_which_nobody_noted_when_they_were_replaced() -> None:
    """Their time begins when they are met next, and does not begin anew each time."""
    own, old, now = fresh(), fresh(), [100.0]
    pins = MemoryPins({BERT: Pin(own.public, shown(own.public), (Former(old.public),))})
    peer_keys = PeerKeys(fresh, pins, lambda: now[0])
    assert peer_keys.trust({BERT: peer(own)})[BERT].former == (Former(old.public, 100.0),)
    now[0] = 200.0
    assert peer_keys.trust({BERT: peer(own)})[BERT].believed(200.0) == (own.public, old.public)
    assert pins.read()[BERT].believed(100.0 + FORMER_SECONDS) == (own.public,)


def test_only_so_many_former_keys_are_remembered() -> None:
    """The newest, however often a peer rotates."""
    line = [fresh() for _ in range(MOST_FORMER + 3)]
    peer_keys = on_ring(line[0].public)
    for old, new in itertools.pairwise(line):
        peer_keys.trust({BERT: peer(new, handed_over(BERT, old, new))})
    assert [each.keys for each in peer_keys.pins.read()[BERT].former] == [own.public for own in line[2:-1]]


@pytest.mark.parametrize("receive", LOW_ORDER)
def test_keys_that_everybody_could_open_for_are_refused(receive: str) -> None:
    """When a peer is met, and when it has new ones that are handed over; the words name it, and what to do."""
    good = fresh()
    bad = Keys(good.public.sign, receive)
    signed = SigningKey(good.sign).sign(handover_bytes(BERT, *raw(bad))).signature
    for peer_keys, shown_with in (
        (PeerKeys(fresh, MemoryPins()), Peer(bad)),
        (on_ring(good.public), Peer(bad, (Handover(bad, signed.hex()),))),
    ):
        before = peer_keys.pins.read()
        with pytest.raises(PeerRefused, match=r"bert is shown with a key to receive .* of low order") as refusal:
            peer_keys.trust({BERT: shown_with})
        assert "tideline clients rotate bert" in refusal.value.todo and peer_keys.pins.read() == before


def test_a_fingerprint_that_is_too_short_is_asked_for_again() -> None:
    """It was all that the owner gave: the keys that are shown may have it, and so may others."""
    own = fresh()
    known = Pin(None, shown(own.public)[:19])
    peer_keys = PeerKeys(fresh, MemoryPins({BERT: known}))
    with pytest.raises(PeerRefused, match=r"trusts bert by 16 digits \(.{19}\), which are too few") as refusal:
        peer_keys.trust({BERT: peer(own)})
    assert f"tideline site trust bert '{shown(own.public)}'" in refusal.value.todo
    assert peer_keys.pins.read() == {BERT: known}


def test_an_owner_who_speaks_meanwhile_is_heard() -> None:
    """What a site works out of pins that were changed just then is worked out anew."""
    first, second = fresh(), fresh()
    peer_keys = on_ring(first.public)

    class Late(MemoryPins):
        """Pins that the owner changes between a look and a change."""

        def change(self, work: Callable[[Known], Known]) -> Known:
            self._pins[BERT] = Pin(None, shown(fresh().public))
            return super().change(work)

    peer_keys.pins = Late(peer_keys.pins.read())
    with pytest.raises(PeerRefused):
        peer_keys.trust({BERT: peer(second, handed_over(BERT, first, second))})
    assert peer_keys.pins.read()[BERT].keys is None
