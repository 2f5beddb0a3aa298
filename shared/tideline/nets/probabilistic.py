"""The world's network with an encoder that emits a distribution: features f(x) = (mu(x), s(x)), 2 m numbers for m.

The last linear layer inside `features` gets twice as many outputs, and what follows it in its Sequential (activation, norm,
dropout) is dropped: mu takes any value, and the scale sigma = softplus(s) is computed from s by `encoded`. The classifier, m
numbers to classes, is the world's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.core.errors import ConfigRefused
from tideline.core.run import World


def build(world: World) -> nn.Module:
    """The network, initialised from torch's global generator. Raises ConfigRefused for one without a layer to widen."""
    net = nets.build(world)
    features = net.get_submodule("features")
    inside = [name for name, module in features.named_modules() if isinstance(module, nn.Linear)]
    parent, _, last = inside[-1].rpartition(".") if inside else ("", "", "")
    holder = features.get_submodule(parent)
    if not inside or not isinstance(holder, nn.Sequential):
        raise ConfigRefused(
            f"world.model is {world.model}, which has no linear layer before its classifier that could emit a mean and a scale",
            "Use a network with such a layer, such as lenet, mlp or resnet18 (docs/networks.md)",
            path="world.model",
        )
    widen(holder, last)
    return net


def widen(holder: nn.Sequential, name: str) -> None:
    """Put a linear layer of twice the outputs in the place of one, and drop what follows it. Names stay as they are."""
    names = [each for each, _ in holder.named_children()]
    old = holder.get_submodule(name)
    assert isinstance(old, nn.Linear)
    for each in names[names.index(name) + 1 :]:
        delattr(holder, each)
    setattr(holder, name, nn.Linear(old.in_features, 2 * old.out_features, bias=old.bias is not None))


def width(world: World) -> int:
    """m, the size of a representation. Costs no memory. Raises ConfigRefused."""
    with torch.device("meta"), torch.no_grad():
        return int(build(world).get_submodule("features")(torch.empty(2, *world.inputs)).shape[1]) // 2


def encoded(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """mu and sigma of rows x (n, *inputs): (n, m) each, sigma >= 0."""
    mu, s = net.get_submodule("features")(x).chunk(2, dim=1)
    return mu, functional.softplus(s)
