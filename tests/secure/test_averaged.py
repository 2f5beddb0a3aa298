"""A run over masks ends in the digest of the run without them, on the same grid; and it learns what FedAvg learns."""

from __future__ import annotations

from typing import Any

import pytest

from tests.secure.averaged import METHODS
from tests.synthetic import NAMES, experiment, sites
from tideline.algorithms import METHODS as REGISTRY
from tideline.engine.simulation.federation import simulate

ROSTER = {name: "target" if name == NAMES[-1] else "source" for name in NAMES}


def played(method: str, weighting: str = "samples") -> dict[str, Any]:
    """A result."""
    config = {"rounds": 2, "epochs": 1, "batch": 16, "rate": 0.05, "weighting": weighting}
    return simulate((*REGISTRY, *METHODS), experiment(method, ROSTER, config=config), sites(NAMES))


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_masks_change_nothing_of_a_run(weighting: str) -> None:
    plain, masked, exact = (played(method, weighting) for method in ("plain", "masked", "fedavg"))
    assert plain["state_digest"] == masked["state_digest"] != exact["state_digest"]
    assert plain["curve"] == masked["curve"]
    assert abs(plain["curve"][-1]["accuracy"] - exact["curve"][-1]["accuracy"]) < 0.02


def test_nor_where_sites_drop_out() -> None:
    """One of four in every other round, after its shares and before its values."""
    plain, masked = played("plain_losing"), played("masked_losing")
    assert plain["state_digest"] == masked["state_digest"] != played("plain")["state_digest"]
