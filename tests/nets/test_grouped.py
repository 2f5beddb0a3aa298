"""Group norm in batch norm's place, by an option of any network: what changes, what stays, and that private runs take it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import tideline
from tests.engine.test_private_runs import NOISE, asked
from tests.laws.stage import HoardingParts, Stage
from tests.synthetic import sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused
from tideline.core.rows import MemoryRows
from tideline.core.step import Data
from tideline.experiments.results import Ended
from tideline.learning.fit import cross_entropy
from tideline.learning.private import check_private, fit_privately
from tideline.nets import registry
from tideline.nets.bottleneck import KINDS
from tideline.nets.fingerprint import print_of
from tideline.nets.grouped import CHANNELS, GROUPS, GroupNormAct, grouped, groups_of, with_group_norm
from tideline.nets.partial import freeze
from tideline.nets.shapes.rows import blank
from tideline.numerics.privacy.streams import Stream

INPUTS = {"conv1d": (3, 16), "conv3d": (1, 8, 8, 8), "resnet": (3, 32, 32), "efficientnet_lite0": (3, 32, 32)}
GROUP = {"norm": "group"}


def world(model: str, **options: Any) -> World:
    inputs = next((shape for name, shape in INPUTS.items() if model.startswith(name)), (1, 28, 28))
    return World(inputs=inputs, classes=3, model=model, options=options)


# The built-in networks that have batch norm; those of vectors and ids have none.
WITH_BATCH_NORM = ("conv1d", "conv3d", "efficientnet_lite0", "fada_digits", "fada_small", "lenet_bn", *KINDS)
QUICK = ("conv1d", "fada_small", "lenet_bn", "resnet18")


def test_all_networks_with_batch_norm_are_tried() -> None:
    names = [name for name in registry.NETS if name not in ("tokens", "tabular")]
    with torch.device("meta"):
        layers = {name: list(nets.build(world(name)).modules()) for name in names}
    assert {name for name in names if any(isinstance(x, _BatchNorm) for x in layers[name])} == set(WITH_BATCH_NORM)


@pytest.mark.parametrize(
    "name", [x if x in QUICK else pytest.param(x, marks=pytest.mark.nightly(job="numbers")) for x in WITH_BATCH_NORM]
)
def test_every_built_in_network_can_do_without_batch_norm(name: str) -> None:
    """All else stays: names, first weights, width; and a row's output is its own."""
    torch.manual_seed(1)
    before = nets.build(world(name))
    torch.manual_seed(1)
    net = nets.build(world(name, **GROUP))
    check_private(net)
    with pytest.raises(ConfigRefused, match="norm: group"):
        check_private(before)
    own, old = net.state_dict(), before.state_dict()
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert set(old) - set(own) == {key for key in old if key.rpartition(".")[2] in statistics}
    assert not set(own) - set(old) and all(torch.equal(own[key], old[key]) for key in own)
    assert nets.width(world(name)) == nets.width(world(name, **GROUP))
    x = torch.randn(4, *world(name).inputs, generator=Generator().manual_seed(2))
    alone, together = net.eval()(x[:1]), net(x)[:1]
    assert torch.allclose(alone, together, atol=1e-4) and bool(torch.isfinite(together).all())


def test_of_few_channels_groups_have_several() -> None:
    assert [groups_of(c) for c in (1, 2, 4, 6, 7, 16, 32, 50, 64, 256, 2048, 3072)] == [1, 1, 1, 1, 1, 4, 8, 10, 16, 32, 32, 32]
    assert all(c // groups_of(c) >= min(c, CHANNELS) and groups_of(c) <= GROUPS for c in range(1, 300))
    norm = with_group_norm(nn.BatchNorm1d(16))
    assert float(norm(torch.randn(3, 16)).detach().abs().max()) > 0.1


class Own(nn.Module):
    """As somebody would write it."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1))
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x))


def own(world: World, width: int = 16) -> nn.Module:
    return Own(world.classes, width)


def open_ended(world: World, **options: Any) -> nn.Module:
    return Own(world.classes, int(options.get("width", 16)))


def choosing(world: World, norm: str = "batch") -> nn.Module:
    """A builder with an option of that name, which is its own matter."""
    made = Own(world.classes, 16)
    made.body[1] = nn.LayerNorm(16) if norm == "layer" else made.body[1]
    return made


OWN = {"own": own, "open_ended": open_ended, "choosing": choosing}
VECTORS = {"inputs": [8], "classes": 3, "normalise": "none"}


@pytest.mark.parametrize("model", ["own", "open_ended"])
def test_a_network_of_ones_own_takes_it(model: str) -> None:
    """Whether its builder knows of it or not; it is in the print that sites are held to."""
    with registry.beside(OWN):
        plain, group = (
            World(inputs=(8,), classes=3, model=model, options=each) for each in ({"width": 8}, {"width": 8, **GROUP})
        )
        net = nets.build(group)
        check_private(net)
        assert any(isinstance(layer, nn.GroupNorm) for layer in net.modules())
        one, other = print_of(plain), print_of(group)
        assert one is not None and other is not None and "the option norm = 'group'" in other.lines
        assert one.outputs != other.outputs and not any("running_mean" in line for line in other.lines)
        assert print_of(replace(plain, options={"width": 8, "norm": "batch"})) != other
        assert world_in(plain_world(group)) == group


def test_a_builders_own_option_of_that_name_is_its_own() -> None:
    with registry.beside(OWN):
        net = nets.build(World(inputs=(8,), classes=3, model="choosing", options={"norm": "layer"}))
    assert any(isinstance(layer, nn.LayerNorm) for layer in net.modules())


def test_what_cannot_be_replaced_is_refused() -> None:
    for norm in ("group", "layer", 3, True):
        with pytest.raises(ConfigRefused, match="has no batch norm" if norm == "group" else "Write group, or batch") as refusal:
            nets.build(world("lenet" if norm == "group" else "lenet_bn", norm=norm))
        assert refusal.value.context["path"] == "world.model.options.norm"


class Strange(nn.BatchNorm1d):
    """A batch norm that does more."""


class WithAct(nn.BatchNorm2d):
    """As timm has it."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.drop, self.act = nn.Identity(), nn.ReLU()


def test_a_batch_norm_of_another_kind_is_refused_by_its_layer() -> None:
    with pytest.raises(ConfigRefused, match=r"layer 1\.0 is a Strange") as refused:
        grouped(nn.Sequential(nn.Linear(2, 2), nn.Sequential(Strange(2))))
    assert refused.value.todo
    made = with_group_norm(nn.Sequential(WithAct(8)))
    assert isinstance(made[0], GroupNormAct) and float(made(torch.randn(2, 8, 3, 3)).detach().min()) == 0.0  # type: ignore[index]


@pytest.mark.parametrize("model", ["torchvision/resnet18", "timm/resnet10t", "timm/mobilenetv3_small_050"])
def test_networks_of_packages_take_it(model: str) -> None:
    pytest.importorskip(model.partition("/")[0])
    net = nets.build(World(inputs=(3, 32, 32), classes=3, model=model, options=GROUP))
    check_private(net)
    assert net(torch.randn(2, 3, 32, 32)).shape == (2, 3)


def test_frozen_batch_norm_mixes_no_rows() -> None:
    """It stays in evaluation mode with the statistics that it came with: a private run may train what is above, or beside."""
    net = nets.build(world("lenet_bn"))
    names = {name for name in net.state_dict() if not name.startswith("classifier.")}
    freeze(net, names)
    check_private(net.train())
    x, y = torch.randn(6, 1, 28, 28), torch.arange(6) % 3
    data = Data(MemoryRows(x), y, torch.zeros(6, dtype=torch.int64), ("d",))
    buffers = {name: each.clone() for name, each in net.named_buffers()}
    by = torch.optim.SGD(net.parameters(), 0.1)
    given = {"rate": 0.9, "steps": 2, "clip": 1.0, "noise": 1.0, "rows": 6, "stream": Stream(bytes(32))}
    fit_privately(net, data, cross_entropy, by, **given)  # type: ignore[arg-type]
    assert all(torch.equal(each, buffers[name]) for name, each in net.named_buffers())
    head, parts = nn.BatchNorm1d(4, track_running_stats=False).eval(), nn.Sequential(nn.Linear(2, 4))
    with pytest.raises(ConfigRefused, match="mixes rows"):
        check_private(parts.append(head))


def test_a_private_run_of_such_a_network_ends_in_a_model_that_is_exported(tmp_path: Path) -> None:
    """Refused with batch norm, with the way out; with it the run completes, and its file builds the same network again."""
    with registry.beside(OWN):
        given = asked(world={**VECTORS, "model": {"name": "own", "options": {"width": 8}}})
        with pytest.raises(ConfigRefused, match="norm: group") as refused:
            Stage(METHODS, sites()).start(given)
        assert refused.value.context["path"] == "model"
        stage = Stage(METHODS, sites(), parts=HoardingParts())
        run = stage.start(asked(world={**VECTORS, "model": {"name": "own", "options": {"width": 8, **GROUP}}}, privacy=NOISE))
        row = stage.play(run)
        assert row.status == "completed", row.cause
        ended = Ended(stage.result(run), METHODS, parts=stage.parts)
        assert any(isinstance(layer, nn.GroupNorm) for layer in nets.build(ended.whole).modules())
    assert blank(ended.whole).shape[1:] == (8,)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        *(("own", "safetensors"), ("lenet_bn", "onnx")),
        *(pytest.param(*x, marks=pytest.mark.nightly(job="numbers")) for x in (("own", "onnx"), ("lenet_bn", "safetensors"))),
    ],
)
def test_models_with_it_are_exported_and_predict_the_same(tmp_path: Path, name: str, suffix: str) -> None:
    """A private run from Python, whose file builds the network again; ONNX is compared with it where that is installed."""
    if suffix == "onnx":
        pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    shape = (8,) if name == "own" else (1, 8, 8)
    x, y = torch.randn(60, *shape, generator=Generator().manual_seed(4)), torch.arange(60) % 3
    run = tideline.simulate(
        {"method": "fedavg", "preset": "tiny", "privacy": NOISE},
        world={"inputs": list(shape), "classes": 3, "normalise": "none", "model": {"name": name, "options": dict(GROUP)}},
        sites={"anna": tideline.Site(train=(x, y)), "bert": tideline.Site(train=(x, y))},
        networks=OWN,
        progress=False,
    )
    assert run.status == "completed", run.cause
    file = tmp_path / f"model.{suffix}"
    run.export(file)
    if suffix == "safetensors":
        read = tideline.load(file, networks=OWN)
        assert torch.equal(read.predict(x).classes, run.model().predict(x).classes)
        assert any(isinstance(layer, nn.GroupNorm) for layer in read.modules())
