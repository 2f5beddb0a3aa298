"""ST-LF over the network: processes killed in the middle of the tournament of pairs, and rates that are measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import Net
from tideline.algorithms import METHODS
from tideline.engine.simulation.federation import SimSite, simulate
from tideline.learning.formats.folder import read_folder

pytestmark = pytest.mark.processes


def experiment(**config: Any) -> dict[str, Any]:
    """Two devices with labels, and one without."""
    given = {"method": "stlf", "preset": "tiny", "config": config, "world": WORLD, "roster": SITES, "seed": 3}
    return given | {"reference": None}


@pytest.mark.nightly(job="journeys")
def test_kills_in_the_middle_of_the_tournament(federation: Net, data: dict[str, Path]) -> None:
    """kill -9 of the coordinator and of two agents between exchanges: the same links and models as undisturbed, byte for byte."""
    given = experiment(exchanges=14, compare=["fedavg_alpha"])
    run = federation.run(given)
    for at, victim in ((4, "a"), (7, "coordinator"), (11, "c")):
        federation.until(lambda at=at: federation.result(run)["cursor"] >= at, f"exchange {at}")  # type: ignore[misc]
        federation.restart(victim)
    result = federation.completed(run)
    sites = {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r)) for n in SITES}
    there = simulate(METHODS, given, sites)
    assert result["state_digest"] == there["state_digest"]
    assert [p.get("tables") for p in result["phases"]] == [p.get("tables") for p in there["phases"]]


def test_rates_between_agents_are_measured(federation: Net) -> None:
    """From the tournament's own transfers; the report has them, and the joules are made of them."""
    run = federation.run(experiment(exchanges=3, measured=True, bits=0.0, watts=dict.fromkeys(SITES, 0.25)))
    result = federation.completed(run)
    tables = next(p for p in result["phases"] if p["name"] == "transfer")["tables"]
    table = tables["measured Mbit/s, from each to each"]
    assert all(rate > 0 for i, row in enumerate(table["values"]) for j, rate in enumerate(row) if i != j)
    assert all(0 < joules < 10 for _, joules in tables["links"]["values"])
