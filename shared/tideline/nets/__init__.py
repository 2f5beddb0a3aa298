"""Networks by name, and their weights as named tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import chain

import torch
from torch import Tensor, nn

from tideline.core.errors import ConfigRefused
from tideline.core.rows import PART, Rows, as_rows, part_size
from tideline.core.run import World
from tideline.core.settings import nearest
from tideline.learning.rows import scratch
from tideline.nets.bottleneck import KINDS, LeNetBN, ResNet
from tideline.nets.prototypes import Prototype
from tideline.nets.small import MLP, ConvNet, Digits, InceptionNet, LeNet

Build = Callable[[World], nn.Module]
ROWS = PART
SEVERAL = 64  # worlds whose sizes are remembered
NETS: Mapping[str, Build] = {
    "lenet": LeNet.of,
    "mlp": MLP.of,
    "linear": MLP.linear,
    "lenet_bn": LeNetBN.of,
    "convnet": ConvNet.of,
    "fada_digits": Digits.whole,
    "fada_small": Digits.small,
    "inception": InceptionNet.of,
    **dict.fromkeys(KINDS, ResNet.of),
}


def build(world: World) -> nn.Module:
    """The world's network, initialised from torch's global generator. Raises ConfigRefused."""
    if world.model not in NETS:
        known, what = sorted(NETS), f"world.model is {world.model!r}; there is no such network"
        raise ConfigRefused(what, f"Use one of: {', '.join(known)}{nearest(world.model, known)}", path="world.model")
    return NETS[world.model](world)


def check(world: World, made: Build = build) -> None:
    """The network exists and takes the world's inputs. Costs no memory. Raises ConfigRefused."""
    template(world, made)


def template(world: World, made: Build = build) -> dict[str, Tensor]:
    """What `weights_of` gives for the world's network, built without storage: names, shapes, dtypes. Raises ConfigRefused."""
    try:
        with torch.device("meta"):
            return dict(made(world).state_dict())
    except (RuntimeError, TypeError, OverflowError) as cause:
        what = f"world.inputs {list(world.inputs)} and {world.classes} classes are more than {world.model} can be built for"
        todo = "Write the shape of one sample, such as [1, 28, 28]"
        raise ConfigRefused(f"{what} ({type(cause).__name__})", todo, path="world") from None


def weights_of(net: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, on the CPU, detached."""
    return {name: tensor.detach().cpu() for name, tensor in net.state_dict().items()}


def features(net: nn.Module, x: Tensor | Rows, device: str = "cpu", held: int = scratch.HELD) -> Tensor:
    """What a network's encoder makes of rows, in evaluation mode: n of them -> (n, d) float32, on the CPU.

    Rows are read in parts. Above `held` bytes the result lies in a scratch file. Raises DataRefused where the disk has no room.
    """
    net.eval()
    rows, encoder = as_rows(x), net.get_submodule("features")
    with torch.no_grad():
        parts = (encoder(part.to(device)).cpu() for part in rows.parts())
        first = next(parts)
        size = first.element_size() * len(rows) * first[:1].numel()
        return torch.cat([first, *parts]) if size <= held else filled(len(rows), first, parts)


def filled(n: int, first: Tensor, parts: Iterator[Tensor]) -> Tensor:
    """All parts, of n rows in sum, in a scratch file."""
    out, done = scratch.empty((n, *first.shape[1:])), 0
    for part in chain([first], parts):
        out[done : done + len(part)] = part
        done += len(part)
    return out


def rows_of(x: Tensor | Rows) -> int:
    """How many of the rows, n of *inputs, pass through a network at once: fewer of large images."""
    return part_size(as_rows(x).shape)


def width(world: World) -> int:
    """The number of features d that the network's encoder gives. Costs no memory. Raises ConfigRefused."""
    return measured_width(world.inputs, world.classes, world.model)


@lru_cache(maxsize=SEVERAL)
def measured_width(inputs: tuple[int, ...], classes: int, model: str) -> int:
    """d, by a pass without numbers: it takes longer than small steps do, and every message is held to it."""
    with torch.device("meta"), torch.no_grad():
        net = build(World(inputs=inputs, classes=classes, model=model))
        return int(net.get_submodule("features")(torch.empty(2, *inputs)).shape[1])


def prototype(world: World) -> Prototype:
    return known_prototype(world.inputs, world.classes, world.model, tuple(world.sizes.items()))


@lru_cache(maxsize=SEVERAL)
def known_prototype(inputs: tuple[int, ...], classes: int, model: str, sizes: tuple[tuple[str, int], ...]) -> Prototype:
    with torch.device("meta"):
        return Prototype(build(World(inputs=inputs, classes=classes, model=model, sizes=dict(sizes))))


def loaded(world: World, weights: Mapping[str, Tensor], device: str = "cpu", made: Build = build) -> nn.Module:
    """The world's network with these weights, built by `made` without storage and then filled, so that no model is held twice."""
    if made is build and (net := prototype(world).filled(weights, device)) is not None:
        return net
    with torch.device("meta"):
        empty = made(world)
    net = empty.to_empty(device=device)
    net.load_state_dict(dict(weights))
    return net


def own_names(world: World) -> dict[str, str]:
    """The network's own name of each of its tensors, by the name that it has here. Raises ConfigRefused."""
    return {name: name for name in template(world)}
