"""The networks beside G and C of federated adversarial adaptation: DI, D, CI, R, M, made from the sizes of G's outputs.

Peng et al., "Federated Adversarial Domain Adaptation", ICLR 2020, and its authors' code; with f_conv of 8192, f of 2048 and with
3920, 50 they have the layers of that code. Of a network whose features are not made of body and head, f_conv is f.

Shapes: f_conv (n, q), f (n, d), p the number of DI's parameters, K classes.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.core.asked.world import World
from tideline.nets import registry
from tideline.nets.shapes.rows import blank
from tideline.nets.small import narrowing

SLOPE = 0.2  # of LeakyReLU below zero
SMALL = 128  # features up to which hidden layers are those of the small network


def parted(net: nn.Module) -> tuple[nn.Module, nn.Module]:
    """body (n, *inputs) -> f_conv (n, q), and head f_conv -> f (n, d)."""
    features = net.get_submodule("features")
    names = [name for name, _ in features.named_children()]
    if isinstance(features, nn.Sequential) and names == ["body", "head"]:
        return features.get_submodule("body"), features.get_submodule("head")
    return features, nn.Identity()


def sizes(world: World) -> tuple[int, int]:
    """q and d of the world's network. Costs no memory. Raises ConfigRefused."""
    return measured_sizes(nets.key_of(world))


@lru_cache(maxsize=nets.SEVERAL)
def measured_sizes(key: nets.Key) -> tuple[int, int]:
    """q and d, by a pass without numbers; as in `nets.measured_width`."""
    if not registry.is_built_in(key.model):
        return nets.measured_width(key), nets.measured_width(key)
    with torch.device("meta"), torch.no_grad():
        body, head = parted(nets.build(key.world))
        f_conv = body(blank(key.world))
        return int(f_conv.shape[1]), int(head(f_conv).shape[1])


def identifier(d: int) -> nn.Sequential:
    """DI: (n, d) -> (n, 1), the logit of "source". No batch norm: then the gradient of eq. 4 is a sum over parties."""
    h = 10 if d <= SMALL else d // 8
    return nn.Sequential(nn.Linear(d, h), nn.LeakyReLU(SLOPE), nn.Linear(h, 1))


@lru_cache(maxsize=nets.SEVERAL)
def shapes(d: int) -> tuple[torch.Size, ...]:
    """Of DI's parameters, in their order. Building it takes longer than what it then makes of a mini-batch."""
    with torch.device("meta"):
        return tuple(w.shape for w in identifier(d).parameters())


def numbers(d: int) -> int:
    return sum(shape.numel() for shape in shapes(d))


def logits(di: Tensor, f: Tensor) -> Tensor:
    """What an identifier, given as the vector of its parameters (p,), makes of features (n, d): (n,). Differentiable in both."""
    given = shapes(f.shape[1])
    w, b, v, c = (part.view(shape) for part, shape in zip(torch.split(di, [s.numel() for s in given]), given, strict=True))
    return functional.linear(functional.leaky_relu(functional.linear(f, w, b), SLOPE), v, c).squeeze(1)


class Information(nn.Module):
    """M: T(p, q) of p, q (n, d): (n,). The estimator of mutual information (Belghazi et al., ICML 2018)."""

    def __init__(self, d: int) -> None:
        super().__init__()
        h = 10 if d <= SMALL else d // 4
        self.p, self.q, self.out = nn.Linear(d, h), nn.Linear(d, h), nn.Linear(h, 1)

    def forward(self, p: Tensor, q: Tensor) -> Tensor:
        scores: Tensor = self.out(functional.leaky_relu(self.p(p) + self.q(q), SLOPE)).squeeze(1)
        return scores


class Beside(nn.Module):
    """What a source has beside G and C: D makes f_ds, CI names its class, M measures what it tells of f_di, R undoes both."""

    def __init__(self, q: int, d: int, classes: int) -> None:
        super().__init__()
        self.D = narrowing(q, 4 * d if d <= SMALL else 3 * d // 2, d)
        self.CI = nn.Linear(d, classes)
        self.R = nn.Linear(2 * d, q)
        self.M = Information(d)


def beside(world: World) -> Beside:
    """For the world's network, initialised from torch's global generator. Raises ConfigRefused."""
    return Beside(*sizes(world), world.classes)
