"""Real agents that compute as their run says, and the result, the ledger and the logs that say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.harness import net
from tests.acceptance.test_prior import WORLD, ward
from tests.cli.world import tide_process
from tideline.algorithms import METHODS
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.folder import read_folder
from tideline.nets import registry

pytestmark = pytest.mark.processes
NETWORK = "tests.engine.test_computing:NETWORKS"
SITES = ("anna", "bert")
SHARES = (0.4, 0.3, 0.3)


def test_a_run_in_bfloat16_by_halves(tmp_path: Path) -> None:
    """Over real processes and in one: the same bytes. Mini-batches have no room at first, and each site says so."""
    computing = {"precision": "bfloat16", "accumulate": 2, "deterministic": "yes"}
    asked = {"method": "fedavg", "config": {"rounds": 2, "batch": 14}, "seed": 3, "computing": computing}
    asked |= {"world": {**WORLD, "model": "cramped"}, "roster": dict.fromkeys(SITES, "source")}
    own = ("--networks", NETWORK)
    with net(tmp_path) as made:
        made.coordinator(*own)
        for i, name in enumerate(SITES):
            made.agent(name, ward(tmp_path / name, i, SHARES), "source", *own, "--gpu-memory", "0.5")
        result = made.completed(made.run(asked))
        assert all("batch_halved" in made.log(name) for name in SITES)
        told = tide_process("site", "ledger", "list", "--home", tmp_path / "home-anna", "--json")
    assert result["computing"] == {**computing, "compile": False}
    mine = {"device": "cpu", "precision": "bfloat16", "deterministic": True}
    assert [each["computing"] for each in result["clients"]] == [mine, mine]
    (begun,) = [entry for entry in json.loads(told.stdout) if "computing" in json.dumps(entry)]
    assert "bfloat16" in json.dumps(begun)
    registry.use([NETWORK])
    try:
        there = Federation(METHODS, {n: SimSite(lambda w, r, n=n: read_folder(tmp_path / n, w, r)) for n in SITES})
        assert there.run(there.start(asked))["state_digest"] == result["state_digest"]
    finally:
        registry.use([])
