"""Plans of links at a real coordinator: made beside its worker, in processes that end with the answer, or with it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.acceptance.harness import COORDINATOR, Net, net
from tests.planning.cases import MEASURED, changed, device
from tideline.client.http import Client, Endpoint
from tideline.core.errors import ConfigRefused, FederationError
from tideline.planning.links import plan_links

pytestmark = pytest.mark.processes


def planners(federation: Net) -> list[psutil.Process]:
    """The processes of plans that the coordinator has."""
    children = psutil.Process(federation.running[COORDINATOR].pid).children()
    return [each for each in children if each.status() != psutil.STATUS_ZOMBIE and "tideline_server.planner" in each.cmdline()]


def hard(N: int = 200) -> dict[str, Any]:
    """A question that takes many seconds: everybody may be a source, and no number is like another."""
    rng = np.random.default_rng(1)
    devices = [{"name": f"d{i}", "S": s} for i, s in enumerate(rng.uniform(1, 2, N).round(3).tolist())]
    T = rng.uniform(10, 60, (N, N)).round(3).tolist()
    return {"devices": devices, "T": T, "phi": {"source": 10.0}, "seconds": 20.0}


def test_a_coordinator_plans_links(coordinator: Net) -> None:
    """As the formulas do, which the coordinator's own process does not load."""
    asked = changed(MEASURED, sweep=[0.1, 10.0])
    assert coordinator.client().post("/links/plan", asked) == plan_links(asked)
    with pytest.raises(ConfigRefused) as caught:
        coordinator.client().post("/links/plan", device(2, labelled=2000))
    assert caught.value.context["path"] == "devices[2].labelled" and caught.value.context["devices"] == ["carl"]
    assert not planners(coordinator)
    loaded = {
        part for each in psutil.Process(coordinator.running[COORDINATOR].pid).memory_maps() for part in Path(each.path).parts
    }
    assert "numpy" in loaded and not loaded & {"scipy", "cvxpy", "clarabel", "torch"}


@pytest.mark.nightly(job="journeys")
def test_a_long_plan_holds_up_nobody(tmp_path: Path) -> None:
    """The worker and the doors answer while it is made, one place is left, and it ends with the coordinator."""
    with net(tmp_path) as federation:
        federation.coordinator()
        told: list[FederationError] = []

        def ask() -> None:
            with pytest.raises(FederationError) as caught, Client.of(Endpoint(home=federation.folder)) as own:
                own._ask("POST", "/links/plan", json=hard())
            told.append(caught.value)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        threads[0].start()
        federation.until(lambda: len(planners(federation)) == 1, "the plan to begin")
        (planner,) = planners(federation)
        federation.until(lambda: planner.nice() > 0, "the plan to stand behind all else")
        assert federation.client().get("/algorithms") and federation.client().post("/links/plan", MEASURED)["alpha"]
        assert planner.is_running() and not told
        threads[1].start()
        federation.until(lambda: len(planners(federation)) == 2, "the other plan to begin")
        with pytest.raises(FederationError, match="as there is room for"):
            federation.client()._ask("POST", "/links/plan", json=MEASURED)
        federation.running[COORDINATOR].send_signal(signal.SIGTERM)
        federation.running[COORDINATOR].wait(30)
        for thread in threads:
            thread.join(30)
        assert len(told) == 2 and not planner.is_running()
