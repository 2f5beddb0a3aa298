"""Which of f's tensors a cluster has to itself, by the words of the setting `cluster_layers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from tideline import nets
from tideline.core.run import World
from tideline.nets.layers import backbone_of, check_layer, last_layer, layer_of, norms

if TYPE_CHECKING:
    from tideline.algorithms.ladd import Styled

BATCH_NORM = "batch_norm"


def own_names(f: Mapping[str, Tensor], config: Styled) -> frozenset[str]:
    """The names of the parameters and buffers that are averaged inside clusters. f: of a template too.

    Raises ConfigRefused for a word that no layer fits.
    """
    own = {layer for i, word in enumerate(config.cluster_layers) for layer in meant(f, word, f"config.cluster_layers[{i}]")}
    return frozenset(name for name in f if layer_of(name) in own)


def meant(f: Mapping[str, Tensor], word: str, path: str) -> list[str]:
    """The layers that a word stands for. A network without batch norm has its last layer in its place."""
    if word == BATCH_NORM:
        return norms(f) or [last_layer(f)]
    return [layer_of(name) for name in check_layer(f, word, path)]


def notes(config: Styled, world: World) -> tuple[str, ...]:
    """Where the network has no batch norm, what stands in its place."""
    f = backbone_of(nets.template(world))
    if BATCH_NORM not in config.cluster_layers or norms(f):
        return ()
    instead = f"{last_layer(f)}, its last layer below the classifier, is averaged inside clusters instead"
    return (f"config.cluster_layers says {BATCH_NORM}, and {world.model} has no such layer: {instead}",)
