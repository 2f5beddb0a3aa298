"""Networks with group norm (Wu and He 2018, arXiv 1803.08494) in batch norm's place: no row sees the rows beside it.

A world asks for it by the option `norm: group`, of any network: built in, of a package, or of one's own.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tideline.core.errors import ConfigRefused

N = TypeVar("N", bound=nn.GroupNorm)
GROUPS = 32  # at most
CHANNELS = 4  # of a group, at least where there are so many: of one number alone the norm is 0
KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def with_group_norm(net: nn.Module) -> nn.Module:
    """A copy with each batch norm replaced by group norm, with the weights and biases that it had. Raises as `grouped`."""
    return grouped(deepcopy(net))


def grouped(net: nn.Module) -> nn.Module:
    """The same, in place where it can be. Raises ConfigRefused for a batch norm of another kind, which may do more."""
    if isinstance(net, _BatchNorm):
        return in_place_of(net, "itself")
    for name, parent in list(net.named_modules()):
        for own, layer in list(parent.named_children()):
            if isinstance(layer, _BatchNorm):
                setattr(parent, own, in_place_of(layer, f"{name}.{own}" if name else own))
    return net


def in_place_of(layer: _BatchNorm, name: str) -> nn.Module:
    """Group norm over as many channels. Raises ConfigRefused."""
    if type(layer) in KINDS:
        return alike(layer, nn.GroupNorm)
    act, drop = getattr(layer, "act", None), getattr(layer, "drop", None)
    if isinstance(act, nn.Module) and isinstance(drop, nn.Module) and set(dict(layer.named_children())) == {"act", "drop"}:
        made = alike(layer, GroupNormAct)  # what timm has
        made.act, made.drop = act, drop
        return made
    what = f"The network's layer {name} is a {type(layer).__name__}, a batch norm of its own kind, which may do more"
    raise ConfigRefused(what, "Use one of torch.nn in your network, or leave norm out", path="world.model.options.norm")


class GroupNormAct(nn.GroupNorm):
    """Group norm with what follows it inside the same layer."""

    act: nn.Module
    drop: nn.Module

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        found: Tensor = self.act(self.drop(super().forward(input)))
        return found


def alike(layer: _BatchNorm, kind: type[N]) -> N:
    """A group norm with a layer's weights and biases, where and of what type they are."""
    norm = kind(groups_of(layer.num_features), layer.num_features, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        with torch.no_grad():
            norm.weight, norm.bias = (nn.Parameter(each.clone(), each.requires_grad) for each in (layer.weight, layer.bias))
    norm.train(layer.training)
    return norm


def groups_of(channels: int) -> int:
    """The most groups of equal size, so many at most, of which each has enough channels; else one."""
    return max((n for n in range(1, GROUPS + 1) if channels % n == 0 and channels // n >= CHANNELS), default=1)
