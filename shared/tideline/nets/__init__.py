"""Networks by name, and their weights as named tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from tideline.core.asked.world import ALL, HEAD, HeadWorld, World
from tideline.core.errors import ConfigRefused
from tideline.core.record import Weights
from tideline.core.rows import PART, Rows, as_rows, part_size
from tideline.learning.loading.ahead import in_parts
from tideline.learning.rows import scratch
from tideline.nets import foreign, registry
from tideline.nets.apart import Apart
from tideline.nets.computing.arranging import arranged
from tideline.nets.foreign import DRAWING, Key, key_of
from tideline.nets.options import with_options
from tideline.nets.partial import Held, PartWorld, freeze, of_classes, patterns, unread
from tideline.nets.prototypes import Prototype
from tideline.nets.registry import NETS
from tideline.nets.shapes.rows import blank
from tideline.nets.small import Net

__all__ = ["DRAWING", "NETS", "Key", "key_of", "of_classes"]
Build = Callable[[World], nn.Module]
ROWS = PART
NUMBERS: Mapping[str, Any] = {"dtype": World().dtype, "vocabulary": World().vocabulary}  # what features hold
SEVERAL = 64  # worlds whose sizes are remembered


def build(world: World) -> nn.Module:
    """The world's network, initialised from torch's global generator; within a step it runs as that computes. Raises
    ConfigRefused.
    """
    net = built(world)
    return net if torch.empty(0).is_meta else arranged(net)


def built(world: World) -> nn.Module:
    """The network as it is."""
    if isinstance(world, PartWorld):
        return built_in_part(world)
    if isinstance(world, HeadWorld):
        return Net(nn.Identity(), head(world.whole))
    if not registry.is_built_in(world.model):
        # Where no numbers are wanted, a copy has what of the network is no weight.
        return foreign.copied(world) if torch.empty(0).is_meta else foreign.build(world)
    registry.check_takes(world)
    net: nn.Module = with_options(NETS[world.model], world)
    return net


def head(world: World) -> nn.Module:
    """The classifier of a world's network, as `build` makes it. Raises ConfigRefused."""
    if torch.empty(0).is_meta and not registry.is_built_in(world.model):
        return copy.deepcopy(foreign.foreign(world).net.classifier)  # without the encoder, which may be large
    return build(world).get_submodule("classifier")


def built_in_part(world: PartWorld) -> nn.Module:
    """The network with its frozen tensors as they are held; where no numbers are wanted, with none."""
    net = build(world.inner)
    if not torch.empty(0).is_meta:
        fill(net.state_dict(), world)
    return freeze(net, world.held.names)


def fill(tensors: Mapping[str, Tensor], world: PartWorld) -> None:
    """Copy the frozen numbers into those of the tensors that are held."""
    held = world.held.weights
    with torch.no_grad():
        for name in held.keys() & tensors.keys():
            tensors[name].copy_(held[name])


def played(world: World, read: Callable[[], Weights] = unread, file: str = "") -> World:
    """The world as a method sees it: itself; of features, where no layer below the head trains; with what is frozen held.

    read: gives the tensors of the file of that digest, which has what is frozen. Raises ConfigRefused.
    """
    if not world.frozen:
        return world
    whole = replace(world, trains=ALL)
    key, head = key_of(world), known_trained(key_of(world), HEAD)
    trains = known_trained(key, world.trains)
    inner = headed(whole) if trains <= head else whole
    held = (head if trains <= head else frozenset(known_names(key))) - trains
    return PartWorld(**fields_of(inner), inner=inner, held=Held((file, key), held, read)) if held else inner


def headed(whole: World) -> HeadWorld:
    return HeadWorld(**{**fields_of(whole), "inputs": (width(whole),), **NUMBERS}, whole=whole)


def fields_of(world: World) -> dict[str, Any]:
    """The fields of a world, to make another kind of it."""
    return {each.name: getattr(world, each.name) for each in fields(World)}


def of_features(world: World) -> bool:
    """Whether a method sees rows as the features of a frozen encoder."""
    return isinstance(world.inner if isinstance(world, PartWorld) else world, HeadWorld)


def settled(world: World) -> World:
    """The same world, with `all` or `head` for patterns that match just that. Raises ConfigRefused, also for idle patterns."""
    if not world.frozen:
        return world
    check(world)
    trains = trained_names(world)
    same = next((word for word in (ALL, HEAD) if trained_names(replace(world, trains=word)) == trains), world.trains)
    return replace(world, trains=same)


def trained_names(world: World) -> frozenset[str]:
    """The tensors that train of the whole network, by their names in its state dict. Raises ConfigRefused."""
    return known_trained(key_of(world), world.trains)


@lru_cache(maxsize=SEVERAL)
def known_trained(key: Key, trains: tuple[str, ...]) -> frozenset[str]:
    with torch.device("meta"):
        parameters = {name for name, _ in build(key.world).named_parameters()}
    return patterns.chosen(trains, known_names(key), parameters, key.model)


def check(world: World, made: Build = build) -> None:
    """The network exists and takes the world's inputs. Costs no memory. Raises ConfigRefused."""
    template(world, made)


def template(world: World, made: Build = build) -> dict[str, Tensor]:
    """What `weights_of` gives for the world's network, built without storage: names, shapes, dtypes. Raises ConfigRefused."""
    try:
        with torch.device("meta"):
            return {name: each.detach().to("meta") for name, each in made(world).state_dict().items()}
    except (RuntimeError, TypeError, OverflowError) as cause:
        what = f"world.inputs {list(world.inputs)} and {world.classes} classes are more than {world.model} can be built for"
        todo = "Write the shape of one sample, such as [1, 28, 28]"
        raise ConfigRefused(f"{what} ({type(cause).__name__})", todo, path="world") from None


def weights_of(net: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, on the CPU, detached, each of one piece however it lay on its device."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in net.state_dict().items()}


def features(net: nn.Module, x: Tensor | Rows, device: str = "cpu", held: int = scratch.HELD) -> Tensor:
    """What a network's encoder makes of rows, in evaluation mode: n of them -> (n, d) float32, on the CPU.

    Rows are read in parts. Above `held` bytes the result lies in a scratch file. Raises DataRefused where the disk has no room.
    """
    net.eval()
    rows, encoder = as_rows(x), net.get_submodule("features")
    with torch.no_grad():
        parts = (encoder(part.to(device)).cpu() for part in in_parts(rows))
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
    return measured_width(key_of(world))


@lru_cache(maxsize=SEVERAL)
def measured_width(key: Key) -> int:
    """d, by a pass without numbers: it takes longer than small steps do, and every message is held to it."""
    if key.rows:
        return key.inputs[0]
    if not registry.is_built_in(key.model):
        return foreign.foreign(key.world).width
    with torch.device("meta"), torch.no_grad():
        return int(build(key.world).get_submodule("features")(blank(key.world)).shape[1])


def own_names(world: World) -> dict[str, str]:
    """The names in the network's state dict, each with the one that the network itself has for it. Raises ConfigRefused."""
    names = known_names(key_of(world))
    held = world.held.names if isinstance(world, PartWorld) else frozenset()
    return {name: own for name, own in names.items() if name not in held}


@lru_cache(maxsize=SEVERAL)
def known_names(key: Key) -> Mapping[str, str]:
    world, pairs = key.world, tuple[tuple[str, str], ...]()
    if not key.rows:
        with torch.device("meta"):
            pairs = getattr(build(world) if registry.is_built_in(world.model) else foreign.foreign(world).net, "own", ())
    return {name: renamed(name, pairs) for name in template(world)}


def left_out(world: World) -> tuple[str, ...]:
    """What names begin with that weights of the network's package have and the network has not. Raises ConfigRefused."""
    return () if registry.is_built_in(world.model) else foreign.foreign(world).net.left_out


def renamed(name: str, pairs: tuple[tuple[str, str], ...]) -> str:
    """A name with another beginning, if it has one of these."""
    return next((own + name.removeprefix(ours) for ours, own in pairs if name.startswith(ours)), name)


def is_apart(net: nn.Module) -> bool:
    """Whether a network was found apart, so that nothing is known of what makes its features."""
    return isinstance(net, Apart)


@lru_cache(maxsize=SEVERAL)
def known_prototype(key: Key) -> Prototype:
    with torch.device("meta"):
        return Prototype(build(key.world))


def loaded(world: World, weights: Mapping[str, Tensor], device: str = "cpu", made: Build = build) -> nn.Module:
    """The world's network with these weights, built by `made` without storage and then filled, so that no model is held twice.

    Within a step it runs as that computes.
    """
    return arranged(filled_with(world, weights, device, made))


def filled_with(world: World, weights: Mapping[str, Tensor], device: str, made: Build) -> nn.Module:
    """The network as it is."""
    if isinstance(world, PartWorld) and made is build:
        return loaded_part(world, weights, device)
    copies = made is build and registry.is_built_in(world.model)
    if copies and (net := known_prototype(key_of(world)).filled(weights, device)) is not None:
        return net
    with torch.device("meta"):
        empty = made(world)
    net = foreign.with_storage(empty, device)
    net.load_state_dict(dict(weights))
    if isinstance(world, PartWorld):
        fill(dict(net.named_buffers()), world)
    return net


def loaded_part(world: PartWorld, weights: Mapping[str, Tensor], device: str) -> nn.Module:
    """The network with these weights over those that are held."""
    return freeze(filled_with(world.inner, {**weights, **world.held.weights}, device, build), world.held.names)
