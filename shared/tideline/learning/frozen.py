"""A network whose encoder is frozen: what a run begins from, and its models made whole again.

The base is a state dict of the world's network: the encoder's tensors, and those of a head (`classifier.`) or of none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from tideline import nets
from tideline.core.algorithm import NETWORK
from tideline.core.errors import ConfigRefused
from tideline.core.record import Weights
from tideline.core.run import World
from tideline.learning import model_file
from tideline.learning.backbones import completed, is_packages, lacks_bottleneck
from tideline.learning.weights import cast, check, compare, names_used, read_weights
from tideline.nets.bottleneck import KINDS
from tideline.nets.forms import INSIDE, MEAN
from tideline.nets.layers import CLASSIFIER, classifier_of


def base_in(world: World, file: Path) -> dict[str, Tensor]:
    """The base in a file of weights or of a model, in the network's dtypes. Raises DataRefused, ConfigRefused."""
    if not model_file.is_model(file):
        return base_of(world, read_weights(file))
    model = model_file.read_model(file)
    model_file.check_network(world, model)
    try:
        model_file.check_classes(model.world, world)
    except ConfigRefused:  # its head is of other classes
        return base_of(world, {name: w for name, w in model.weights.items() if not name.startswith(CLASSIFIER)})
    return base_of(world, model.weights)


def base_of(world: World, weights: Weights) -> dict[str, Tensor]:
    """The base in weights, without a head that is of another shape. Raises ConfigRefused for another encoder."""
    if is_packages(world, weights):
        check_bottleneck(world, weights)
        weights, _ = completed(world, weights)
    template, names = nets.template(world), names_used(world, weights)
    encoder = {name: like for name, like in template.items() if not name.startswith(CLASSIFIER)}
    own = tuple(heads(template, names))
    theirs = {name: w for name, w in weights.items() if not name.startswith(own)}
    check(world, list(compare({names[name]: like for name, like in encoder.items()}, theirs)))
    head = {name: like for name, like in template.items() if name not in encoder}
    fits = all(names[name] in weights and weights[names[name]].shape == like.shape for name, like in head.items())
    taken = template if fits else encoder
    return {name: cast(names[name], weights[names[name]], template[name]) for name in taken}


def check_bottleneck(world: World, weights: Weights) -> None:
    """Raises ConfigRefused where a bottleneck would be frozen as it was drawn."""
    if lacks_bottleneck(world, weights):
        what = f"The weights are of a backbone alone, and of {world.model} the bottleneck would stay as it was drawn"
        without = f"Use model: torchvision/{KINDS[world.model][0]}" if world.model in KINDS else "Leave the option bottleneck out"
        raise ConfigRefused(what, f"{without}, or give weights of the whole network", path="world.model")


def heads(template: Weights, names: Mapping[str, str]) -> Iterator[str]:
    """What the head's names begin with in the weights."""
    for name in template:
        if name.startswith(CLASSIFIER):
            yield names[name].removesuffix(name.removeprefix(CLASSIFIER)) or names[name]


def whole(world: World, base: Weights, trained: Weights, form: str) -> dict[str, Tensor]:
    """A model that was trained over the frozen encoder, with it: the weights of its form for the whole network.

    A head that neither has is not looked at, and is 0.
    """
    inside = "" if form in (NETWORK, MEAN) else INSIDE
    empty = {name: torch.zeros(like.shape, dtype=like.dtype) for name, like in nets.template(world).items()}
    return {f"{inside}{name}": base.get(name, like) for name, like in empty.items()} | dict(trained)


def sentence(world: World, base: Weights, begins: bool) -> str:
    """What trains in such a run, and what it begins from, for the run's notes."""
    frozen = sum(w.numel() for name, w in base.items() if not name.startswith(CLASSIFIER))
    head = sum(like.numel() for name, like in nets.template(world).items() if name.startswith(CLASSIFIER))
    if begins:
        start = "The head begins from the head of the weights"
    else:
        why = (
            "the method takes no initial weights"
            if classifier_of(base)
            else f"the weights have no head of {world.classes} classes"
        )
        start = f"The head begins from random numbers: {why}"
    return f"The head of {world.model} trains, {head:,} numbers; its encoder is frozen, {frozen:,} numbers. {start}"
