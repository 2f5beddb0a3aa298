"""A coordinator that lies to an agent is told so; the agent lives on, leaves all else alone, and serves the next honest order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.acceptance.conftest import WORLD, write_blobs
from tests.acceptance.harness import Net, net
from tests.acceptance.hostile.false_coordinator import FalseCoordinator
from tests.acceptance.hostile.orders import ORDERS
from tests.synthetic import sites
from tideline.algorithms import METHODS
from tideline.core.run import ClientId
from tideline.engine.simulation.federation import Federation
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.rpc.wire import order_out

pytestmark = pytest.mark.processes


class Victim:
    """An agent whose coordinator is false, and what it answers."""

    def __init__(self, coordinator: FalseCoordinator, net: Net) -> None:
        self.coordinator, self.net, self._count = coordinator, net, 0

    def honest(self) -> pb.Order:
        """What a coordinator of ours would ask, each time in a run of its own."""
        federation = Federation(METHODS, sites())
        given = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"anna": "source"}}
        federation.start(given)
        (order,) = federation.agent_service.orders(ClientId("anna"))
        made = order_out(order)
        self._count += 1
        made.id, made.run = f"order-{self._count}", f"run-{self._count}"
        return made

    def outside(self) -> dict[str, int]:
        """Every file but those of the agent's own home, and when it was written."""
        own = self.net.home / "home-a"
        found = [path for path in self.net.home.rglob("*") if own not in (path, *path.parents) and path.suffix != ".log"]
        return {str(path): path.stat().st_mtime_ns for path in found}


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """An agent that has joined a run of the false coordinator, as it would any."""
    home = tmp_path_factory.mktemp("victim")
    with closing(FalseCoordinator()) as coordinator, net(home) as processes:
        processes.ports["coordinator"] = coordinator.port, 0
        processes.start("a", *processes.agent_command("a", write_blobs(home / "data", 0), "source", "secret"))
        made = Victim(coordinator, processes)
        assert json.loads(coordinator.answered(made.honest()).facts) == {"labelled": True}
        yield made


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_that_lies(victim: Victim, name: str) -> None:
    """It is answered with a reason, nothing outside the home changes, and the next honest order is served by the same process."""
    lie, before = ORDERS[name], victim.outside()
    victim.coordinator.parts = list(lie.parts)
    failure = victim.coordinator.answered(lie.alter(victim.honest())).failure
    assert (failure.kind, lie.words in failure.what) == (lie.kind, True), failure
    assert victim.outside() == before
    assert json.loads(victim.coordinator.answered(victim.honest()).facts) == {"labelled": True}
    assert victim.net.running["a"].poll() is None


@pytest.mark.smoke
def test_a_receipt_that_asks_for_more(victim: Victim) -> None:
    """Of what lies at a site, only files of the reply can be asked for, whatever a receipt names. Chunk sizes do no harm."""
    for digest in ("../../keys.json", "b3-" + "0" * 64):
        missing = [pb.Missing(digest=digest, offset=(1 << 64) - 1)]
        victim.coordinator.receipts.put(pb.Receipt(verdict="missing", missing=missing, chunk=(1 << 32) - 1))
        order = victim.honest()
        victim.coordinator.answered(order)
        second = victim.coordinator.reported(order)
        failure = second.failure if second else None
        assert failure is not None
        assert failure.kind == "NotFound" and "names no part" in failure.what
    assert json.loads(victim.coordinator.answered(victim.honest()).facts) == {"labelled": True}


def test_an_order_that_never_ends(victim: Victim) -> None:
    """Told again and again, with a deadline beyond all time, it is answered and done once; others are served beside it."""
    order = victim.honest()
    order.seconds_left = float("inf")
    first, again = victim.coordinator.answered(order), victim.coordinator.answered(order)
    again.ledger.CopyFrom(first.ledger)  # it has gone on: each answer is an entry
    again.stages.CopyFrom(first.stages)  # how long ago it was is told anew
    assert again == first
    assert json.loads(victim.coordinator.answered(victim.honest()).facts) == {"labelled": True}
