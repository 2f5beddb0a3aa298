"""Agents beside tables whose columns have wild scales: chance without normalisation, and learnt with what is the default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.harness import net
from tests.cli.world import tide_process
from tideline.algorithms import METHODS
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.folder import read_folder

pytestmark = pytest.mark.processes
SITES = {"anna": "source", "bert": "source", "carl": "target"}
WORLD = {"inputs": [4], "classes": 3, "model": "linear", "class_names": ["low", "middle", "high"]}
SCALES, OFFSETS = np.array([0.01, 1.0, 3000.0, 4e6]), np.array([0.0, 40.0, 1.7e5, 9e6])


def ward(folder: Path, seed: int) -> Path:
    """A table whose classes lie along its smallest column; the largest tells nothing."""
    rng = np.random.default_rng(seed)
    y = np.arange(120) % 3
    z = rng.normal(size=(len(y), 4)) + 4 * np.eye(3, 4)[y]
    z[:, 3] = rng.normal(size=len(y))
    folder.mkdir(parents=True)
    lines = [
        ",".join([*map(repr, row), WORLD["class_names"][k]]) for row, k in zip((z * SCALES + OFFSETS).tolist(), y, strict=True)
    ]  # type: ignore[index]
    (folder / "ward.csv").write_text("\n".join(["ph,age,cells,income,stage", *lines]))
    (folder / "transforms.toml").write_text('[ward]\nlabel = "stage"\n')
    return folder


def mean(result: dict[str, Any]) -> float:
    return float(np.mean([client["accuracy"] for client in result["clients"]]))


def test_a_table_of_wild_scales(tmp_path: Path) -> None:
    """The same experiment with `normalise: none` and without a word; and in one process, to the byte."""
    given: dict[str, Any] = {
        "method": "fedavg",
        "config": {"rounds": 8, "rate": 0.1},
        "roster": SITES,
        "seed": 3,
        "checkpoint_every": 3,
    }
    asked, off = {**given, "world": WORLD}, {**given, "world": {**WORLD, "normalise": "none"}}
    with net(tmp_path) as made:
        made.coordinator()
        for i, (name, role) in enumerate(SITES.items()):
            made.agent(name, ward(tmp_path / name, i), role)
        before, after = made.ended(made.run(off)), made.ended(made.run(asked))
        assert (before["status"], after["status"]) == ("completed", "completed"), (before["cause"], after["cause"])
        out, rows = tmp_path / "model.safetensors", tmp_path / "rows.csv"
        told = tide_process("run", "export", after["run"], "--out", out, "--home", made.home_of("coordinator"))
        assert told.returncode == 0, told.stderr
        with made.journal() as journal:
            measured = [o.client for o in journal.orders(after["run"], 0)]
    said = tide_process("predict", "--model", out, "--data", tmp_path / "carl", "--held-out", "--out", rows, "--json")
    assert said.returncode == 0, said.stderr
    assert mean(before) < 0.5 < 0.85 < mean(after), (before["clients"], after["clients"])
    assert after["world"]["normalise"] == "shared" and after["phases"][1]["name"] == "normalise" and measured == ["anna", "bert"]
    assert {clause["phase"] for clause in before["contract"]} < {clause["phase"] for clause in after["contract"]}
    accuracies = {client["name"]: client["accuracy"] for client in after["clients"]}
    assert json.loads(said.stdout)["accuracy"]["value"] == accuracies["carl"]
    there = Federation(METHODS, {n: SimSite(lambda w, r, n=n: read_folder(tmp_path / n, w, r)) for n in SITES})
    assert there.run(there.start(asked))["state_digest"] == after["state_digest"]
