"""Processes that are asked to stop amid a step: they end, with all that they started, whoever does not answer them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import Net
from tests.acceptance.test_simulation_killed import METHODS, experiment

pytestmark = pytest.mark.processes
PATIENCE = 60.0  # a stop takes ten seconds at most, on a machine that is not loaded


def begun(gate: Path, name: str) -> list[int]:
    """The processes in which a site's step has begun."""
    path = gate / f"begun-{name}"
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def test_an_agent_stops_beside_a_frozen_coordinator(federation: Net, tmp_path: Path) -> None:
    """In order, its trainer with it; the run completes when both are back."""
    given = {"method": "gated", "config": {"gate": str(tmp_path)}, "world": WORLD, "roster": SITES, "seed": 9}
    run = federation.run(given)
    federation.until(lambda: all(begun(tmp_path, name) for name in SITES), "three sites to wait at the gate")
    os.kill(federation.running["coordinator"].pid, signal.SIGSTOP)
    try:
        federation.running["a"].send_signal(signal.SIGTERM)
        assert federation.running["a"].wait(PATIENCE) == 0
        federation.until(lambda: not psutil.pid_exists(begun(tmp_path, "a")[0]), "the trainer to end")
    finally:
        os.kill(federation.running["coordinator"].pid, signal.SIGCONT)
        (tmp_path / "go").touch()
        federation.again("a")
    federation.completed(run)


def test_a_simulation_stops_with_its_processes(tmp_path: Path) -> None:
    """Those of its pool do not go on with the steps that they are in."""
    gate = tmp_path / "gate"
    path = experiment(tmp_path, gate)
    (gate / "go").unlink()
    command = [sys.executable, "-m", "tideline", "simulate", str(path), *METHODS, "--pool", "processes", "--jobs", "2"]
    try:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            Net(tmp_path).until(lambda: bool(begun(gate, "a") and begun(gate, "b")), "both steps to begin")
            workers = [psutil.Process(pid) for name in "ab" for pid in begun(gate, name)]
            process.terminate()
            assert process.wait(PATIENCE) == -signal.SIGTERM
        assert psutil.wait_procs(workers, PATIENCE)[1] == []
    finally:
        (gate / "go").touch()  # whoever is left goes on, and ends
