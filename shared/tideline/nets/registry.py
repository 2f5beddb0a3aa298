"""Networks by name: the built-in ones, families of installed packages, and those that an operator adds to this process.

What an operator adds with `--networks MODULE:NAME` is set once, at the start of each process; no code travels. NAME is a function
`build(world, **options) -> nn.Module`, or a mapping of names to such functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import cast

from torch import nn

from tideline.core.algorithm import attribute, import_from_here
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, kind_of
from tideline.core.rows import ANY_NUMBERS, Takes, described, of_ranks
from tideline.core.settings import nearest
from tideline.nets.bottleneck import KINDS, LeNetBN, ResNet
from tideline.nets.efficientnet import EfficientNetLite0
from tideline.nets.families import timm_network, torchvision_network
from tideline.nets.shapes.sequences import Conv1d
from tideline.nets.shapes.tokens import Tokens
from tideline.nets.shapes.volumes import Conv3d
from tideline.nets.small import MLP, ConvNet, Digits, InceptionNet, LeNet, Tabular

Build = Callable[..., nn.Module]
NETS: Mapping[str, Build] = {
    "lenet": LeNet.of,
    "mlp": MLP.of,
    "linear": MLP.linear,
    "tabular": Tabular.of,
    "lenet_bn": LeNetBN.of,
    "convnet": ConvNet.of,
    "fada_digits": Digits.whole,
    "fada_small": Digits.small,
    "inception": InceptionNet.of,
    "efficientnet_lite0": EfficientNetLite0.of,
    **dict.fromkeys(KINDS, ResNet.of),
    "conv1d": Conv1d.of,
    "conv3d": Conv3d.of,
    "tokens": Tokens.of,
}
IMAGES = of_ranks(3)
# Which rows a built-in network takes; those without a line take images.
TAKES: Mapping[str, Takes] = {
    "mlp": ANY_NUMBERS,
    "linear": ANY_NUMBERS,
    "tabular": of_ranks(1),
    "conv1d": of_ranks(2),
    "conv3d": of_ranks(4),
    "tokens": Takes(frozenset({1}), floats=False, tokens=True),
}
FAMILIES: Mapping[str, Callable[[str], Build]] = {"torchvision": torchvision_network, "timm": timm_network}
OPTION = "--networks"
WRITE = "Write it as MODULE:NAME, where NAME is a function build(world, **options), or a mapping of names to such functions"


@dataclass(frozen=True)
class Added:
    """What this process adds to the built-in networks, and where it found them."""

    places: tuple[str, ...] = ()
    builders: tuple[tuple[str, Build], ...] = ()


HERE: list[Added] = [Added()]  # of this process: one
BESIDE: ContextVar[Added | None] = ContextVar("BESIDE", default=None)  # of this thread's block alone, see `beside`


def use(places: Iterable[str]) -> tuple[str, ...]:
    """Have this process know these networks beside the built-in ones, and no others; their names. Raises ConfigRefused."""
    wanted, made = tuple(dict.fromkeys(places)), dict[str, Build]()
    for place in wanted:
        add(made, builders_at(place), f"{OPTION} {place}")
    HERE[:] = [Added(wanted, tuple(made.items()))]
    return tuple(made)


def add(made: dict[str, Build], found: Mapping[str, Build], place: str) -> None:
    """Add networks to others. Raises ConfigRefused for a name that is there."""
    for name, build in found.items():
        if name in NETS or name in made or name.partition("/")[0] in FAMILIES:
            what = f"{place} adds {name!r}, and there is such a network: networks are added, never replaced"
            raise ConfigRefused(what, "Give it a name of its own", path=OPTION)
        made[name] = build


@contextmanager
def beside(networks: Mapping[str, Build] | Iterable[str] | None) -> Iterator[None]:
    """Know these networks, too, in a block of this thread: functions by name, or places MODULE:NAME. Raises ConfigRefused.

    Other threads, and this one afterwards, know what they knew before.
    """
    made = dict(known())
    if isinstance(networks, Mapping):
        add(made, checked(networks, "networks"), "networks")
    else:
        for place in dict.fromkeys([networks] if isinstance(networks, str) else networks or ()):
            add(made, builders_at(place), f"networks: {place}")
    before = BESIDE.set(Added(builders=tuple(made.items())))
    try:
        yield
    finally:
        BESIDE.reset(before)


def known() -> Mapping[str, Build]:
    """What is added here to the built-in networks."""
    block = BESIDE.get()
    return dict((*HERE[0].builders, *(block.builders if block else ())))


def places() -> tuple[str, ...]:
    """Where this process found what it adds, for processes that it starts."""
    return HERE[0].places


def builders_at(place: str) -> Mapping[str, Build]:
    """The builders that "module:name" names. Raises ConfigRefused."""
    import_from_here()
    named = attribute(place, OPTION, OPTION, WRITE)
    found = dict(named) if isinstance(named, Mapping) else {place.rpartition(":")[2]: named}
    if not found:
        raise ConfigRefused(f"{OPTION} {place} is an empty mapping", WRITE, path=OPTION)
    return checked(found, f"{OPTION} {place}")


def checked(found: Mapping[str, object], place: str) -> Mapping[str, Build]:
    """Functions that build networks, by name. Raises ConfigRefused for what is none."""
    for name, build in found.items():
        if not isinstance(name, str) or not name.isprintable() or not name.strip():
            raise ConfigRefused(f"{place}: {name!r} cannot name a network", WRITE, path=OPTION)
        if not callable(build) or isinstance(build, nn.Module):
            words = "a module that is built already" if isinstance(build, nn.Module) else kind_of(build)
            raise ConfigRefused(f"{place}: {name!r} is {words}, not a function that builds one", WRITE, path=OPTION)
    return cast("Mapping[str, Build]", found)


def is_built_in(name: str) -> bool:
    """Whether a network is one of the project's own, which are the same wherever this version is installed."""
    return name in NETS


def check_takes(world: World) -> None:
    """Raises ConfigRefused, with the networks that do, for rows that a built-in network does not take."""
    takes = TAKES.get(world.model, IMAGES)
    if not takes.fits(world):
        others = ", ".join(name for name in NETS if TAKES.get(name, IMAGES).fits(world)) or "a network of your own"
        what = f"world.inputs is {list(world.inputs)}, {described(world)}; {world.model} takes {takes.words}"
        raise ConfigRefused(what, f"Use model: {others}; or write the shape of one sample", path="world.inputs")


def family_of(name: str) -> str | None:
    """The family of a network that an installed package brings; None for others."""
    family, slash, _ = name.partition("/")
    return family if slash and family in FAMILIES else None


def builder(name: str) -> Build:
    """The function that builds a network. The same name gives the same object. Raises ConfigRefused for an unknown one."""
    added = known()
    if name in NETS or name in added:
        return NETS[name] if name in NETS else added[name]
    if family := family_of(name):
        return FAMILIES[family](name.partition("/")[2])
    there = sorted({*NETS, *added})
    todo = f"Use one of: {', '.join(there)}, torchvision/NAME, timm/NAME{nearest(name, there)}"
    more = f". One of your own is added with {OPTION} MODULE:NAME: here, at the coordinator and at each agent"
    raise ConfigRefused(f"world.model is {name!r}; there is no such network here", todo + more, path="world.model")
