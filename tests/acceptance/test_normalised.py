"""Agents beside tables: columns of wild scales, classes mixed otherwise at the target, and steps that compute in bfloat16."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.acceptance.harness import net
from tests.cli.world import tide_process
from tideline.algorithms import METHODS
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.folder import read_folder
from tideline.nets import registry

pytestmark = pytest.mark.processes
SITES = {"anna": "source", "bert": "source", "carl": "target"}
WORLD = {"inputs": [4], "classes": 3, "model": "linear", "class_names": ["low", "middle", "high"]}
SCALES, OFFSETS = np.array([0.01, 1.0, 3000.0, 4e6]), np.array([0.0, 40.0, 1.7e5, 9e6])


def table(folder: Path, rows: NDArray[Any], y: NDArray[Any]) -> Path:
    """Write a table of four columns and its label."""
    folder.mkdir(parents=True)
    lines = [",".join([*map(repr, row), WORLD["class_names"][k]]) for row, k in zip(rows.tolist(), y, strict=True)]  # type: ignore[index]
    (folder / "ward.csv").write_text("\n".join(["ph,age,cells,income,stage", *lines]))
    (folder / "transforms.toml").write_text('[ward]\nlabel = "stage"\n')
    return folder


def ward(folder: Path, seed: int) -> Path:
    """A table whose classes lie along its smallest column; the largest tells nothing."""
    rng = np.random.default_rng(seed)
    y = np.arange(120) % 3
    z = rng.normal(size=(len(y), 4)) + 4 * np.eye(3, 4)[y]
    z[:, 3] = rng.normal(size=len(y))
    return table(folder, z * SCALES + OFFSETS, y)


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


def mixed_ward(folder: Path, seed: int, shares: tuple[float, ...]) -> Path:
    """Write a table whose classes come in these shares."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=300, p=shares)
    z = rng.normal(size=(len(y), 4)) + 1.5 * np.eye(3, 4)[y]
    return table(folder, z, y)


def test_corrected_for_its_own_shares(tmp_path: Path) -> None:
    """The run's model says that it is not; the target's own is right on as many rows; and in one process it is the same state."""
    shares = {"anna": (0.4, 0.3, 0.3), "bert": (0.3, 0.4, 0.3), "carl": (0.8, 0.1, 0.1)}
    given: dict[str, Any] = {"world": WORLD, "roster": SITES, "seed": 3, "prior": "em"}
    averaged = {**given, "method": "fedavg", "config": {"rounds": 6, "rate": 0.1}}
    adapted = {**given, "method": "shot", "world": {**WORLD, "model": "mlp"}}
    with net(tmp_path) as made:
        made.coordinator()
        for i, (name, role) in enumerate(SITES.items()):
            made.agent(name, mixed_ward(tmp_path / name, i, shares[name]), role)
        run, own = made.ended(made.run(averaged)), made.ended(made.run(adapted))
        assert (run["status"], own["status"]) == ("completed", "completed"), (run["cause"], own["cause"])
        out, mine, rows = (tmp_path / name for name in ("run.safetensors", "own.safetensors", "rows.csv"))
        home = made.home_of("coordinator")
        told = tide_process("run", "export", run["run"], "--out", out, "--home", home, "--json")
        assert told.returncode == 0, told.stderr
        told = tide_process("site", "export", "--home", tmp_path / "home-carl", "--run", own["run"], "model", "--out", mine)
        assert told.returncode == 0, told.stderr
    carl = {each["run"]: next(c for c in each["clients"] if c["name"] == "carl") for each in (run, own)}
    assert carl[run["run"]]["accuracy"] > carl[run["run"]]["source_only"] + 0.03
    data = ("--data", tmp_path / "carl", "--held-out", "--out", rows, "--json")
    found = [
        tide_process("predict", "--model", model, *data, *more)
        for model, more in ((out, ()), (out, ("--prior", "em")), (mine, ()))
    ]
    assert all(each.returncode == 0 for each in found), [each.stderr for each in found]
    plain, corrected, site = (json.loads(each.stdout)["accuracy"]["value"] for each in found)
    assert plain == carl[run["run"]]["source_only"] < corrected and site == carl[own["run"]]["accuracy"]
    there = Federation(METHODS, {n: SimSite(lambda w, r, n=n: read_folder(tmp_path / n, w, r)) for n in SITES})
    for experiment, result in ((averaged, run), (adapted, own)):
        assert there.run(there.start(experiment))["state_digest"] == result["state_digest"]


NETWORK = "tests.engine.test_computing:NETWORKS"
TWO = ("anna", "bert")
SHARES = (0.4, 0.3, 0.3)


def test_a_run_in_bfloat16_by_halves(tmp_path: Path) -> None:
    """Over real processes and in one: the same bytes. Mini-batches have no room at first, and each site says so."""
    computing = {"precision": "bfloat16", "accumulate": 2, "deterministic": "yes"}
    asked = {"method": "fedavg", "config": {"rounds": 2, "batch": 14}, "seed": 3, "computing": computing}
    asked |= {"world": {**WORLD, "model": "cramped"}, "roster": dict.fromkeys(TWO, "source")}
    own = ("--networks", NETWORK)
    with net(tmp_path) as made:
        made.coordinator(*own)
        for i, name in enumerate(TWO):
            made.agent(name, mixed_ward(tmp_path / name, i, SHARES), "source", *own, "--gpu-memory", "0.5")
        result = made.completed(made.run(asked))
        assert all("batch_halved" in made.log(name) for name in TWO)
        told = tide_process("site", "ledger", "list", "--home", tmp_path / "home-anna", "--json")
    assert result["computing"] == {**computing, "compile": False}
    mine = {"device": "cpu", "precision": "bfloat16", "deterministic": True}
    assert [each["computing"] for each in result["clients"]] == [mine, mine]
    (begun,) = [entry for entry in json.loads(told.stdout) if "computing" in json.dumps(entry)]
    assert "bfloat16" in json.dumps(begun)
    registry.use([NETWORK])
    try:
        there = Federation(METHODS, {n: SimSite(lambda w, r, n=n: read_folder(tmp_path / n, w, r)) for n in TWO})
        assert there.run(there.start(asked))["state_digest"] == result["state_digest"]
    finally:
        registry.use([])
