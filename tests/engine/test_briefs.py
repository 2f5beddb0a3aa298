"""What an order says of its run fits into what an agent reads of it: with many peers, and with peers that rotated often."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.handovers import handed_over
from tests.engine.sealing_stage import BERT, given, stage
from tideline.core.errors import PeerRefused, RosterRefused
from tideline.core.handle import Handle
from tideline.core.run import ClientId, Digest, Role
from tideline.engine.model.accounts import Client, Handover, Keys
from tideline.engine.model.brief import MOST_BRIEF, MOST_SITES, brief_of, check_room, peers_in, plain_peer, with_peers
from tideline.engine.model.orders import Envelope
from tideline.engine.model.runs import RunRow
from tideline.engine.model.transitions import MOST_HANDOVERS
from tideline.engine.peers.peer_keys import MemoryPins, PeerKeys, Pin, fresh, shown
from tideline.engine.peers.sealing import sealed_out
from tideline_agent.link.wire import brief_in
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.rpc.wire import MOST_BYTES, reply_in

SIGNED = Handover(Keys("cc" * 32, "dd" * 32), "ee" * 64)
UNSIGNED = Handover(Keys("aa" * 32, "bb" * 32), "")


def client(name: str, *handovers: Handover) -> Client:
    """An enrolled client."""
    row = Client(ClientId(name), ("peer",), {}, "1", 0.0, 0.0, "cc" * 32, "dd" * 32)
    return replace(row, handovers=handovers)


def run_of(names: list[str]) -> RunRow:
    """A run of three sites, as if it were of these."""
    on = stage()
    return replace(on.row(on.start(given())), roster=dict.fromkeys(map(ClientId, names), Role.SOURCE))


def told(run: RunRow, clients: list[Client]) -> dict[str, Any]:
    """What an agent reads of the peers."""
    text = json.dumps(with_peers(brief_of(run, Role.TARGET, "9.9"), clients))
    assert len(text) <= MOST_BRIEF
    return dict(brief_in(text)["peers"])


def numbered(count: int) -> list[str]:
    """So many names, as long as names may be."""
    return [f"{n:064}" for n in range(count)]


def test_a_few_peers_are_told_with_all_their_handovers() -> None:
    """All that are signed, in their order; the first keys that a client had follow from none."""
    line = [replace(SIGNED, keys=Keys(f"{n:064x}", "dd" * 32)) for n in range(MOST_HANDOVERS)]
    found = told(run_of(["ann", "bob"]), [client("ann", UNSIGNED, *line), client("bob")])
    assert [each["sign"] for each in found["ann"]["handovers"]] == [each.keys.sign for each in line]
    assert found["bob"]["handovers"] == []
    assert peers_in({"peers": found})[ClientId("ann")].handovers == tuple(line)


@pytest.mark.parametrize("count", [100, 400, 1000])
def test_of_many_peers_the_newest_handovers_are_told(count: int) -> None:
    """As many of each as fit for all; and there is no room for one more of each."""
    names = numbered(count)
    run, line = run_of(names), [replace(SIGNED, keys=Keys(f"{n:064x}", "dd" * 32)) for n in range(MOST_HANDOVERS)]
    found = told(run, [client(name, *line) for name in names])
    assert sorted(found) == names
    (told_of_each,) = {len(each["handovers"]) for each in found.values()}
    assert 0 < told_of_each < MOST_HANDOVERS
    newest = [each.keys.sign for each in line[-told_of_each:]]
    assert all([h["sign"] for h in each["handovers"]] == newest for each in found.values())
    text = json.dumps({**brief_of(run, Role.TARGET, "9.9"), "peers": found})
    assert len(text) + count * len(json.dumps(found[names[0]]["handovers"][0])) > MOST_BRIEF


def test_as_many_sites_as_fit() -> None:
    """A roster of the limit is told in full, without handovers; one more is refused, with the number that fits."""
    too_many = run_of(numbered(5000))
    with pytest.raises(RosterRefused, match=r"The keys of 5000 sites, which seal for each other, do not fit") as refusal:
        check_room(too_many)
    most = int(refusal.value.todo.split()[3])
    assert refusal.value.context["path"] == "roster" and refusal.value.todo == f"Name at most {most} sites"
    check_room(run_of(numbered(most)))
    with pytest.raises(RosterRefused):
        check_room(run_of(numbered(most + 1)))
    found = told(run_of(numbered(most)), [client(name, SIGNED) for name in numbered(most)])
    assert len(found) == most and most == MOST_SITES


def test_a_value_that_is_sealed_to_all_sites_fits_into_a_reply() -> None:
    """Of as many sites as there may be, with the longest names."""
    names = numbered(MOST_SITES)
    handle = Handle[object]("b3-" + "0" * 64, 1, ClientId(names[0]), "p" * 64, 1)
    boxes, signed = dict.fromkeys(map(ClientId, names), "0" * 160), dict.fromkeys(map(ClientId, names), "0" * 128)
    request = pb.ReportRequest(
        order="b3-" + "0" * 64, sealed=[sealed_out(Envelope(handle, Digest("b3-" + "0" * 64), 17, boxes, signed), pb.Sealed())]
    )
    assert 0.9 * MOST_BYTES[pb.ReportRequest] < request.ByteSize() < 0.98 * MOST_BYTES[pb.ReportRequest]
    (brought,) = reply_in(request.SerializeToString()).sealed
    assert len(brought.keys) == len(brought.signatures) == MOST_SITES


def test_a_roster_that_does_not_fit_is_refused_at_its_submission() -> None:
    """Whoever is enrolled of it already; one of the limit waits for its sites."""
    on = stage()
    experiment = given() | {"roster": dict.fromkeys(numbered(5000), "peer")}
    with pytest.raises(RosterRefused, match="do not fit into an order") as refusal:
        on.start(experiment)
    most = int(refusal.value.todo.split()[3])
    assert on.start(experiment | {"roster": dict.fromkeys(numbered(most), "peer")})


def test_who_has_not_looked_for_longer_asks() -> None:
    """A site whose pin is older than what it is told refuses the peer, and follows from any that is told."""
    keys = [fresh() for _ in range(6)]
    line = [handed_over(BERT, old, new) for old, new in itertools.pairwise(keys)]
    row = replace(client(BERT, *line), sign_key=keys[-1].public.sign, receive_key=keys[-1].public.receive)
    peers = peers_in({"peers": {BERT: plain_peer(row, 2)}})
    for at, own in enumerate(keys):
        ring = PeerKeys(fresh, MemoryPins({BERT: Pin(own.public, shown(own.public))}))
        if at < 3:
            with pytest.raises(PeerRefused):
                ring.trust(peers)
        else:
            assert ring.trust(peers)[BERT].keys == keys[-1].public
