"""A network of which a part is frozen: what a run begins from, and its models made whole again.

The base is a state dict of the world's network: the frozen tensors, and of those that train what the run's weights have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from pathlib import Path

import torch
from torch import Tensor

from tideline import nets
from tideline.core.algorithm import NETWORK
from tideline.core.asked.world import HEAD, World
from tideline.core.errors import ConfigRefused
from tideline.core.record import Weights
from tideline.learning import model_file
from tideline.learning.backbones import completed, drawn_of, is_packages, lacks_bottleneck, names_in
from tideline.learning.weights import SHOWN, cast, check, compare, names_used, read_weights
from tideline.nets.bottleneck import KINDS
from tideline.nets.forms import INSIDE, MEAN
from tideline.nets.layers import CLASSIFIER, classifier_of


def base_in(world: World, file: Path) -> dict[str, Tensor]:
    """The base in a file of weights or of a model, in the network's dtypes. Raises DataRefused, ConfigRefused."""
    if not model_file.is_model(file):
        return base_of(world, read_weights(file))
    model = model_file.read_model(file)
    model_file.check_network(world, model)
    model_file.check_encoder(world, model)
    try:
        model_file.check_classes(model.world, world)
    except ConfigRefused:  # its head is of other classes
        if not head_trains(world):
            raise
        return base_of(world, {name: w for name, w in model.weights.items() if not name.startswith(CLASSIFIER)})
    return base_of(world, model.weights)


def base_of(world: World, weights: Weights) -> dict[str, Tensor]:
    """The base in weights: all that is frozen, and of the rest what is there, without a head that trains and is of another shape.

    Raises ConfigRefused for weights that lack what is frozen, or are of another network.
    """
    if is_packages(world, weights):
        weights = packaged(world, weights)
    template, names, trains = nets.template(world), names_used(world, weights), nets.trained_names(world)
    head = {name: like for name, like in template.items() if name.startswith(CLASSIFIER) and head_trains(world)}
    own = tuple(heads(head, names))
    theirs = {name: w for name, w in weights.items() if not name.startswith(own)}
    rest = {name for name in template if name not in head and (name not in trains or names[name] in weights)}
    check(world, list(compare({names[name]: like for name, like in template.items() if name in rest}, theirs)))
    fits = all(names[name] in weights and weights[names[name]].shape == like.shape for name, like in head.items())
    taken = [name for name in template if name in rest or (fits and name in head)]
    return {name: cast(names[name], weights[names[name]], template[name]) for name in taken}


def head_trains(world: World) -> bool:
    """Whether all of the head trains, so that it may be another one than that of the weights."""
    trains = nets.trained_names(world)
    return all(name in trains for name in nets.template(world) if name.startswith(CLASSIFIER))


def packaged(world: World, weights: Weights) -> Weights:
    """What the network takes of a package's weights. Raises ConfigRefused where a bottleneck that they lack would not train."""
    if not lacks_bottleneck(world, weights):
        return completed(world, weights)[0]
    drawn = frozenset(drawn_of(world, weights))
    check_bottleneck(world, drawn)
    names, (theirs, _) = names_in(world, weights), completed(world, weights, drawn)
    taken = {name: theirs[own] for name, own in names.items() if name not in drawn and own in theirs}
    return taken | {own: w for own, w in theirs.items() if own not in names.values()}


def check_bottleneck(world: World, drawn: Set[str]) -> None:
    """Raises ConfigRefused where a bottleneck would be frozen as it was drawn."""
    if not drawn <= nets.trained_names(world):
        what = f"The weights are of a backbone alone, and of {world.model} the bottleneck would stay as it was drawn"
        without = f"Use model: torchvision/{KINDS[world.model][0]}" if world.model in KINDS else "Leave the option bottleneck out"
        raise ConfigRefused(what, f"{without}, or give weights of the whole network", path="world.model")


def heads(template: Weights, names: Mapping[str, str]) -> Iterator[str]:
    """What the head's names begin with in the weights."""
    for name in template:
        if name.startswith(CLASSIFIER):
            yield names[name].removesuffix(name.removeprefix(CLASSIFIER)) or names[name]


def whole(world: World, base: Weights, trained: Weights, form: str) -> dict[str, Tensor]:
    """A model that was trained over frozen tensors, with them: the weights of its form for the whole network.

    A head that neither has is not looked at, and is 0.
    """
    inside = "" if form in (NETWORK, MEAN) else INSIDE
    empty = {name: torch.zeros(like.shape, dtype=like.dtype) for name, like in nets.template(world).items()}
    return {f"{inside}{name}": base.get(name, like) for name, like in empty.items()} | dict(trained)


def begins_from(world: World, base: Weights) -> dict[str, Tensor]:
    """What of the tensors that train the base has: what a method that takes initial weights begins from."""
    trains = nets.trained_names(world)
    return {name: w for name, w in base.items() if name in trains}


def sentence(world: World, base: Weights, begins: bool) -> str:
    """What trains in such a run, and what it begins from, for the run's notes."""
    template, trains = nets.template(world), nets.trained_names(world)
    frozen = sum(like.numel() for name, like in template.items() if name not in trains)
    moving = sum(like.numel() for name, like in template.items() if name in trains)
    if world.trains == HEAD:
        said = f"The head of {world.model} trains, {moving:,} numbers; its encoder is frozen, {frozen:,} numbers"
        return f"{said}. {head_start(world, base, begins)}"
    said = f"{len(trains)} of {len(template)} tensors of {world.model} train, {moving:,} numbers"
    return f"{said}; the rest is frozen, {frozen:,} numbers. {start(world, base, begins)}"


def head_start(world: World, base: Weights, begins: bool) -> str:
    if begins:
        return "The head begins from the head of the weights"
    lacks = f"the weights have no head of {world.classes} classes"
    why = "the method takes no initial weights" if classifier_of(base) else lacks
    return f"The head begins from random numbers: {why}"


def start(world: World, base: Weights, begins: bool) -> str:
    """What the tensors that train begin from."""
    own, there = nets.own_names(world), begins_from(world, base)
    drawn = [own[name] for name in own if name in nets.trained_names(world) and name not in there]
    if not begins:
        why = "the method takes no initial weights" if there else "the weights have none of it"
        return f"What trains begins from random numbers: {why}"
    if not drawn:
        return "What trains begins from the weights, too"
    more = f" and {len(drawn) - SHOWN} more" if len(drawn) > SHOWN else ""
    return f"What trains begins from the weights, too, but for {', '.join(drawn[:SHOWN])}{more}, which are drawn from the seed"
