"""A vote as a model: its file, what it predicts, and what a rehearsal writes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import tideline
from tests.rehearsal.stage import CLASSES, ROSTER, SITES, WORLD, drawn
from tideline import nets
from tideline.algorithms import METHODS
from tideline.core.asked.normalise import Normalise, Scaling
from tideline.core.asked.world import World, world_in
from tideline.core.errors import ConfigRefused, DataRefused, Refused
from tideline.experiments.simulation import simulate_text
from tideline.learning.exporting import export_model
from tideline.learning.model_file import Model, Origin, packed, read_model, vote_of
from tideline.learning.normalising import own_statistics
from tideline.learning.prediction import Classifier
from tideline.written.files import read_file

LINEAR = world_in({**WORLD, "normalise": "none"})
X = torch.randn(30, 6, generator=torch.Generator().manual_seed(0)) * 3 + 1


def linear(seed: int, world: World = LINEAR, **more: Any) -> Model:
    torch.manual_seed(seed)
    return Model(world, {name: torch.randn(like.shape) for name, like in nets.template(world).items()}, **more)


def normalising(seed: int, given: bool) -> Model:
    by = None if given else own_statistics([X], Scaling.SITE, 6)
    return linear(seed, scaling=Normalise(Scaling.SITE), statistics=by)


def expected(*members: tuple[float, Model]) -> torch.Tensor:
    return sum((share * Classifier(each).predict(X).probabilities for share, each in members), torch.zeros(()))


@pytest.mark.parametrize("given", [False, True], ids=["statistics inside", "of the rows"])
def test_it_averages_probabilities_and_comes_back_from_its_file(tmp_path: Path, given: bool) -> None:
    """Members on scales of their own among them."""
    members = (0.75, linear(0)), (0.25, normalising(1, given))
    model = vote_of(members, Origin(method="rehearsal", note="a vote"))
    (tmp_path / "model.safetensors").write_bytes(packed(model))
    found = tideline.load(tmp_path / "model.safetensors")
    assert torch.allclose(found.predict(X).probabilities, expected(*members), atol=1e-6)
    assert found.model.size == 2 * linear(0).size == 42
    assert found.model.origin.note == "a vote" and packed(found.model) == packed(model)


def test_it_is_exported_as_onnx(tmp_path: Path) -> None:
    """Which is compared with it; not with a member that normalises by the rows that it is given."""
    model = vote_of([(0.5, linear(0)), (0.5, normalising(1, given=False))], Origin())
    export_model(model, tmp_path / "model.onnx", "onnx")
    assert (tmp_path / "model.onnx").stat().st_size
    with pytest.raises(Refused, match="rows that it is given"):
        export_model(vote_of([(1.0, normalising(1, given=True))], Origin()), tmp_path / "other.onnx", "onnx")


def test_what_is_no_vote(tmp_path: Path) -> None:
    """Members of other classes; a file whose tensors changed."""
    with pytest.raises(ConfigRefused, match="classes"):
        vote_of([(0.5, linear(0)), (0.5, linear(0, world_in({**WORLD, "classes": CLASSES + 1})))], Origin())
    path = tmp_path / "model.safetensors"
    path.write_bytes(packed(vote_of([(0.5, linear(0)), (0.5, linear(1))], Origin())))
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        meta = json.loads(file.read(size))["__metadata__"]
    save_file({name: w + 1 for name, w in load_file(path).items()}, path, meta)
    with pytest.raises(DataRefused):
        read_model(path)


@pytest.mark.nightly(job="numbers")
def test_a_rehearsal_writes_what_it_chose(tmp_path: Path) -> None:
    """Two candidates alike share the vote; the model predicts as many held-out rows right as the result says."""
    data: dict[str, Any] = {}
    for i, name in enumerate(SITES[:4]):
        sides = drawn(i, 0, 80), drawn(i, 1, 40)
        x = torch.cat([part for side in sides for part in side.x.parts()]).numpy()
        y = torch.cat([side.y for side in sides if side.y is not None]).numpy()
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "rows.npz", x=x, y=y, test_idx=np.arange(80, 120, dtype=np.int32))
        data[name] = {"folder": str(tmp_path / name), "role": ROSTER[name]}
    longer = [{"label": name, "method": "fedavg", "config": {"rounds": 6}} for name in ("longer", "as long")]
    given = {
        "world": WORLD,
        "config": {"rounds": 1, "rate": 0.1},
        "data": data,
        "rehearse": {"candidates": longer},
        "then": "run",
    }
    (tmp_path / "experiment.json").write_text(json.dumps(given))
    result = simulate_text(read_file(tmp_path / "experiment.json"), METHODS, tmp_path / "out")
    verdict = result["verdict"]
    assert verdict is not None and {"longer", "as long"} <= verdict["targets"][0]["chosen"].keys()
    model = tideline.load(tmp_path / "out" / "model.safetensors")
    held = drawn(3, 1, 40)
    assert held.y is not None
    right = float((model.predict(held.x.all()).classes == held.y).float().mean())
    (dora,) = [each for each in result["clients"] if each["name"] == "dora"]
    assert right == pytest.approx(dora["accuracy"]) and "A vote of" in model.model.origin.note


@pytest.mark.nightly(job="numbers")
def test_from_python() -> None:
    """The usual candidates of features, the verdict, and the model of the target, by its name or without."""
    rng = torch.Generator().manual_seed(0)

    def rows() -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.arange(90) % CLASSES
        x = 2.5 * torch.eye(CLASSES, 6)[y] + torch.randn(90, 6, generator=rng)
        return x * torch.exp(torch.randn(6, generator=rng)) + 3 * torch.randn(6, generator=rng), y

    sites = {name: tideline.Site(train=rows(), role=ROSTER[name]) for name in ROSTER}
    given = {"config": {"rounds": 3, "rate": 0.1}, "world": {"model": "linear"}, "rehearse": {"on": 2}, "then": "run"}
    run = tideline.simulate(given, sites=sites, progress=False)
    verdict = run.result.verdict
    assert run.status == "completed" and verdict is not None, run.cause
    assert verdict["candidates"][0] == "no adaptation" and len(verdict["candidates"]) == 6
    x, _ = rows()
    assert torch.equal(run.model().predict(x).classes, run.model(site="dora").predict(x).classes)
