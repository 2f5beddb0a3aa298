"""Weights of an installed package's model as the start of a run: what a world's network takes of them, and what is drawn.

A file of torchvision's or timm's has a head of other classes than the world, or none; under a bottleneck it is a backbone alone.
The encoder is taken from it and all else drawn from the seed. Nothing is left out in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tideline import nets
from tideline.core.asked.world import World
from tideline.core.record import Weights
from tideline.learning.formats.transforms import times
from tideline.learning.weights import SHOWN, cast, check, compare, fitted, names_used
from tideline.nets import registry
from tideline.nets.bottleneck import BACKBONE, KINDS, NECK
from tideline.nets.families import AUXILIARY
from tideline.nets.layers import CLASSIFIER

COUNTERS = ".num_batches_tracked"
STEM = "conv1.weight"  # as torchvision calls the first layer of its residual networks
HEAD = "fc."  # and the last


@dataclass(frozen=True)
class Start:
    """What a run begins from. weights: the whole network's; drawn: names of those that no file gave, as the file would have them;
    unused: what of the file is in no network.
    """

    weights: dict[str, Tensor]
    drawn: tuple[str, ...] = ()
    unused: Mapping[str, Tensor] = field(default_factory=dict)


def start(world: World, weights: Weights, seed: int | None = None) -> Start:
    """The world's network over weights of a file; what a package's file lacks is as first drawn, from `seed`.

    Without a seed it is from torch's global generator. Raises ConfigRefused for weights that fit neither whole nor in part.
    """
    if not is_packages(world, weights):
        return Start(fitted(world, weights))
    template, names = nets.template(world), names_in(world, weights)
    drawn = frozenset(drawn_of(world, weights))
    theirs, unused = completed(world, weights, drawn)
    check(world, list(compare({names[name]: like for name, like in template.items() if name not in drawn}, theirs)))
    made = fresh(world, seed) if drawn else {}
    made |= {name: cast(names[name], theirs[names[name]], like) for name, like in template.items() if name not in drawn}
    return Start({name: made[name] for name in template}, tuple(names[name] for name in template if name in drawn), unused)


def completed(world: World, weights: Weights, drawn: Set[str] = frozenset()) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights of a package's model without those that no network here has, and these; counters that they lack are 0.

    drawn: names of the network that weights are not to give. A name that the package has not either stays, to be refused.
    """
    template, names = nets.template(world), names_in(world, weights)
    own = {names[name]: like for name, like in template.items() if name not in drawn}
    beside = (*package_heads(world, names), *AUXILIARY)
    replaced = {names[name] for name in drawn}
    unused = {n: w for n, w in weights.items() if n not in own and (n.startswith(beside) or n in replaced)}
    return {n: w for n, w in weights.items() if n not in unused} | counters(own, weights), unused


def is_packages(world: World, weights: Weights) -> bool:
    """Whether the network is a package's own, or weights are torchvision's and the network has such a backbone."""
    return registry.family_of(world.model) is not None or (world.model in KINDS and STEM in weights)


def names_in(world: World, weights: Weights) -> Mapping[str, str]:
    """Each name of the network's state dict with the one that the package's weights have for it."""
    if world.model in KINDS:
        return {name: name.removeprefix(BACKBONE) for name in nets.template(world)}
    used = names_used(world, weights)
    return used if any(name in weights for name in used.values()) else nets.own_names(world)


def drawn_of(world: World, weights: Weights) -> Iterator[str]:
    """The network's names that weights are not to give: a bottleneck that they lack, a head of other classes, and around it."""
    template, names = nets.template(world), names_in(world, weights)
    neck, head = ([name for name in template if name.startswith(part)] for part in (NECK, CLASSIFIER))
    lacking = lacks_bottleneck(world, weights)
    yield from neck if lacking else ()
    if lacking or any(shape_in(weights, names[name]) != template[name].shape for name in head):
        yield from head
    # A file whose head was cut off lacks the layers beside the last one, too: all of torchvision's `classifier`.
    around = tuple({f"{each.partition('.')[0]}." for each in package_heads(world, names)})
    if not any(name.startswith(around) for name in weights):
        yield from (name for name, own in names.items() if own.startswith(around) and name not in (*neck, *head))


def shape_in(weights: Weights, name: str) -> Sequence[int] | None:
    return weights[name].shape if name in weights else None


def lacks_bottleneck(world: World, weights: Weights) -> bool:
    """Whether the network has a bottleneck, of which weights of its package have nothing."""
    names = names_in(world, weights)
    neck = [own for name, own in names.items() if name.startswith(NECK)]
    return bool(neck) and not any(own in weights for own in neck)


def package_heads(world: World, names: Mapping[str, str]) -> tuple[str, ...]:
    """What names of the package's own head begin with: where a bottleneck took its place, no name of the network does."""
    if world.model in KINDS:
        return (HEAD,)
    own = (names[name].removesuffix(name.removeprefix(CLASSIFIER)) for name in names if name.startswith(CLASSIFIER))
    return nets.left_out(world) or tuple(own)


def counters(own: Weights, weights: Weights) -> dict[str, Tensor]:
    """Those that files of before 2018 have not, from zero: nothing is computed from them."""
    missing = [name for name in own if name.endswith(COUNTERS) and name not in weights]
    return {name: torch.zeros(own[name].shape, dtype=own[name].dtype) for name in missing}


def fresh(world: World, seed: int | None) -> dict[str, Tensor]:
    """The network as first drawn; with a seed, torch's global generator is left as it was."""
    if seed is None:
        with nets.DRAWING:
            return nets.weights_of(nets.build(world))
    with nets.DRAWING, torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        return nets.weights_of(nets.build(world))


def sentence(begun: Start) -> str:
    """What of a file was not loaded, and what is drawn in its place; nothing where all of it fits."""
    said = []
    if begun.drawn:
        modules = ", ".join(dict.fromkeys(name.rpartition(".")[0] for name in begun.drawn))
        said.append(f"drawn from the seed, for the run to train: {modules}")
    if begun.unused:
        listed = [f"{name} ({times(w.shape)})" for name, w in begun.unused.items()]
        more = f", and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
        said.append(f"not loaded: {', '.join(listed[:SHOWN])}{more}")
    return "; ".join(said)
