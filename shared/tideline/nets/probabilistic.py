"""The world's network with an encoder that emits a distribution, and the terms that keep such a representation simple.

Features are f(x) = (mu(x), s(x)), 2 m numbers for m. The last linear layer inside `features` gets twice as many outputs, and
what follows it in its Sequential (activation, norm, dropout) is dropped: mu takes any value, and the scale sigma = softplus(s)
is computed from s by `encoded`. The classifier, m numbers to classes, is the world's.

Terms: Nguyen, Torr, Lim, NeurIPS 2022. Shapes: n rows, m numbers of a representation, K classes, S draws. For a row x with the
label y the encoder gives mu (m,) and sigma (m,), and z ~ N(mu, diag sigma^2). The class's reference is N(r_mu[y], diag
r_sigma[y]^2), r_sigma = softplus(r_s); C is one number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.nets.partial import PartWorld
from tideline.nets.shapes.rows import blank

LEAST = 1e-6  # of a deviation, so that its logarithm is finite


def build(world: World, times: int = 2) -> nn.Module:
    """The network, initialised from torch's global generator. Raises ConfigRefused for one without a layer to widen."""
    if isinstance(world, PartWorld):
        what = f"A part of {world.model} is frozen, and the layer before its classifier is to become another one"
        raise ConfigRefused(what, "Let all of it train", path="world.trains")
    net = nets.build(world)
    if nets.is_apart(net):
        raise ConfigRefused(
            f"world.model is {world.model}, and of a network that is not built in it is not known which layer could emit a mean"
            " and a scale",
            "Use a network with a bottleneck, such as model: {name: torchvision/resnet18, options: {bottleneck: 256}}, or lenet",
            path="world.model",
        )
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
    widen(holder, last, times)
    return net


def widen(holder: nn.Sequential, name: str, times: int = 2) -> None:
    """Put a linear layer of so many times the outputs in the place of one, and drop what follows it. Names stay as they are."""
    names = [each for each, _ in holder.named_children()]
    old = holder.get_submodule(name)
    assert isinstance(old, nn.Linear)
    for each in names[names.index(name) + 1 :]:
        delattr(holder, each)
    setattr(holder, name, nn.Linear(old.in_features, times * old.out_features, bias=old.bias is not None))


def narrow(world: World) -> nn.Module:
    """The network whose features are mu (n, m) alone, without a scale: what such an encoder predicts with. Raises as `build`."""
    return build(world, times=1)


def means(world: World, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of `narrow` in those of `build`: the widened layer gives mu by its first half of rows."""
    with torch.device("meta"):
        like = narrow(world).state_dict()
    return {name: w[: len(like[name])] if w.dim() else w for name, w in weights.items()}


def width(world: World) -> int:
    """m, the size of a representation. Costs no memory. Raises ConfigRefused."""
    with torch.device("meta"), torch.no_grad():
        features = build(world).get_submodule("features").eval()
    device = next((each.device for each in features.parameters()), torch.device("meta"))
    with torch.no_grad():
        return int(features(blank(world, device=device)).shape[1]) // 2


def encoded(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """mu and sigma of rows x (n, *inputs): (n, m) each, sigma >= 0."""
    mu, s = net.get_submodule("features")(x).chunk(2, dim=1)
    return mu, functional.softplus(s)


@dataclass(frozen=True)
class References:
    """What representations of a class are drawn to: r_mu (K, m), r_s (K, m), and C ()."""

    r_mu: Tensor
    r_s: Tensor
    C: Tensor

    @property
    def r_sigma(self) -> Tensor:
        """softplus(r_s), (K, m)."""
        return functional.softplus(self.r_s)


def length(z: Tensor, squared: bool = False) -> Tensor:
    """The mean over rows (n, m) of |z|_2, or of its square: a number."""
    squares = z.square().sum(1)
    # The root of 0 has no slope; the norm's own gradient there is 0.
    return squares.mean() if squared else torch.linalg.vector_norm(z, dim=1).mean()


def divergence(mu: Tensor, sigma: Tensor, r_mu: Tensor, r_sigma: Tensor) -> Tensor:
    """KL(N(mu, diag sigma^2) || N(r_mu, diag r_sigma^2)) of each row: (n, m) each -> (n,)."""
    each = r_sigma.log() - sigma.log() + (sigma.square() + (mu - r_mu).square()) / (2 * r_sigma.square()) - 0.5
    return each.sum(1)


def class_divergence(mu: Tensor, sigma: Tensor, y: Tensor, references: References) -> Tensor:
    """The mean over rows of the divergence of N(C mu, diag (C sigma)^2) from the reference of the row's class: a number.

    mu, sigma (n, m), y (n,). It bounds what z tells of x beyond what y does. Deviations below LEAST count as LEAST.
    """
    r = references
    ours, theirs = (r.C * sigma).clamp_min(LEAST), r.r_sigma.clamp_min(LEAST)
    return divergence(r.C * mu, ours, r.r_mu[y], theirs[y]).mean()


def log_mean_softmax(logits: Tensor) -> Tensor:
    """log of the mean over draws of the softmax: (S, n, K) -> (n, K)."""
    return logits.log_softmax(2).logsumexp(0) - math.log(len(logits))
