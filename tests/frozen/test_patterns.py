"""Which tensors `world.trains` names, and networks of which a part is frozen."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tests.frozen.played import IMAGES, drawn
from tideline import nets
from tideline.algorithms.stlf.client import telling
from tideline.core.asked.world import ALL, HEAD, World, world_in
from tideline.core.errors import ConfigRefused
from tideline.learning.model_file import digest_of
from tideline.nets import registry
from tideline.nets.partial import PartWorld

BN: dict[str, Any] = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}
NORM = "features.bottleneck.norm"
STATISTICS = {f"{NORM}.{each}" for each in ("running_mean", "running_var", "num_batches_tracked")}


class Recurrent(nn.Module):
    """Batch norm of the user's own, an LSTM, and a head whose weight is normed."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(1, 3, 3, padding=1), nn.BatchNorm1d(3))
        self.steps = nn.LSTM(3, 5, batch_first=True)
        self.out = weight_norm(nn.Linear(5, world.classes))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.out(self.steps(self.first(x[:, None]).mT)[0][:, -1])
        return made


@pytest.fixture
def recurrent() -> Iterator[dict[str, Any]]:
    """A world whose network is that."""
    with registry.beside({"recurrent": Recurrent}):
        yield {"inputs": [8], "classes": 3, "model": "recurrent"}


def names(world: dict[str, Any], *trains: str) -> set[str]:
    return set(nets.trained_names(world_in({**world, "trains": list(trains)})))


def seen(world: dict[str, Any], *trains: str, base: dict[str, Tensor] | None = None) -> World:
    """The world as a method sees it, over weights that are drawn."""
    weights = base or drawn(world)
    return nets.played(world_in({**world, "trains": list(trains)}), lambda: weights, digest_of(weights))


def test_patterns_name_tensors() -> None:
    """As a shell has them, dots and all; of several, whatever one of them matches."""
    assert names(BN, "features.backbone.[03].bias") == {"features.backbone.0.bias", "features.backbone.3.bias"}
    assert names(BN, "*.0.*", "classifier.bias") == {f"features.backbone.0.{each}" for each in ("weight", "bias")} | {
        "classifier.bias"
    }


def test_the_networks_own_names_are_known(recurrent: dict[str, Any]) -> None:
    """Beside those that its tensors have here."""
    assert names(recurrent, "steps.*") == names(recurrent, "features.steps.*") and len(names(recurrent, "steps.*")) == 4
    assert names(recurrent, "out.*") == names(recurrent, "classifier.*")
    lite = {"inputs": [3, 32, 32], "classes": 3, "model": "efficientnet_lite0"}
    assert names(lite, "_blocks.6.*") == {each for each in names(lite, "*") if each.startswith("features.steps.6.")}


@pytest.mark.parametrize("pattern", ["*.norm.weight", "*.norm.*", "*.norm.running_var"])
def test_statistics_go_with_their_layer(pattern: str) -> None:
    """Batch norm of which anything trains measures, and sends what it has measured."""
    assert names(BN, pattern, "classifier.*") >= STATISTICS
    assert not names(BN, "*.linear.*") & STATISTICS


def test_lists_that_are_all_or_the_head() -> None:
    """They are the same as the word; others stay as they were written."""
    for trains, same in (["*"], ALL), (["classifier.*"], HEAD), (["features.*", "classifier.*"], ALL), (["*.bias"], ("*.bias",)):
        assert nets.settled(world_in({**BN, "trains": trains})).trains == same


@pytest.mark.parametrize(
    ("trains", "what", "todo"),
    [
        (
            ["*", "layer4.*"],
            "world.trains has 'layer4.*', which no tensor of lenet_bn matches",
            "Write all, head, or patterns such as",
        ),
        (["*.botleneck.linear.weight"], "has '*.botleneck.linear.weight'", "(did you mean features.bottleneck.linear.weight"),
        (["backbon.?.*"], "has 'backbon.?.*'", "(did you mean features.backbone.0.weight"),
        (["Classifier.*"], "has 'Classifier.*'", "Its tensors: features.backbone.0.weight, features.backbone.0.bias"),
        ("heads", "has 'heads', which no tensor of lenet_bn matches", "(did you mean head?)"),
        (["*.bias", "head"], "has 'head'", "Write trains: head alone"),
        (["*.running_mean"], "nothing of that is trained: features.bottleneck.norm.running_mean", "Name a parameter"),
    ],
)
def test_what_the_network_has_not_is_refused(trains: Any, what: str, todo: str) -> None:
    """By name, with the names that there are and those that are near."""
    with pytest.raises(ConfigRefused) as refusal:
        nets.settled(world_in({**BN, "trains": trains}))
    assert what in refusal.value.what and todo in refusal.value.todo and refusal.value.context["path"] == "world.trains"


@pytest.mark.parametrize(
    ("trains", "what"),
    [
        ([], "world.trains is an empty list"),
        ("", "world.trains has an empty pattern"),
        (["a", " "], "world.trains has an empty pattern"),
        ([5], "world.trains[0] is 5; it should be a text"),
        ([["a"]], "world.trains[0] is ['a']; it should be a text"),
        (5, "world.trains is 5; it should be a list"),
        ({"head": True}, "it should be a list"),
        (None, "it should be a list"),
        (["a"] * 1001, "more than 1000 patterns"),
        (["a" * 1001], "more than 1000 characters"),
    ],
)
def test_what_are_no_patterns_is_refused(trains: Any, what: str) -> None:
    """Where the world is read, whatever the network."""
    with pytest.raises(ConfigRefused) as refusal:
        world_in({"trains": trains})
    assert what in refusal.value.what and str(refusal.value.context["path"]).startswith("world.trains")


def test_its_state_has_what_trains_alone() -> None:
    """The frozen tensors compute as they are held, and neither optimiser nor message has them."""
    base = drawn(BN)
    world = seen(BN, "*.linear.*", base=base)
    assert isinstance(world, PartWorld) and not nets.of_features(world)
    trained = {"features.bottleneck.linear.weight", "features.bottleneck.linear.bias"}
    assert set(nets.template(world)) == trained == set(nets.own_names(world))
    mine = {name: base[name] + 1 for name in trained}
    net, whole = nets.loaded(world, mine), nets.loaded(world_in(BN), base | mine)
    assert {name for name, _ in net.named_parameters()} == trained == set(net.state_dict())
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(net.eval()(x), whole.eval()(x)) and torch.equal(nets.features(net, x), nets.features(whole, x))
    torch.manual_seed(0)
    made = nets.weights_of(nets.build(world))
    torch.manual_seed(0)
    assert all(torch.equal(made[name], w) for name, w in nets.weights_of(nets.build(world_in(BN))).items() if name in trained)


def test_frozen_batch_norm_stays_in_evaluation_mode() -> None:
    """Whoever trains the network, or a copy; its statistics do not move. That of a layer which trains is as ever."""
    for trains, stays in (("*.linear.*", True), ("*.norm.bias", False)):
        base = drawn(BN)
        net = copy.deepcopy(nets.loaded(seen(BN, trains, base=base), {n: base[n] for n in names(BN, trains)})).train()
        assert net.get_submodule(NORM).training is not stays and net.get_submodule("features.bottleneck.dropout").training
        net(torch.rand(8, 1, 8, 8))
        measured = net.get_submodule(NORM).get_buffer("running_mean")
        assert torch.equal(measured, base[f"{NORM}.running_mean"]) is stays
        net.eval()
        assert not net.get_submodule(NORM).training
    net.load_state_dict(dict(net.state_dict()))  # without the counter that batch norm would ask for


def test_layers_that_hold_their_tensors_elsewhere(recurrent: dict[str, Any]) -> None:
    """A recurrent layer's list, and a normed weight's length and direction: frozen ones compute, the others get gradients."""
    base = drawn(recurrent)
    for trains in ("first.*", "steps.*_hh_*", "out.*original0", "steps.*"):
        world = seen(recurrent, trains, base=base)
        net = nets.loaded(world, {name: base[name] for name in names(recurrent, trains)}).train()
        x = torch.rand(4, *world.inputs)
        net(x).square().sum().backward()
        assert all(p.grad is not None and p.grad.abs().max() > 0 for p in net.parameters())
        whole = nets.loaded(world_in(recurrent), base | net.state_dict()).eval()
        assert torch.allclose(net.eval()(x), (whole.get_submodule("classifier") if nets.of_features(world) else whole)(x))


def test_of_a_frozen_encoder_a_method_sees_features() -> None:
    """With what of the head trains."""
    base = drawn(IMAGES)
    world = seen(IMAGES, "classifier.bias", base=base)
    assert nets.of_features(world) and world.inputs == (128,) and set(nets.template(world)) == {"classifier.bias"}
    net = nets.loaded(world, {"classifier.bias": torch.ones(3)})
    f = torch.rand(2, 128)
    assert torch.equal(net(f), nn.functional.linear(f, base["classifier.weight"], torch.ones(3)))


@pytest.mark.parametrize("trains", ["head", "classifier.bias", "features.0.*"])
def test_a_copy_with_another_head(trains: str) -> None:
    """As a method asks for it that tells sites apart: so many outputs, and all of the head trains."""
    world = seen(IMAGES, trains)
    for devices in (2, 3, 5):
        made = telling(devices)(world)
        assert made.get_submodule("classifier").weight.shape[0] == devices  # type: ignore[union-attr, index]
        assert {"classifier.weight", "classifier.bias"} <= set(made.state_dict())
        net = nets.loaded(world, nets.weights_of(made), made=telling(devices))
        x = torch.rand(2, *world.inputs)
        assert torch.equal(net(x), made(x))


def test_a_process_holds_them_once() -> None:
    """However many worlds are over the same file: simulated sites share what is frozen. Nobody reads before it is wanted."""
    weights = drawn(BN, 11)
    reads = list[str]()

    def read() -> dict[str, Tensor]:
        reads.append("once")
        return weights

    worlds = [nets.played(world_in({**BN, "trains": ["*.linear.*"]}), read, digest_of(weights)) for _ in range(3)]
    assert [set(nets.template(each)) for each in worlds] == [names(BN, "*.linear.*")] * 3 and not reads
    for each in worlds:
        nets.build(each)
    assert reads == ["once"]
