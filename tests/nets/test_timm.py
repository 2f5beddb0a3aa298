"""Networks of timm, where it is installed (the development group has it): built, begun from its files, exported, loaded by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.cli.world import tide
from tests.learning.test_backbones import begun
from tests.nets.test_families import world
from tideline import nets
from tideline.core.errors import ConfigRefused
from tideline.learning.datasets import digits
from tideline.learning.model_file import read_model
from tideline.learning.onnx_file import save_onnx

timm = pytest.importorskip("timm", reason="timm is not installed")
# With the width of the head's input and the path of the head.
WIDTHS = {
    "mobilenetv3_small_050": (1024, "classifier."),
    "resnet10t": (512, "fc."),
    "convnext_atto": (320, "head.fc."),
    "test_vit": (64, "head."),
    "vit_tiny_patch16_224": (192, "head."),
}


def theirs(name: str, classes: int = 1000, side: int = 32) -> dict[str, Tensor]:
    """A state dict of timm's, for images of that size."""
    torch.manual_seed(5)
    sized: dict[str, Any] = {"img_size": side} if "vit" in name else {}
    return dict(timm.create_model(name, num_classes=classes, **sized).state_dict())


at_night = pytest.mark.nightly(job="numbers")


@pytest.mark.parametrize("name", [x if x in ("resnet10t", "test_vit") else pytest.param(x, marks=at_night) for x in WIDTHS])
def test_they_build_with_timms_own_names(name: str) -> None:
    its = world(f"timm/{name}")
    assert nets.width(its) == WIDTHS[name][0]
    assert set(nets.own_names(its).values()) == theirs(name, 3).keys()
    assert nets.width(world(f"timm/{name}", bottleneck=16)) == 16


@pytest.mark.parametrize(
    ("name", "bottleneck"),
    [
        *(("mobilenetv3_small_050", 0), ("test_vit", 16)),
        *(pytest.param("mobilenetv3_small_050", 16, marks=at_night), pytest.param("test_vit", 0, marks=at_night)),
        *(pytest.param("convnext_atto", x, marks=at_night) for x in (0, 16)),
    ],
)
def test_a_file_of_timms_begins_a_run(name: str, bottleneck: int) -> None:
    """Its encoder is taken; its head of 1000 classes is left out, and said."""
    head = WIDTHS[name][1]
    got = begun(world(f"timm/{name}", bottleneck=bottleneck), theirs(name))
    assert got.unused.keys() == {f"{head}weight", f"{head}bias"}


def test_images_of_any_number_of_channels() -> None:
    assert nets.build(world("timm/resnet10t", channels=1)).eval()(torch.rand(2, 1, 32, 32)).shape == (2, 3)


@pytest.mark.parametrize("bottleneck", [0, pytest.param(16, marks=at_night)])
def test_networks_that_cache_what_they_computed(bottleneck: int) -> None:
    """TinyViT has attention biases in a plain attribute, of the weights that it had: in no network that is built or copied."""
    its = world("timm/tiny_vit_5m_224", side=64, bottleneck=bottleneck)
    net = nets.build(its)
    with torch.no_grad():
        for name, w in net.named_parameters():
            if name.endswith("attention_biases"):
                w.normal_()
    x = torch.rand(2, *its.inputs)
    assert torch.equal(net.eval()(x), nets.loaded(its, nets.weights_of(net)).eval()(x))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mobilenetv3_smal_050", "timm has no classification model of that name"),
        ("deit_tiny_distilled_patch16_224", "cannot compute without its head head_dist"),
    ],
)
def test_what_cannot_be_is_said(name: str, said: str) -> None:
    with pytest.raises(ConfigRefused, match=said):
        nets.check(world(f"timm/{name}"))


@pytest.mark.nightly(job="numbers")
def test_from_a_file_to_predictions_and_back(tmp_path: Path) -> None:
    """A simulation from a file of timm's; its model predicts as it was scored, is an ONNX file, and timm loads it."""
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    for i, name in enumerate("ab"):
        digits.write_site(tmp_path / name, "mnist", i, 2, rows=60)
    save_file(theirs("test_vit"), tmp_path / "vit.safetensors")
    data = {name: {"role": "source", "folder": name} for name in "ab"}
    its = {"inputs": [3, 32, 32], "classes": 10, "model": "timm/test_vit"}
    given = {"method": "fedavg", "config": {"rounds": 2}, "seed": 1, "weights": "vit.safetensors", "world": its, "data": data}
    (tmp_path / "e.json").write_text(json.dumps(given))
    told = tide("simulate", tmp_path / "e.json", "--out", tmp_path / "out", "--json")
    assert told.exit_code == 0, told.output
    accuracy = {client["name"]: client["accuracy"] for client in json.loads(told.stdout)["clients"]}
    model, rows = tmp_path / "out" / "model.safetensors", tmp_path / "rows.csv"
    said = tide("predict", "--model", model, "--data", tmp_path / "a", "--held-out", "--out", rows, "--device", "cpu", "--json")
    assert said.exit_code == 0 and json.loads(said.stdout)["accuracy"]["value"] == accuracy["a"], said.output
    timm.create_model("test_vit", num_classes=10, img_size=32).load_state_dict(load_file(model))
    save_onnx(read_model(model), tmp_path / "model.onnx")
