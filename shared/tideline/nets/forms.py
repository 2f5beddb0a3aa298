"""What a method's models are built of: the world's network as it is, or with something around it.

Each form is a module whose output is (n, classes), the softmax of which are probabilities, and whose state dict is all that a
model file holds. A form is built to hold given tensors: their names and shapes say what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.core.algorithm import NETWORK
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.settings import Plain, nearest
from tideline.nets import probabilistic
from tideline.numerics.alignment.feature_maps import KINDS, scaled

Weights = Mapping[str, Tensor]
Options = Mapping[str, Plain]
MEAN, COMMITTEE, PROTOTYPES = "mean_encoder", "committee", "prototypes"
INSIDE = "network."  # before the names of the world's network, in forms that have more
LEAST = torch.finfo(torch.float32).tiny  # of a probability, so that its logarithm is finite


class Committee(nn.Module):
    """Linear layers on the network's features, and the network itself, whose probabilities are averaged by shares.

    Members of `own` see features (z - shift) / stretch, and then as `scaling` says; those of `common` see
    (z - common_shift) / common_stretch. Where data are features there is no network. x (n, *inputs) -> log of probabilities.
    """

    def __init__(self, world: World, like: Weights, options: Options) -> None:
        super().__init__()
        self.scaling = str(options.get("scaling"))
        if self.scaling not in KINDS:
            raise ConfigRefused(f"The form committee has scaling {self.scaling!r}", f"Use one of: {', '.join(KINDS)}")
        self.network = nets.build(world) if any(name.startswith(INSIDE) for name in like) else None
        self.has = frozenset(name for name in like if not name.startswith(INSIDE))
        for name in sorted(self.has):
            self.register_buffer(name, torch.empty(like[name].shape, dtype=like[name].dtype))

    def forward(self, x: Tensor) -> Tensor:
        z = self.network.get_submodule("features")(x) if self.network is not None else x.flatten(1)
        p = x.new_zeros(())
        if "own_share" in self.has:
            p = p + self.members("own", scaled(z, self.get_buffer("shift"), self.get_buffer("stretch"), self.scaling))
        if "common_share" in self.has:
            p = p + self.members("common", (z - self.get_buffer("common_shift")) / self.get_buffer("common_stretch"))
        if "network_share" in self.has and self.network is not None:
            p = p + self.get_buffer("network_share") * self.network.get_submodule("classifier")(z).softmax(1)
        return p.clamp_min(LEAST).log()

    def members(self, of: str, z: Tensor) -> Tensor:
        """sum_m share_m softmax(W_m z + b_m): z (n, d) -> (n, classes)."""
        weight, bias, share = (self.get_buffer(f"{of}_{part}") for part in ("weight", "bias", "share"))
        p = (torch.einsum("nd,mkd->mnk", z, weight) + bias[:, None]).softmax(-1)
        return (share[:, None, None] * p).sum(0)


class Vote(nn.Module):
    """The mean of the probabilities of modules, by shares of sum 1. x (n, *inputs) -> log of probabilities (n, classes)."""

    def __init__(self, modules: Sequence[nn.Module], shares: Sequence[float]) -> None:
        super().__init__()
        self.voters, self.shares = nn.ModuleList(modules), tuple(shares)

    def forward(self, x: Tensor) -> Tensor:
        each = [share * module(x).softmax(1) for share, module in zip(self.shares, self.voters, strict=True)]
        return torch.stack(each).sum(0).clamp_min(LEAST).log()


class Prototypes(nn.Module):
    """A head over the network's features whose projections are compared with a prototype of each class that has one.

    Where no class has one the network itself predicts. x (n, *inputs) -> (n, classes), -inf for a class without a prototype.
    """

    mean: Tensor
    present: Tensor

    def __init__(self, world: World, like: Weights, options: Options) -> None:
        super().__init__()
        self.normalise = bool(options.get("normalise", False))
        self.network = nets.build(world)
        (hidden, q), (width, _) = (check_shape(like, f"head.{i}.weight", 2) for i in (0, 2))
        self.head = nn.Sequential(nn.Linear(q, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.register_buffer("mean", torch.empty(check_shape(like, "mean", 2)))
        self.register_buffer("present", torch.empty(check_shape(like, "present", 1), dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        f = self.network.get_submodule("features")(x)
        z, mean = self.aligned(self.head(f)), self.aligned(self.mean)
        near = (z @ mean.mT).masked_fill(~self.present, -torch.inf)
        return torch.where(self.present.any(), near, self.network.get_submodule("classifier")(f))

    def aligned(self, z: Tensor) -> Tensor:
        return functional.normalize(z, dim=-1) if self.normalise else z


def check_shape(like: Weights, name: str, dims: int) -> tuple[int, ...]:
    """The shape of a tensor of so many dims. Raises ConfigRefused."""
    if name not in like or like[name].dim() != dims:
        raise ConfigRefused(f"{name} is missing, or has not {dims} dims", "The file is no model of this form")
    return tuple(like[name].shape)


Build = Callable[[World, Weights, Options], nn.Module]
FORMS: Mapping[str, Build] = {
    NETWORK: lambda world, like, options: nets.build(world),
    MEAN: lambda world, like, options: probabilistic.narrow(world),
    COMMITTEE: Committee,
    PROTOTYPES: Prototypes,
}


def check(form: str, world: World, weights: Weights, options: Options) -> None:
    """Raises ConfigRefused unless there is the form, and names and shapes are those of its module. Costs no memory."""
    if form not in FORMS:
        raise ConfigRefused(
            f"There is no form {form!r}", f"Use one of: {', '.join(FORMS)}{nearest(form, tuple(FORMS))}", path="form"
        )
    with torch.device("meta"):
        like = FORMS[form](world, weights, options).state_dict()
    check_names(like, weights)


def loaded(form: str, world: World, weights: Weights, options: Options, device: str = "cpu") -> nn.Module:
    """The form's module with these weights, in evaluation mode. Raises ConfigRefused for weights that are not the form's."""
    check(form, world, weights, options)
    return nets.loaded(world, weights, device, made=lambda world: FORMS[form](world, weights, options)).eval()


def check_names(like: Weights, weights: Weights) -> None:
    """Raises ConfigRefused unless names and shapes agree."""
    odd = [
        name for name in (*like, *weights) if not (name in like and name in weights and like[name].shape == weights[name].shape)
    ]
    if odd:
        raise ConfigRefused(f"{odd[0]} is missing, unknown or of another shape", "The file is damaged, or of another network")
