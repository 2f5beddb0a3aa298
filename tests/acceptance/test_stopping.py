"""Processes that are asked to stop amid a step end, with all that they started; a simulation that died amid one goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import Net
from tests.cli.world import tide_process
from tideline.learning.datasets import digits

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


METHODS = ("--methods", "tests.acceptance.gated:METHODS")


def experiment(place: Path, gate: Path, **config: Any) -> Path:
    """Three rounds of two sites; round 2 passes the gate, which is open."""
    gate.mkdir()
    (gate / "go").touch()
    site = {"role": "peer", "dataset": "digits", "rows": 20}
    given = {
        "method": "gated",
        "config": {"rounds": 3, "gate": str(gate), **config},
        "world": {"inputs": [1, 16, 16], "model": "mlp"},
        "data": {"a": {**site, "domain": "mnist"}, "b": {**site, "domain": "usps"}},
    }
    path = place / f"{gate.name}.yaml"
    path.write_text(yaml.safe_dump(given))
    return path


def test_a_simulation_that_died_goes_on(tmp_path: Path) -> None:
    """The second command does not run the first round again, and ends in the bytes of one that nobody disturbed."""
    calm = tide_process("simulate", experiment(tmp_path, tmp_path / "calm"), *METHODS, "--json")
    assert calm.returncode == 0, calm.stderr
    path, out = experiment(tmp_path, tmp_path / "hard", dies=1), tmp_path / "out"
    command = ("simulate", path, *METHODS, "--json", "--out", out)
    assert tide_process(*command).returncode == 7
    assert (out / "journal").is_dir() and not (out / "result.json").exists()
    again = tide_process(*command)
    assert again.returncode == 0, again.stderr
    assert "Going on with the simulation" in again.stderr
    assert json.loads(again.stdout)["state_digest"] == json.loads(calm.stdout)["state_digest"]
    assert not (out / "journal").exists() and (out / "result.json").exists()


def test_another_experiment_is_refused(tmp_path: Path) -> None:
    path, out = experiment(tmp_path, tmp_path / "hard", dies=1), tmp_path / "out"
    assert tide_process("simulate", path, *METHODS, "--out", out).returncode == 7
    other = tide_process("simulate", path, *METHODS, "--out", out, "--set", "config.rounds=4")
    assert other.returncode == 2
    assert "holds a simulation of another experiment (they differ in config)" in other.stderr
    assert f"remove {out / 'journal'} to begin again" in other.stderr


def test_other_data_are_refused(tmp_path: Path) -> None:
    """Data that have changed since would end in bytes that are neither the old data's nor the new ones'."""
    gate = tmp_path / "gate"
    path, out, data = experiment(tmp_path, gate, dies=1), tmp_path / "out", tmp_path / "rows"
    digits.write_site(data, "mnist", rows=20)
    given = yaml.safe_load(path.read_text())
    given["data"]["a"] = {"role": "peer", "folder": "rows"}
    path.write_text(yaml.safe_dump(given))
    assert tide_process("simulate", path, *METHODS, "--out", out).returncode == 7
    next(file for file in sorted(data.rglob("*")) if file.is_file()).touch()
    other = tide_process("simulate", path, *METHODS, "--out", out)
    assert other.returncode == 2
    assert "another experiment (they differ in data files)" in other.stderr
