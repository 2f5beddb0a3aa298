"""Processes killed while weights travel packed: what rounding left out of the messages before is still there."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import gated
from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import Net
from tests.acceptance.test_survival import begun
from tests.laws.case import WIRES
from tideline.engine.simulation.federation import SimSite, simulate
from tideline.learning.formats.folder import read_folder

pytestmark = pytest.mark.processes
WHO = ("a agent", "b trainer", "coordinator")


def experiment(wire: str, gate: Path | None = None) -> dict[str, Any]:
    """A run of a method that keeps nothing at its sites."""
    config = {"gate": str(gate)} if gate else {}
    more = {"roster": SITES, "seed": 9, "wire": WIRES[wire]}
    return {"method": "gated_weights", "config": config, "world": WORLD, **more}


def undisturbed(wire: str, data: dict[str, Path]) -> str:
    """The state digest of the same run, in peace."""
    sites = {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r)) for n in SITES}
    result = simulate(gated.METHODS, experiment(wire), sites)
    assert result["status"] == "completed", result["cause"]
    return str(result["state_digest"])


def shoot(federation: Net, gate: Path, who: str) -> None:
    """kill -9 of one process in the middle of round 2, and the same command again."""
    name, _, process = who.partition(" ")
    if process == "trainer":
        os.kill(begun(gate, name)[0], signal.SIGKILL)
    else:
        federation.kill(name)
        federation.again(name)
    if name == "coordinator":
        federation.ready()
    else:
        federation.until(lambda: len(begun(gate, name)) == 2, "the step to be run again")


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("wire", ["topk", pytest.param("int8", marks=pytest.mark.nightly(job="journeys"))])
def test_the_same_bytes_after_a_kill(federation: Net, data: dict[str, Path], tmp_path: Path, wire: str, who: str) -> None:
    """Round 1 has left something out at each site; rounds 2 and 3 bring it, as in the run that nothing befell."""
    run = federation.run(experiment(wire, tmp_path))
    federation.until(lambda: all(begun(tmp_path, name) for name in SITES), "three sites to wait at the gate")
    heads = [federation.home / f"home-{name}" / "runs" / run / "head.json" for name in SITES]
    assert all('"unsent": [[' in head.read_text() for head in heads)
    shoot(federation, tmp_path, who)
    (tmp_path / "go").touch()
    federation.completed(run, undisturbed(wire, data))
