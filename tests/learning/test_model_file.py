"""A model's file: what it holds, that equal models are equal bytes, and that no other file passes for one."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused, Refused
from tideline.learning import onnx_file
from tideline.learning.exporting import export_model, format_of
from tideline.learning.model_file import FORMAT, KEY, Model, Origin, is_model, packed, read_model, weights_for
from tideline.learning.prediction import Classifier

WORLD = World(inputs=(1, 8, 8), classes=3, model="lenet_bn", class_names=("ant", "bee", "wasp"))


def model(world: World = WORLD, seed: int = 1, **origin: Any) -> Model:
    torch.manual_seed(seed)
    return Model(world, nets.weights_of(nets.build(world)), origin=Origin(method="m", run="r", **origin))


def written(path: Path, made: Model) -> Path:
    path.write_bytes(packed(made))
    return path


def test_a_model_survives_its_file(tmp_path: Path) -> None:
    """Weights, world and origin; the tensors have the network's names, and a file of the same model has the same bytes."""
    made = model(metrics={"accuracy": 0.5}, round=3, site="anna")
    file = written(tmp_path / "a.safetensors", made)
    read = read_model(file)
    assert (read.world, read.origin, read.form) == (made.world, made.origin, made.form) and is_model(file)
    assert all(torch.equal(w, made.weights[name]) for name, w in read.weights.items())
    nets.build(WORLD).load_state_dict(load_file(file))
    assert packed(read) == packed(made) == packed(model(metrics={"accuracy": 0.5}, round=3, site="anna"))


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Another file of the same tensors, whose metadata are changed."""
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()[KEY])
    change(about)
    save_file(tensors, path, {KEY: json.dumps(about)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda about: about.pop("form"), "form is missing"),
        (lambda about: about.update(format=FORMAT + 1), f"format {FORMAT + 1}, and this version reads up to {FORMAT}"),
        (lambda about: about.update(format="1"), "metadata are damaged"),
        (lambda about: about.update(more=1), "more is not a known setting"),
        (lambda about: about.update(form="other"), "There is no form 'other'"),
        (lambda about: about["world"].update(model="lenett"), "there is no such network"),
        (lambda about: about["world"].update(model="lenet"), "missing, unknown or of another shape"),
        (lambda about: about["world"].update(classes=4, class_names=[]), "missing, unknown or of another shape"),
        (lambda about: about["world"].update(class_names=["ant", "ant", "bee"]), "cannot name one class alone"),
        (lambda about: about.update(digest="0" * 64), "the tensors are not those that its metadata name"),
        (lambda about: about.update(normalisation={"mean": [0.5]}), "normalisation"),
        (lambda about: about["origin"].update(round="many"), "origin.round"),
    ],
)
def test_metadata_are_read_strictly(tmp_path: Path, change: Callable[[dict[str, Any]], None], words: str) -> None:
    file = written(tmp_path / "a.safetensors", model())
    changed(file, change)
    with pytest.raises(DataRefused, match=r"a\.safetensors") as refused:
        read_model(file)
    assert words in refused.value.what


def test_damaged_files(tmp_path: Path) -> None:
    """A cut file, one whose metadata are no JSON, weights alone, and none."""
    whole = packed(model())
    (cut := tmp_path / "cut.safetensors").write_bytes(whole[:-9])
    save_file(dict(model().weights), odd := tmp_path / "odd.safetensors", {KEY: "{"})
    save_file(dict(model().weights), deep := tmp_path / "deep.safetensors", {KEY: "[" * 100_000})
    save_file(dict(model().weights), bare := tmp_path / "bare.safetensors")
    for file, words in (
        *((cut, "cannot be read as safetensors"), (odd, "no JSON"), (deep, "no JSON")),
        *((bare, "does not say of which network"), (tmp_path / "none.safetensors", "no such file")),
    ):
        with pytest.raises(DataRefused, match=words):
            read_model(file)
    export_model(model(), torchs := tmp_path / "model.pt", "torch")
    with pytest.raises(DataRefused) as refused:
        read_model(torchs)
    assert refused.value.todo.startswith("Give a .safetensors file of `tideline run export`")
    assert not is_model(bare) and not is_model(cut) and not is_model(tmp_path / "none.safetensors")


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    """A network that does not work is refused by the name of the tensor."""
    made = model()
    made.weights["classifier.bias"][0] = torch.nan
    with pytest.raises(DataRefused, match=r"classifier\.bias holds a NaN"):
        read_model(written(tmp_path / "a.safetensors", made))


def test_classes_of_other_names_begin_no_run() -> None:
    """Names that one of the two lacks say nothing; names that differ are refused by both."""
    made = model()
    assert weights_for(replace(WORLD, class_names=()), made) is made.weights
    with pytest.raises(ConfigRefused, match="class 1 is 'bee'; here it is 'bug'"):
        weights_for(replace(WORLD, class_names=("ant", "bug", "wasp")), made)
    with pytest.raises(ConfigRefused, match="of the form committee"):
        weights_for(WORLD, replace(made, form="committee"))


def test_predictions_name_classes() -> None:
    """Numbers, names and probabilities; no rows are no predictions; rows of another shape are refused."""
    ready = Classifier(model())
    ready.train()
    x = torch.rand(4, 1, 8, 8)
    found = ready.predict(x)
    assert found.names == tuple(WORLD.class_names[i] for i in found.classes.tolist())
    assert torch.allclose(found.probabilities.sum(1), torch.ones(4)) and torch.equal(
        ready.predict(x).probabilities, found.probabilities
    )
    assert ready.predict(x[:0]).probabilities.shape == (0, 3)
    with pytest.raises(DataRefused, match="A row is 1 x 9 x 8; the model takes 1 x 8 x 8"):
        ready.predict(torch.rand(2, 1, 9, 8))


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt"])
def test_a_disk_that_is_full_is_the_systems_own_error(tmp_path: Path, name: str) -> None:
    """Which commands put into a sentence; what was there before stays."""
    out = tmp_path / name
    out.write_bytes(b"before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            export_model(model(), out, format_of(out, None))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert out.read_bytes() == b"before" and list(tmp_path.iterdir()) == [out]


class Strange(nn.Module):
    """A network with a function that ONNX does not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x.flatten(1)[:, :3])


@pytest.mark.nightly(job="numbers")
def test_what_cannot_be_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator without a counterpart is refused in a sentence, and no file is left."""
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    monkeypatch.setattr(onnx_file, "module_of", lambda *_: Strange())
    with pytest.raises(Refused, match=r"The network lenet_bn cannot be exported to ONNX: .*bessel_j0"):
        export_model(model(), tmp_path / "a.onnx", format_of(tmp_path / "a.onnx", None))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly(job="numbers")
def test_onnx_that_predicts_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    monkeypatch.setattr(onnx_file, "APART", -1.0)
    with pytest.raises(Refused, match="predicts otherwise than the network"):
        export_model(model(), tmp_path / "a.onnx", "onnx")
    assert list(tmp_path.iterdir()) == []
