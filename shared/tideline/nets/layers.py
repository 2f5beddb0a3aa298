"""Parts of a network's weights: f and g of h = g o f, the weight vectors of g, and the parameters of single layers.

Weights are named tensors, as `state_dict` has them. Messages carry them sorted, so nothing here depends on the order of a
mapping. In the order of names used here, whole numbers count as numbers, and the classifier comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from tideline.core.errors import ConfigRefused
from tideline.core.settings import nearest

CLASSIFIER = "classifier."
# What batch norm measures; all else in a state dict is trained.
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
PARAMETRIZED = ".parametrizations."
SHOWN = 6  # names of layers in a refusal


def classifier_of(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of g."""
    return {name: w for name, w in weights.items() if name.startswith(CLASSIFIER)}


def backbone_of(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights and buffers of f: backbone and bottleneck."""
    return {name: w for name, w in weights.items() if not name.startswith(CLASSIFIER)}


def class_vectors(net: nn.Module) -> Tensor:
    """The weight vectors w_m of g as it uses them, weight norm applied: (classes, q), detached, on the network's device."""
    w = net.get_submodule("classifier").weight
    assert isinstance(w, Tensor)
    return w.detach().clone()


def first_layer(weights: Mapping[str, Tensor]) -> str:
    """The first layer with a matrix or a kernel, as papers count, such as `features.backbone.conv1`. Raises ConfigRefused."""
    return counted(weights, min, "first")


def last_layer(weights: Mapping[str, Tensor]) -> str:
    """The name of the last layer of f, counted likewise: of a network with a bottleneck, its linear layer."""
    return counted(backbone_of(weights), max, "last")


def layer(weights: Mapping[str, Tensor], name: str, path: str = "") -> Tensor:
    """The parameters of a layer, flattened and joined in the order of their names: (p,) float64. Buffers are left out.

    name: a layer or a group of them, by the beginning of their names (`features.backbone.layer1`); or `first`, `last` (of f),
    `all` (of f). Raises ConfigRefused for a name that fits none, with `path`, the dotted place of the setting that holds it.
    """
    chosen = [weights[each] for each in check_layer(weights, name, path)]
    return torch.cat([w.detach().to("cpu", torch.float64).flatten() for w in chosen])


def check_layer(weights: Mapping[str, Tensor], name: str, path: str = "") -> list[str]:
    """The parameters that `layer` joins, in their order; of a template too. Raises ConfigRefused for a name that fits none."""
    if name == "all":
        names = parameters(backbone_of(weights))
    else:
        named = {"first": first_layer, "last": last_layer}.get(name, lambda _: name)(weights)
        names = [each for each in parameters(weights) if each.startswith(f"{named}.")]
    if not names:
        known = ["all", "first", "last", *known_layers(weights)]
        more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
        todo = f"Use one of: {', '.join(known[:SHOWN])}{more}{nearest(name, known)}"
        raise ConfigRefused(f"{path or 'The layer'} is {name!r}; the network has no such layer", todo, path=path)
    return names


def norms(names: Iterable[str]) -> list[str]:
    """The layers of batch norm, in the order of their names: those that keep a running mean."""
    return sorted((layer_of(name) for name in names if name.endswith(".running_mean")), key=steps)


def known_layers(weights: Mapping[str, Tensor]) -> list[str]:
    """The layers with parameters, norms among them, in the order of their names."""
    return list(dict.fromkeys(layer_of(name) for name in parameters(weights)))


def parameters(weights: Mapping[str, Tensor]) -> list[str]:
    """The names of what is trained, in their order. Whole numbers, such as a table of positions, are not."""
    return sorted((name for name, w in weights.items() if w.is_floating_point() and not is_buffer(name)), key=steps)


def is_buffer(name: str) -> bool:
    """Whether a name is that of something which batch norm measures."""
    return name.rpartition(".")[2] in BUFFERS


def trained(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What of a network's weights is trained."""
    return {name: weights[name] for name in parameters(weights)}


def alike(these: Mapping[str, Tensor], those: Mapping[str, Tensor]) -> bool:
    """Whether names, shapes and dtypes agree."""
    same = these.keys() == those.keys()
    return same and all((w.shape, w.dtype) == (those[name].shape, those[name].dtype) for name, w in these.items())


def layer_of(name: str) -> str:
    return name.partition(PARAMETRIZED)[0] if PARAMETRIZED in name else name.rpartition(".")[0]


def steps(name: str) -> tuple[bool, list[tuple[int, str]]]:
    """A name such that `features.3` comes before `features.10`, and the classifier last."""
    return name.startswith(CLASSIFIER), [(int(step), "") if step.isdecimal() else (-1, step) for step in name.split(".")]


def counted(weights: Mapping[str, Tensor], pick: Callable[..., str], word: str) -> str:
    """The first or last of the layers that papers count."""
    named = [name for name in parameters(weights) if weights[name].dim() > 1]
    if not named:
        raise ConfigRefused(f"There is no {word} layer: none of the {len(weights)} tensors is a matrix", "Use another network")
    return layer_of(pick(named, key=steps))
