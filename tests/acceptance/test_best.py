"""A run that selects, over the network: the best models lie where a simulation has them, whoever was killed on the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import COORDINATOR, Net
from tests.acceptance.test_same_bytes import simulated, without_traffic
from tests.engine import peaks
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.run import ClientId, RunId
from tideline.engine.coordinator.scores import scored_state
from tideline.engine.ports.site import Head
from tideline.engine.simulation.federation import Federation
from tideline_agent.vault import FolderVault

pytestmark = pytest.mark.processes
NETWORK_TOLD = ("selection", "scores", "recall", "state_digest", "notes")


def experiment(**config: Any) -> dict[str, Any]:
    given = {"method": "peaks", "world": WORLD, "roster": SITES, "selection": "accuracy", "scores": "every", "seed": 5}
    return {**given, "config": config}


def at_home(federation: Net, name: str, run: str) -> tuple[Head, float]:
    """What an agent's disk knows of the best round: its head, and the count in the memory that it kept."""
    vault = FolderVault(federation.home_of(f"home-{name}") / "runs")
    head = vault.head(RunId(run))
    assert head is not None and head.best is not None
    memory = decode(peaks.Mine, head.best.memory[0][0], vault.parts(RunId(run)), LAX)
    return head, float(memory.w)


def in_process(local: Federation, name: str, run: str) -> Head:
    head = local.agents[ClientId(name)].vault.head(RunId(run))
    assert head is not None
    return head


def compared(federation: Net, run: str, local: Federation, here_run: str, peak: int) -> None:
    """The best state and memories of both are the same files, and are there."""
    for name in SITES:
        head, count = at_home(federation, name, run)
        assert head.best == in_process(local, name, here_run).best and count == peak
    listed = federation.client().get(f"/runs/{run}/files?which=best")
    best = local.run_service.find(RunId(here_run)).best
    assert best is not None
    state = scored_state(local.journal.rounds(RunId(here_run)), best)
    assert [tuple(file) for file in listed["files"]] == list(state)
    for digest, size in listed["files"]:
        assert sum(map(len, federation.client().download(f"/parts/{digest}?run={run}"))) == size


def told(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in NETWORK_TOLD}


@pytest.mark.parametrize("peak", [2, 4])
def test_the_best_over_the_network(federation: Net, data: dict[str, Path], peak: int) -> None:
    methods = peaks.METHODS
    given = experiment(peak=peak)
    run = federation.run(given)
    there = federation.completed(run)
    local, here_run, here = simulated(data, given, methods)
    assert told(there) == told(here) and without_traffic(there) == without_traffic(here)
    assert there["selection"]["best"]["round"] == peak
    compared(federation, run, local, here_run, peak)


def test_the_best_after_kills(federation: Net, data: dict[str, Path]) -> None:
    """A site and the coordinator are killed after the best round, and go on; the site that was not asked since kept its own."""
    given = experiment(peak=2, rounds=30)
    run = federation.run(given)
    federation.until(lambda: sum(p["name"] == "score" for p in federation.result(run)["phases"]) >= 3, "three scorings")
    for name in ("a", COORDINATOR):
        federation.restart(name)
    there = federation.completed(run)
    local, here_run, here = simulated(data, given, peaks.METHODS)
    assert told(there) == told(here)
    compared(federation, run, local, here_run, 2)
