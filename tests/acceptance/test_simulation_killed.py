"""A simulation that dies amid a step goes on where it was when the command is given again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.cli.world import tide_process
from tideline.learning.datasets import digits

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
