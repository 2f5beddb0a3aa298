"""Models over a frozen encoder are whole networks: they predict exactly what the run's scoring counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import tideline
from tests.cli.test_models import exported, home_of, predicted
from tests.cli.world import Coordinator, json_of, tide
from tests.frozen.played import HEAD, drawn

WORLD: dict[str, Any] = {"inputs": [1, 28, 28], "classes": 10, "model": "lenet_bn"}


def stated(result: dict[str, Any], site: str) -> float | None:
    accuracy: float | None = next(c["accuracy"] for c in result["clients"] if c["name"] == site)
    return accuracy


def begun(
    there: Coordinator,
    tmp_path: Path,
    method: str,
    weights: dict[str, torch.Tensor] | None = None,
    trains: str | list[str] = "head",
) -> str:
    """A run of `tideline run start` from a file, which has completed."""
    save_file(weights or drawn(WORLD), tmp_path / "base.safetensors")
    asked = {"method": method, "preset": "tiny", "world": {**WORLD, "trains": trains}, "weights": "base.safetensors"}
    file = tmp_path / "e.json"
    file.write_text(json.dumps({**asked, "roster": {"anna": "source", "bert": "target"}}))
    run: str = json_of(tide("run", "start", file, "--home", there.home, "--json"))["run"]
    there.federation.run(run)  # type: ignore[arg-type]
    return run


@pytest.mark.parametrize(
    ("method", "trains", "moves"), [("fedavg", "head", "classifier."), ("fedgma", ["*.linear.*"], "features.bottleneck.linear.")]
)
def test_the_runs_model(
    there: Coordinator, tmp_path: Path, data: dict[str, Path], method: str, trains: str | list[str], moves: str
) -> None:
    """What is frozen of the file, what trains of the run; a plain network, whose weights begin another run of it."""
    weights = drawn(WORLD)
    run, out = begun(there, tmp_path, method, weights, trains), tmp_path / "model.safetensors"
    said = exported(there, run, out)
    assert said["numbers"] == sum(w.numel() for w in weights.values())
    written = load_file(out)
    assert {name for name, w in weights.items() if not torch.equal(written[name], w)} == {f"{moves}weight", f"{moves}bias"}
    assert not tideline.load(out).model.world.frozen
    scores = predicted(out, data["bert"], tmp_path / "rows.csv", "--held-out")
    result = json_of(tide("run", "show", run, "--home", there.home, "--json"))
    assert result["status"] == "completed" and stated(result, "bert") == scores["accuracy"]["value"]
    again = json.loads((tmp_path / "e.json").read_text()) | {"weights": str(out)}
    for world in (WORLD, {**WORLD, **HEAD}, {**WORLD, **HEAD, "classes": 10}):
        (tmp_path / "again.json").write_text(json.dumps(again | {"world": world, "method": "fedavg"}))
        assert tide("run", "start", tmp_path / "again.json", "--home", there.home).exit_code == 0


@pytest.mark.nightly(job="services")
@pytest.mark.parametrize(("method", "trains"), [("fada", "head"), ("feddadil", "head"), ("fada", ["*.linear.*", "*.norm.*"])])
def test_a_sites_own_model(
    there: Coordinator, tmp_path: Path, data: dict[str, Path], method: str, trains: str | list[str]
) -> None:
    """Of an agent's home, where the run's frozen weights lie beside its memory; without them it is not written."""
    run = begun(there, tmp_path, method, trains=trains)
    home, out = home_of(there, run, "bert", tmp_path / "bert"), tmp_path / "model.safetensors"  # type: ignore[arg-type]
    told = tide("site", "export", "--home", home, "--run", run, "model", "--out", out)
    assert told.exit_code != 0 and "The frozen weights of run" in told.stderr and not out.exists()
    from tideline_agent.vault import FolderVault

    row = there.federation.run_service.find(run)  # type: ignore[arg-type]
    content = bytes(there.federation.parts.view(row.spec.initial_weights))  # type: ignore[arg-type]
    FolderVault(home / "runs").parts(run).put([content])  # type: ignore[arg-type]
    assert tide("site", "export", "--home", home, "--run", run, "model", "--out", out).exit_code == 0
    scores = predicted(out, data["bert"], tmp_path / "rows.csv", "--held-out")
    result = json_of(tide("run", "show", run, "--home", there.home, "--json"))
    assert stated(result, "bert") == scores["accuracy"]["value"]


AT_NIGHT = [pytest.param(method, marks=pytest.mark.nightly(job="services")) for method in ("fada", "local", "stlf")]


@pytest.mark.parametrize("method", ["fedavg", "feddadil", "fedpcl_pl", *AT_NIGHT])
def test_a_simulations_models(tmp_path: Path, method: str) -> None:
    """What --out holds predicts what the result says; equal simulations give equal bytes."""
    save_file(drawn(WORLD), tmp_path / "base.safetensors")
    roles = {"a": ("source", "mnist"), "b": ("target", "usps"), "c": ("source", "usps")}
    data = {n: {"role": role, "dataset": "digits", "domain": domain, "rows": 40} for n, (role, domain) in roles.items()}
    asked = {"method": method, "preset": "tiny", "world": {**WORLD, **HEAD}, "data": data, "weights": "base.safetensors"}
    file = tmp_path / "e.json"
    file.write_text(json.dumps(asked))
    told = tide("simulate", file, "--out", tmp_path / "out")
    if method == "fedpcl_pl":
        assert told.exit_code == 2 and "sees the features and the head alone" in told.stderr
        return
    assert told.exit_code == 0, told.output
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["world"]["trains"] == "head" and result["status"] == "completed"
    models = sorted((tmp_path / "out").glob("model*.safetensors"))
    assert models
    for model in models:
        loaded = tideline.load(model)
        assert torch.isfinite(loaded.predict(torch.rand(3, 1, 28, 28)).probabilities).all()


def test_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    save_file(drawn(WORLD), tmp_path / "base.safetensors")
    asked = {"method": "fedavg", "preset": "tiny", "world": {**WORLD, "trains": ["*.bottlneck.*"]}, "weights": "base.safetensors"}
    data = {"a": {"role": "source", "dataset": "digits", "domain": "mnist", "rows": 40}}
    (tmp_path / "e.json").write_text(json.dumps({**asked, "data": data}))
    told = tide("simulate", tmp_path / "e.json", "--out", tmp_path / "out")
    assert told.exit_code == 2 and "world.trains has '*.bottlneck.*', which no tensor of lenet_bn matches" in told.stderr
    assert "did you mean features.bottleneck." in " ".join(told.stderr.split())
