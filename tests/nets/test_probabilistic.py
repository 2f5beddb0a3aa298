"""Networks whose encoder emits a mean and a scale."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nets.test_shapes import WORLDS
from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.nets import probabilistic
from tideline.nets.layers import backbone_of, classifier_of

PHOTOS = World(inputs=(3, 32, 32), classes=5, model="lenet")
WIDENED = {
    "lenet": "features.7",
    "mlp": "features.1",
    "tabular": "features.1",
    "lenet_bn": "features.bottleneck.linear",
    "convnet": "features.8",
    "inception": "features.12",
    **dict.fromkeys(("conv1d", "conv3d"), "features.9"),
    "tokens": "features.1",
    **dict.fromkeys(("fada_digits", "fada_small"), "features.head.4"),
    **dict.fromkeys(("resnet18", "resnet50", "resnet18_wn", "resnet50_wn"), "features.bottleneck.linear"),
}
every = pytest.mark.parametrize("name", WIDENED)


def test_every_network_with_features_is_tried() -> None:
    """A new network has its layer named here, unless its encoder ends in a convolution, and there is none to widen."""
    assert WIDENED.keys() == nets.NETS.keys() - {"linear", "efficientnet_lite0"}


@every
def test_one_layer_is_twice_as_wide_and_the_last(name: str) -> None:
    """All else of the encoder and the classifier are as they were; norm, dropout and activation behind it are gone."""
    world = WORLDS.get(name, replace(PHOTOS, model=name, inputs=(32,) if name == "tabular" else PHOTOS.inputs))
    ours, theirs, layer = nets.template(world, made=probabilistic.build), nets.template(world), WIDENED[name]
    m = nets.width(world)
    assert probabilistic.width(world) == m
    assert ours[f"{layer}.weight"].shape == (2 * m, theirs[f"{layer}.weight"].shape[1])
    assert ours[f"{layer}.bias"].shape == (2 * m,)
    gone = {n for n in theirs if n.startswith(("features.bottleneck.norm.", "features.head.5."))}
    kept = {n: w.shape for n, w in theirs.items() if n not in gone and not n.startswith(f"{layer}.")}
    assert {n: w.shape for n, w in ours.items() if not n.startswith(f"{layer}.")} == kept
    assert classifier_of(ours).keys() == classifier_of(theirs).keys() and backbone_of(ours)
    with torch.device("meta"):
        net = probabilistic.build(world)
    inside = [module for module in net.get_submodule("features").modules() if not list(module.children())]
    assert isinstance(inside[-1], nn.Linear)


@pytest.mark.parametrize("name", ["lenet", "lenet_bn", "mlp", "resnet18_wn"])
def test_it_encodes_and_classifies(name: str) -> None:
    """mu of either sign and sigma above 0, (n, m) each, by halves of what the encoder emits; z goes into the classifier."""
    world = replace(PHOTOS, model=name)
    torch.manual_seed(0)
    net = probabilistic.build(world).eval()
    x = torch.randn(4, *world.inputs, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        emitted = net.get_submodule("features")(x)
        mu, sigma = probabilistic.encoded(net, x)
        logits = net.get_submodule("classifier")(mu)
    m = probabilistic.width(world)
    assert torch.equal(mu, emitted[:, :m]) and torch.equal(sigma, functional.softplus(emitted[:, m:]))
    assert bool((mu < 0).any()) and bool((sigma > 0).all()) and logits.shape == (4, 5)


def test_weights_come_back() -> None:
    """What is built, taken out and put in again computes the same; it is drawn from torch's global generator alone."""
    world = replace(PHOTOS, model="lenet_bn")
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(nets.weights_of(probabilistic.build(world)))
    assert all(torch.equal(w, drawn[1][n]) for n, w in drawn[0].items())
    net = nets.loaded(world, drawn[0], made=probabilistic.build)
    assert all(torch.equal(w, drawn[0][n]) for n, w in nets.weights_of(net).items())


@pytest.mark.parametrize("do", [nets.check, nets.template])
def test_a_network_without_such_a_layer_is_refused(do: object) -> None:
    with pytest.raises(ConfigRefused, match="linear, which has no linear layer before its classifier") as refusal:
        do(World(inputs=(8,), model="linear"), made=probabilistic.build)  # type: ignore[operator]
    assert refusal.value.context["path"] == "world.model" and "lenet" in refusal.value.todo


def test_inputs_that_do_not_fit_are_refused_as_ever() -> None:
    with pytest.raises(ConfigRefused, match="takes images"):
        nets.check(World(inputs=(8,), model="lenet"), made=probabilistic.build)
    with pytest.raises(ConfigRefused, match="no such network"):
        nets.check(World(inputs=(8,), model="lenett"), made=probabilistic.build)
