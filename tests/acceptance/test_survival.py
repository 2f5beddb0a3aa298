"""Processes killed in mid-run and started again: the run goes on to the same bytes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance import gated
from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import COORDINATOR, Net, net
from tests.laws.case import WIRES
from tideline.engine.simulation.federation import SimSite, simulate
from tideline.learning.formats.folder import read_folder

AT_NIGHT = pytest.mark.nightly(job="journeys")

pytestmark = pytest.mark.processes


def experiment(gate: Path | None = None, **config: Any) -> dict[str, Any]:
    settings = {**({"gate": str(gate)} if gate else {}), **config}
    return {"method": "gated", "config": settings, "world": WORLD, "roster": SITES, "seed": 9}


def undisturbed(data: dict[str, Path], **config: Any) -> str:
    """The state digest of the same run, in peace."""
    return state_digest(data, experiment(**config))


def state_digest(data: dict[str, Path], given: dict[str, Any]) -> str:
    """Return the state digest of an experiment in a simulation."""
    result = simulate(gated.METHODS, given, {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r)) for n in SITES})
    assert result["status"] == "completed", result["cause"]
    return str(result["state_digest"])


def begun(gate: Path, name: str) -> list[int]:
    """The trainers that have begun round 2 at a site."""
    path = gate / f"begun-{name}"
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def at_the_gate(federation: Net, gate: Path, **config: Any) -> str:
    """A run whose three sites wait in the middle of round 2."""
    run = federation.run(experiment(gate, **config))
    federation.until(lambda: all(begun(gate, name) for name in SITES), "three sites to wait at the gate")
    return run


@pytest.mark.quick
def test_a_coordinator_killed_in_mid_round(federation: Net, data: dict[str, Path], tmp_path: Path) -> None:
    """kill -9 of the coordinator while three steps work; started again, the run completes with the same digest."""
    run = at_the_gate(federation, tmp_path)
    federation.restart("coordinator")
    (tmp_path / "go").touch()
    federation.completed(run, undisturbed(data))
    assert [len(begun(tmp_path, name)) for name in SITES] == [1, 1, 1], "no step was done twice"


def test_a_coordinator_killed_while_replies_come_in(federation: Net, data: dict[str, Path], tmp_path: Path) -> None:
    """Killed after the gate opened and away for the whole of the round: agents keep their replies and deliver them later."""
    run = at_the_gate(federation, tmp_path)
    federation.kill("coordinator")
    (tmp_path / "go").touch()
    heads = [federation.home / f"home-{name}" / "runs" / run / "head.json" for name in SITES]
    federation.until(lambda: all('"cursor": 1' in head.read_text() for head in heads), "the vaults to hold the replies")
    federation.again("coordinator")
    federation.ready()
    federation.completed(run, undisturbed(data))


@pytest.mark.quick
def test_an_agent_killed_in_mid_step(federation: Net, data: dict[str, Path], tmp_path: Path) -> None:
    """kill -9 of an agent takes its trainer with it; started again with the same command, it takes the step up again."""
    run = at_the_gate(federation, tmp_path)
    trainer = begun(tmp_path, "a")[0]
    federation.kill("a")
    federation.until(lambda: not psutil.pid_exists(trainer), "the orphaned trainer to end")
    federation.again("a")
    federation.until(lambda: len(begun(tmp_path, "a")) == 2, "the agent to take the step up again")
    (tmp_path / "go").touch()
    federation.completed(run, undisturbed(data))


def test_a_trainer_killed_in_mid_step(federation: Net, data: dict[str, Path], tmp_path: Path) -> None:
    """kill -9 of a trainer: the step is run again from uncommitted memory, and only the agent's log tells."""
    run = at_the_gate(federation, tmp_path)
    os.kill(begun(tmp_path, "b")[0], signal.SIGKILL)
    federation.until(lambda: len(begun(tmp_path, "b")) == 2, "the step to be run again")
    assert "trainer_died" in federation.log("b")
    (tmp_path / "go").touch()
    federation.completed(run, undisturbed(data))


@pytest.mark.nightly(job="journeys")
def test_a_trainer_that_always_dies_is_a_failed_reply(federation: Net, tmp_path: Path) -> None:
    """After the third death the reply is a failure that says so; the run stalls, the agent lives, and resume finishes the run."""
    (tmp_path / "go").touch()
    run = federation.run(experiment(tmp_path, dies=3))
    result = federation.ended(run)
    assert result["status"] == "stalled" and "a: The trainer died 3 times" in result["cause"], result["cause"]
    failure = result["clients"][0]["failures"][0]
    assert (failure["phase"], failure["round"], failure["kind"]) == ("add", 2, "StepFailed")
    assert federation.running["a"].poll() is None
    federation.client().post(f"/runs/{run}/resume", {})
    federation.completed(run)
    assert len(begun(tmp_path, "a")) == 4


@pytest.mark.parametrize(
    "way", ["worker killed", *(pytest.param(way, marks=AT_NIGHT) for way in ("asked to end", "asked twice"))]
)
def test_a_coordinator_disturbed_while_it_closes_a_round(
    federation: Net, data: dict[str, Path], tmp_path: Path, way: str
) -> None:
    """Its worker dies, or it is asked to end, in the middle of a fold: the fold is done again, and the run does not fail."""
    (tmp_path / "go").touch()
    run = federation.run(experiment(tmp_path, closing=True))
    federation.until(lambda: len(begun(tmp_path, "closing")) == 1, "the fold to begin")
    if way == "worker killed":
        os.kill(begun(tmp_path, "closing")[0], signal.SIGKILL)
    else:
        for _ in range(2 if way == "asked twice" else 1):
            federation.running["coordinator"].send_signal(signal.SIGTERM)
        assert federation.running["coordinator"].wait(20) == 0
        assert not psutil.pid_exists(begun(tmp_path, "closing")[0])
        federation.again("coordinator")
        federation.ready()
    federation.until(lambda: len(begun(tmp_path, "closing")) == 2, "the fold to be done again")
    (tmp_path / "go-closing").touch()
    federation.completed(run, undisturbed(data))


def test_a_cancelled_run_ends_its_steps(federation: Net, tmp_path: Path) -> None:
    """Cancelling ends the trainers in the middle of their steps; agents live and take the next run."""
    run = at_the_gate(federation, tmp_path)
    trainers = [begun(tmp_path, name)[0] for name in SITES]
    federation.client().post(f"/runs/{run}/cancel", {})
    assert federation.ended(run)["status"] == "cancelled"
    federation.until(lambda: not any(psutil.pid_exists(pid) for pid in trainers), "the trainers to end")
    federation.completed(federation.run(experiment()))


@pytest.mark.nightly(job="journeys")
def test_sites_that_come_one_after_another(tmp_path: Path, data: dict[str, Path]) -> None:
    """A run waits for its named members, says for whom, and ends as if all had been there."""
    with net(tmp_path, "tests.acceptance.gated:METHODS") as late:
        late.coordinator()
        run = late.run(experiment())
        for name in reversed(SITES):
            assert name in late.result(run)["waits_for"]
            late.agent(name, data[name], SITES[name])
            late.until(lambda name=name: name not in late.result(run)["waits_for"], f"{name} to join")
        late.completed(run, undisturbed(data))


@pytest.mark.parametrize("who", ["a agent", "b trainer", COORDINATOR])
@pytest.mark.parametrize("wire", ["topk", pytest.param("int8", marks=AT_NIGHT)])
def test_packed_weights_after_a_kill(federation: Net, data: dict[str, Path], tmp_path: Path, wire: str, who: str) -> None:
    """Round 1 has left something out at each site; rounds 2 and 3 bring it, as in the run that nothing befell."""
    packed = {"method": "gated_weights", "wire": WIRES[wire]}
    run = federation.run(experiment(tmp_path) | packed)
    federation.until(lambda: all(begun(tmp_path, name) for name in SITES), "three sites to wait at the gate")
    heads = [federation.home / f"home-{name}" / "runs" / run / "head.json" for name in SITES]
    assert all('"unsent": [[' in head.read_text() for head in heads)
    name, _, process = who.partition(" ")
    if process == "trainer":
        os.kill(begun(tmp_path, name)[0], signal.SIGKILL)
    else:
        federation.restart(name)
    if name != COORDINATOR:
        federation.until(lambda: len(begun(tmp_path, name)) == 2, "the step to be run again")
    (tmp_path / "go").touch()
    federation.completed(run, state_digest(data, experiment() | packed))
