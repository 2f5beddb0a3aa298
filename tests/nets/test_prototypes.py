"""A copy of a network is the network: its numbers, its own tensors, its ties; and what cannot be copied is built."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tideline import nets
from tideline.core.asked.world import World
from tideline.nets.prototypes import Prototype

WORLDS = {
    "mlp": World(inputs=(6,), model="mlp"),
    "lenet_bn": World(inputs=(1, 28, 28), model="lenet_bn"),
    "resnet18": World(inputs=(3, 32, 32), model="resnet18"),
}


def empty(net: type[nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return net()


@pytest.mark.parametrize("model", WORLDS)
def test_a_copy_computes_what_the_network_does(model: str) -> None:
    world = WORLDS[model]
    net = nets.build(world).eval()
    copy = nets.loaded(world, nets.weights_of(net)).eval()
    x = torch.rand(2, *world.inputs)
    assert torch.equal(net(x), copy(x))
    assert copy.state_dict().keys() == net.state_dict().keys()


def test_a_copy_shares_nothing() -> None:
    """Training one changes neither the weights that it was made of nor another copy; nor do hooks."""
    world = WORLDS["mlp"]
    weights = nets.weights_of(nets.build(world))
    before = {name: each.clone() for name, each in weights.items()}
    one, other = nets.loaded(world, weights), nets.loaded(world, weights)
    one.register_forward_hook(lambda *given: None)
    with torch.no_grad():
        for each in one.parameters():
            each.add_(1.0)
    assert all(torch.equal(weights[name], before[name]) for name in before)
    assert all(torch.equal(each, before[name]) for name, each in other.state_dict().items())
    assert not other._forward_hooks
    assert one.training


class Tied(nn.Module):
    """Two names for one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(2, 2), nn.Linear(2, 2)
        self.other.weight = self.one.weight


def test_tied_weights_stay_tied() -> None:
    made = Prototype(empty(Tied)).filled(nets.weights_of(Tied()), "cpu")
    assert made is not None
    assert made.one.weight is made.other.weight


class Listed(nn.Module):
    """A list refers to a layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.order = [self.layer]


class Unsaved(nn.Module):
    """A buffer that no state_dict names."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(1), persistent=False)


@pytest.mark.parametrize("net", [Listed, Unsaved])
def test_what_a_copy_would_lose_is_not_copied(net: type[nn.Module]) -> None:
    assert Prototype(empty(net)).filled(nets.weights_of(net()), "cpu") is None


@pytest.mark.parametrize("odd", [{}, {"weight": torch.zeros(3, 2), "bias": torch.zeros(2)}, {"weight": torch.zeros(2, 2)}])
def test_weights_of_another_network_are_refused_as_ever(odd: dict[str, Tensor]) -> None:
    with torch.device("meta"):
        prototype = Prototype(nn.Linear(2, 2))
    assert prototype.filled(odd, "cpu") is None
    with pytest.raises(RuntimeError):
        nets.loaded(WORLDS["mlp"], odd)


def test_numbers_of_another_dtype_are_converted_as_ever() -> None:
    world = WORLDS["mlp"]
    weights = {name: each.double() for name, each in nets.weights_of(nets.build(world)).items()}
    assert {each.dtype for each in nets.loaded(world, weights).parameters()} == {torch.float32}
