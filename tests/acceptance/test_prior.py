"""Agents beside tables whose classes are mixed otherwise at the target: its predictions are corrected, by exported models too."""

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


def ward(folder: Path, seed: int, shares: tuple[float, ...]) -> Path:
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=300, p=shares)
    z = rng.normal(size=(len(y), 4)) + 1.5 * np.eye(3, 4)[y]
    folder.mkdir(parents=True)
    lines = [",".join([*map(repr, row), WORLD["class_names"][k]]) for row, k in zip(z.tolist(), y, strict=True)]  # type: ignore[index]
    (folder / "ward.csv").write_text("\n".join(["ph,age,cells,income,stage", *lines]))
    (folder / "transforms.toml").write_text('[ward]\nlabel = "stage"\n')
    return folder


def test_corrected_for_its_own_shares(tmp_path: Path) -> None:
    """The run's model says that it is not; the target's own is right on as many rows; and in one process it is the same state."""
    shares = {"anna": (0.4, 0.3, 0.3), "bert": (0.3, 0.4, 0.3), "carl": (0.8, 0.1, 0.1)}
    given: dict[str, Any] = {"world": WORLD, "roster": SITES, "seed": 3, "prior": "em"}
    averaged = {**given, "method": "fedavg", "config": {"rounds": 6, "rate": 0.1}}
    adapted = {**given, "method": "shot", "world": {**WORLD, "model": "mlp"}}
    with net(tmp_path) as made:
        made.coordinator()
        for i, (name, role) in enumerate(SITES.items()):
            made.agent(name, ward(tmp_path / name, i, shares[name]), role)
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
