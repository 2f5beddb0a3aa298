"""A rehearsal over real agents: the bytes of a simulation, a restart in its middle, an owner who forbids it, and the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, WORLD, write_blobs
from tests.acceptance.harness import COORDINATOR, Net, net
from tests.acceptance.test_same_bytes import simulated
from tests.cli.world import tide_process
from tideline.core.run import RunId

pytestmark = pytest.mark.processes
SHORT = {"label": "short", "method": "fedavg", "config": {"rounds": 1}}
GIVEN: dict[str, Any] = {
    "world": {**WORLD, "model": "linear"},
    "config": {"rounds": 2, "rate": 0.1},
    "roster": SITES,
    "seed": 5,
    "rehearse": {"candidates": [SHORT]},
    "then": "run",
}


def without_runs(result: dict[str, Any]) -> dict[str, Any]:
    """Runs have other names there, and messages that say them other lengths."""
    return {key: value for key, value in result["verdict"].items() if key not in ("runs", "bytes")}


@pytest.mark.smoke
def test_a_network_gives_the_verdict_of_a_simulation(federation: Net, data: dict[str, Path]) -> None:
    """Every run of it ends in the same state, and the owners of a and b, who allow the role source alone, play all the same."""
    run = federation.run(GIVEN)
    there = federation.ended(run)
    local, here_run, here = simulated(data, GIVEN)
    assert there["status"] == here["status"] == "completed", there["cause"]
    assert there["state_digest"] == here["state_digest"]
    assert without_runs(there) == without_runs(here) and there["verdict"]["rehearsed_at"] == ["a", "b"]
    for row in local.run_service.family(RunId(here_run)):
        other = federation.result(row.id.replace(here_run, run))
        assert other["state_digest"] == row.state_digest, row.id


def test_a_coordinator_that_dies_in_its_middle_ends_it_alike(federation: Net, data: dict[str, Path]) -> None:
    run = federation.run({**GIVEN, "config": {"rounds": 6, "rate": 0.1}})
    federation.until(lambda: federation.result(run)["verdict"]["unfinished"] < 6, "some runs to end")
    federation.restart(COORDINATOR)
    there = federation.ended(run)
    here = simulated(data, {**GIVEN, "config": {"rounds": 6, "rate": 0.1}})[2]
    assert there["state_digest"] == here["state_digest"] and without_runs(there) == without_runs(here)


def test_the_commands(tmp_path: Path) -> None:
    """`adapt` shows gains, the choice, what to expect and what was found; `export` writes its model; an owner may forbid it."""
    (tmp_path / "policy.toml").write_text("[runs]\nrehearse = false\n")
    roster = {"anna": "source", "bert": "source", "carl": "source", "dora": "target"}
    with net(tmp_path) as made:
        made.coordinator()
        for i, (name, role) in enumerate(roster.items()):
            more = ("--policy", str(tmp_path / "policy.toml")) if name == "carl" else ()
            made.agent(name, write_blobs(tmp_path / name, i), role, *more)
        file = tmp_path / "experiment.json"
        file.write_text(json.dumps({**GIVEN, "roster": roster}))
        ended = tide_process("adapt", file, "--home", made.folder, limit=120)
        assert ended.returncode == 0, ended.stderr
        said = ended.stdout
        assert "Rehearsed at 2 sites" in said and ("dora: take" in said or "dora: let" in said) and "dora: found" in said
        assert "Not rehearsed at carl" in said and "forbids rehearsing" in said
        run = next(line for line in ended.stderr.splitlines() if line.startswith("Run ")).removeprefix("Run ")
        model = tide_process("run", "export", run, "--out", tmp_path / "model.safetensors", "--home", made.folder)
        assert model.returncode == 0 and "Chosen for dora" in model.stdout + model.stderr, model.stderr
        assert f"{run}-s0-0" not in tide_process("run", "list", "--home", made.folder).stdout
