"""The sites of a run whose sites seal for each other are those that it began with: nobody else is sealed to later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.passing import ALL
from tests.engine.sealing_stage import ANNA, answered_to, given, orders_with_values, owner, stage
from tests.laws.stage import ROLES, Stage, WatchedVault, ready
from tests.synthetic import sites
from tideline.core.errors import Malformed, PeerRefused
from tideline.core.run import ClientId
from tideline.engine.coordinator.enrolment import Applicant
from tideline.engine.model.brief import brief_in
from tideline.engine.model.orders import Order
from tideline.engine.model.runs import JOIN, Status
from tideline.engine.peers.peer_keys import Known, MemoryPins, PeerKeys, Pins, fresh
from tideline.engine.ports.site import Head
from tideline.engine.site.agent import new_peer_keys
from tideline.engine.site.remembered import members
from tideline_agent.vault import FolderVault


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
    head = on.vaults[ANNA].head(run)
    assert head is not None
    assert head.peers == ALL
    assert members_of(order, replace(head, peers=None)) == ALL
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
