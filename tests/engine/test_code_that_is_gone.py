"""A coordinator that lacks the code of a run that has begun leaves it alone, and ends it not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.synthetic import experiment, sites
from tideline.algorithms import METHODS
from tideline.core.errors import Unreachable
from tideline.engine.model.runs import Status
from tideline.engine.simulation.federation import Federation
from tideline.nets import registry

ROSTER = {"anna": "source", "bert": "source"}
NETWORKS = "tests.nets.foreign:NETWORKS"
WORLD = {"inputs": [8], "classes": 3, "model": "sequence"}


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    registry.use([NETWORKS])
    yield
    registry.use([])


def test_a_network_that_the_operator_forgot() -> None:
    """The run goes on, to the same end, once it is there again."""
    on, other = Federation(METHODS, sites()), Federation(METHODS, sites())
    given = {**experiment("fedavg", ROSTER), "world": WORLD}
    end = other.run(other.start(given))["state_digest"]
    run = on.start(given)
    for agent in on.agents.values():
        for order in on.agent_service.orders(agent.name):
            agent.handle(order)
    registry.use([])
    with pytest.raises(Unreachable, match=r"cannot go on here: world\.model is 'sequence'") as away:
        on.scheduler.turn(run)
    assert "--networks" in away.value.todo and on.run_service.find(run).status in (Status.WAITING, Status.RUNNING)
    registry.use([NETWORKS])
    assert on.run(run)["state_digest"] == end
