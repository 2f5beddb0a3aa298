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
        """x (n, c, h, w) -> (n, classes)."""
        h: Tensor = functional.relu(self.norm(self.more(self.conv(x))))
        made: Tensor = self.fc(self.drop(h.mean((2, 3))))
        return made


def convolutions(world: World, width: int = 4, drop: float = 0.0, deep: bool = False) -> nn.Module:
    """The same, by a function."""
    return Convolutions(world, width, drop, deep)


def sequence(world: World, *, hidden: tuple[int, ...] = (6,), act: Literal["relu", "tanh"] = "relu") -> nn.Module:
    """All in one Sequential; the head is its last."""
    sizes = [math.prod(world.inputs), *hidden]
    kind = {"relu": nn.ReLU, "tanh": nn.Tanh}[act]
    layers = [each for a, b in pairwise(sizes) for each in (nn.Linear(a, b), nn.BatchNorm1d(b), kind())]
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
        """x (n, ...) -> (n, classes)."""
        made: Tensor = self.ends["first"](self.body(x.flatten(1)))
        return made


class Unsaved(nn.Module):
    """Its scale is in no state dict, and part of what it draws at random is not either."""

    def __init__(self, world: World) -> None:
        super().__init__()
        d = math.prod(world.inputs)
        self.register_buffer("scale", torch.full((1,), 3.0), persistent=False)
        self.register_buffer("mix", torch.randn(d, 5), persistent=False)
        self.fc = nn.Linear(5, world.classes)

    def forward(self, x: Tensor) -> Tensor:
        """x (n, ...) -> (n, classes)."""
        made: Tensor = self.fc(self.scale * (x.flatten(1) @ self.mix))
        return made


class Shaped(nn.Module):
    """A base for those that differ in one thing."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.body = nn.Linear(math.prod(world.inputs), 5)
        self.fc = nn.Linear(5, world.classes)

    def forward(self, x: Tensor) -> Any:
        """x (n, ...) -> (n, classes)."""
        return self.fc(self.body(x.flatten(1)))


class Softmaxed(Shaped):
    """Ends after its head."""

    def forward(self, x: Tensor) -> Any:
        """Probabilities."""
        return super().forward(x).log_softmax(1)


class Raising(Shaped):
    """Cannot compute."""

    def forward(self, x: Tensor) -> Any:
        """Raises."""
        raise KeyError("a word of its own")


class Odd(Shaped):
    """Gives no number for each class."""

    def forward(self, x: Tensor) -> Any:
        """Of another shape."""
        return super().forward(x)[:, :1]


class Pair(Shaped):
    """Gives two things."""

    def forward(self, x: Tensor) -> Any:
        """A pair."""
        return super().forward(x), x


class Auxiliary(Shaped):
    """Gives two things while it is trained."""

    def forward(self, x: Tensor) -> Any:
        """A pair in training."""
        return (super().forward(x), x) if self.training else super().forward(x)


class NotFinite(Shaped):
    """Divides by zero."""

    def forward(self, x: Tensor) -> Any:
        """NaN."""
        return super().forward(x) * float("nan")


class Lazy(Shaped):
    """Has a lazy layer."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.body = nn.LazyLinear(5)


class Shared(Shaped):
    """One weight under two names."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.twin = nn.Linear(math.prod(world.inputs), 5)
        self.twin.weight = self.body.weight


class Plainly(Shaped):
    """A tensor as an attribute."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.mean = torch.ones(5)


class Listed(Shaped):
    """Layers in a list."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.layers = [nn.Linear(5, 5)]


class Headless(nn.Module):
    """No layer gives a number for each class."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(math.prod(world.inputs), world.classes))

    def forward(self, x: Tensor) -> Tensor:
        """x (n, ...) -> (n, classes)."""
        made: Tensor = x.flatten(1) @ self.weight
        return made


class Misnamed(Shaped):
    """Names a head that is not there."""

    classifier_name = "nowhere"


class Flattening(nn.Module):
    """What enters the head is no row of features."""

    classifier_name = "fc"

    def __init__(self, world: World) -> None:
        super().__init__()
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(world.inputs), world.classes))

    def forward(self, x: Tensor) -> Tensor:
        """x (n, c, h, w) -> (n, classes)."""
        made: Tensor = self.fc(x)
        return made


DRAWN: list[int] = []


def changing(world: World) -> nn.Module:
    """Another network each time."""
    DRAWN.append(1)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(world.inputs), 4 + len(DRAWN)), nn.Linear(4 + len(DRAWN), world.classes)
    )


def breaking(world: World, width: int = 3) -> nn.Module:
    """A builder that raises."""
    raise ValueError("a word of its own")


def no_module(world: World) -> Any:
    """A builder that gives none."""
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
    """A builder that takes any option."""
    return Shaped(world)


def nothing() -> nn.Module:
    """A builder that takes no world."""
    return nn.Linear(1, 1)


NETWORKS: Mapping[str, Callable[..., nn.Module]] = {
    each.__name__.lower(): each
    for each in (
        *(Convolutions, Named, Unsaved, Shaped, Softmaxed, Raising, Odd, Pair, Auxiliary, NotFinite, Lazy, Shared, Plainly),
        *(Listed, Headless, Misnamed, Flattening),
        *(sequence, changing, breaking, no_module, picky, apart, needy, odd_hint, anything, nothing),
    )
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
        """x (n, *inputs) -> (n, classes)."""
        if self.training:
            self.seen = {}
        scale = self.scale.exp() if self.training else self.seen.setdefault("scale", self.scale.exp())
        made: Tensor = self.fc(x.flatten(1) * scale)
        return made


def caching(world: World) -> nn.Module:
    """The same, by a function."""
    return Caching(world)
