"""Networks of somebody else's, as an engineer writes them, for tests: those that work and those that cannot."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.nets.small import MLP


class Convolutions(nn.Module):
    """A convolution with batch norm, its head `fc`."""

    def __init__(self, world: World, width: int = 4, drop: float = 0.0, deep: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(world.inputs[0], width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(drop)
        self.more = nn.Conv2d(width, width, 3, padding=1) if deep else nn.Identity()
        self.fc = nn.Linear(width, world.classes)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = functional.relu(self.norm(self.more(self.conv(x))))
        return self.fc(self.drop(h.mean((2, 3))))


def convolutions(world: World, width: int = 4, drop: float = 0.0, deep: bool = False) -> nn.Module:
    return Convolutions(world, width, drop, deep)


def sequence(world: World, *, hidden: tuple[int, ...] = (6,), act: Literal["relu", "tanh"] = "relu") -> nn.Module:
    """All in one Sequential; the head is its last."""
    sizes = [math.prod(world.inputs), *hidden]
    kind = {"relu": nn.ReLU, "tanh": nn.Tanh}[act]
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.BatchNorm1d(b), kind())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Dropout(0.1), nn.Linear(sizes[-1], world.classes))


class Named(nn.Module):
    """Two layers give a number for each class; its class says which is the head."""

    classifier_name = "ends.first"

    def __init__(self, world: World) -> None:
        super().__init__()
        n = world.classes
        self.body = nn.Linear(math.prod(world.inputs), n)
        self.ends = nn.ModuleDict({"first": nn.Sequential(nn.Tanh(), nn.Linear(n, n)), "last": nn.Linear(n, n)})

    def forward(self, x: Tensor) -> Tensor:
        return self.ends["first"](self.body(x.flatten(1)))


class Unsaved(nn.Module):
    """Its scale is in no state dict, and part of what it draws at random is not either."""

    def __init__(self, world: World) -> None:
        super().__init__()
        d = math.prod(world.inputs)
        self.register_buffer("scale", torch.full((1,), 3.0), persistent=False)
        self.register_buffer("mix", torch.randn(d, 5), persistent=False)
        self.fc = nn.Linear(5, world.classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.scale * (x.flatten(1) @ self.mix))


class Shaped(nn.Module):
    """Two linear layers: the base of those that differ in one thing."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.body = nn.Linear(math.prod(world.inputs), 5)
        self.fc = nn.Linear(5, world.classes)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.body(x.flatten(1)))


def ending(end: Callable[[nn.Module, Tensor, Tensor], Any]) -> type[Shaped]:
    """Return a network that gives what `end` makes of itself, its logits and its input."""

    class Ending(Shaped):
        def forward(self, x: Tensor) -> Any:
            return end(self, super().forward(x), x)

    return Ending


def having(change: Callable[[Shaped, World], None]) -> type[Shaped]:
    """Return a network that is changed after it is built."""

    class Having(Shaped):
        def __init__(self, world: World) -> None:
            super().__init__(world)
            change(self, world)

    return Having


def raise_in_forward(net: nn.Module, logits: Tensor, x: Tensor) -> Any:
    raise KeyError("a word of its own")


def share_a_weight(net: Shaped, world: World) -> None:
    net.twin = nn.Linear(math.prod(world.inputs), 5)
    net.twin.weight = net.body.weight


class Headless(nn.Module):
    """No layer gives a number for each class."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(math.prod(world.inputs), world.classes))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight


class Flattening(nn.Module):
    """What enters the head is no row of features."""

    classifier_name = "fc"

    def __init__(self, world: World) -> None:
        super().__init__()
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(world.inputs), world.classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


DRAWN: list[int] = []


def changing(world: World) -> nn.Module:
    DRAWN.append(1)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(world.inputs), 4 + len(DRAWN)), nn.Linear(4 + len(DRAWN), world.classes)
    )


def breaking(world: World, width: int = 3) -> nn.Module:
    raise ValueError("a word of its own")


def no_module(world: World) -> Any:
    return 3


def picky(world: World) -> nn.Module:
    """A builder that refuses by itself."""
    raise ConfigRefused("This one takes squares", "Write squares", path="world.inputs")


def apart(world: World) -> nn.Module:
    """A network that is made of features and classifier already."""
    return MLP(math.prod(world.inputs), (7,), world.classes)


def needy(world: World, depth: int, *, names: list[str], rate: float | None = None) -> nn.Module:
    """A builder that cannot do without."""
    return nn.Sequential(nn.Flatten(), *[nn.Identity()] * depth, nn.Linear(math.prod(world.inputs), world.classes))


def odd_hint(world: World, act: Callable[[Tensor], Tensor] = torch.relu) -> nn.Module:
    """A builder that takes what no file can say."""
    return Shaped(world)


def anything(world: World, **options: Any) -> nn.Module:
    return Shaped(world)


def nothing() -> nn.Module:
    return nn.Linear(1, 1)


NETWORKS: Mapping[str, Callable[..., nn.Module]] = {
    **{x.__name__.lower(): x for x in (Convolutions, Named, Unsaved, Shaped, Headless, Flattening)},
    **{x.__name__: x for x in (sequence, changing, breaking, no_module, picky, apart, needy, odd_hint, anything, nothing)},
    "softmaxed": ending(lambda net, logits, x: logits.log_softmax(1)),
    "raising": ending(raise_in_forward),
    "odd": ending(lambda net, logits, x: logits[:, :1]),
    "pair": ending(lambda net, logits, x: (logits, x)),
    "auxiliary": ending(lambda net, logits, x: (logits, x) if net.training else logits),
    "notfinite": ending(lambda net, logits, x: logits * float("nan")),
    "lazy": having(lambda net, world: setattr(net, "body", nn.LazyLinear(5))),
    "shared": having(share_a_weight),
    "plainly": having(lambda net, world: setattr(net, "mean", torch.ones(5))),
    "listed": having(lambda net, world: setattr(net, "layers", [nn.Linear(5, 5)])),
    "misnamed": having(lambda net, world: setattr(net, "classifier_name", "nowhere")),
}
REPLACING = {"lenet": convolutions}
FAMILY = {"torchvision/mine": convolutions}
BUILT = Shaped(World(inputs=(2,)))
NOT_CALLABLE = {"x": 3}
NO_NAME = {"": convolutions}
NONE_AT_ALL: dict[str, Any] = {}


def grey(world: World) -> nn.Module:
    """For images of 32 x 32 in grey alone."""
    return nn.Sequential(nn.Flatten(), nn.Linear(1024, 8), nn.ReLU(), nn.Linear(8, world.classes))


class Caching(nn.Module):
    """Keeps in evaluation what it has computed of its weights, until it is trained."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.scale, self.fc = nn.Parameter(torch.ones(1)), nn.Linear(math.prod(world.inputs), world.classes)
        self.seen: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = {}
        scale = self.scale.exp() if self.training else self.seen.setdefault("scale", self.scale.exp())
        return self.fc(x.flatten(1) * scale)


def caching(world: World) -> nn.Module:
    return Caching(world)
