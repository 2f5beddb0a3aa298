"""Copies of a network that has no numbers yet: to build one takes longer than a small step does, to copy it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = (int, float, str, bool, type(None), torch.Size)


class Prototype:
    """A network on the meta device, to be copied."""

    def __init__(self, net: nn.Module) -> None:
        self.tensors = dict(net.state_dict(keep_vars=True))
        self.module = Module(net, "")
        self.whole = all(map(simple, net.modules()))

    def filled(self, weights: Mapping[str, Tensor], device: str) -> nn.Module | None:
        """A copy with copies of these weights; None where they are not just its own, or it cannot be copied."""
        own = self.tensors
        if not self.whole or own.keys() != weights.keys() or any(not alike(weights[name], own[name]) for name in own):
            return None
        made: dict[int, Tensor] = {}

        def fill(name: str, empty: Tensor) -> Tensor:
            if id(empty) not in made:  # tied weights stay tied
                numbers = weights[name].detach().to(device, copy=True)
                learnt = isinstance(empty, nn.Parameter)
                made[id(empty)] = nn.Parameter(numbers, empty.requires_grad) if learnt else numbers
            return made[id(empty)]

        return self.module.copied(fill)


class Module:
    """One module: what copies share, which dictionaries each has for itself, and by their full names its tensors and modules."""

    def __init__(self, net: nn.Module, prefix: str) -> None:
        own = vars(net)
        self.kind = type(net)
        self.shared = {name: value for name, value in own.items() if not isinstance(value, (dict, set))}
        self.apart = [(name, value.copy) for name, value in own.items() if isinstance(value, (dict, set))]
        stores = [(store, name, each) for store in ("_parameters", "_buffers") for name, each in own[store].items()]
        self.tensors = [(store, name, prefix + name, each) for store, name, each in stores if each is not None]
        inner = [(name, each) for name, each in own["_modules"].items() if each is not None]
        self.modules = [(name, Module(each, f"{prefix}{name}.")) for name, each in inner]

    def copied(self, fill: Callable[[str, Tensor], Tensor]) -> nn.Module:
        """A module of the same class whose dictionaries are its own, with the tensors that `fill` gives for a name."""
        new: nn.Module = object.__new__(self.kind)
        own: dict[str, Any] = vars(new)
        own.update(self.shared)
        for name, copy in self.apart:
            own[name] = copy()
        for store, name, full, each in self.tensors:
            own[store][name] = fill(full, each)
        for name, module in self.modules:
            own["_modules"][name] = module.copied(fill)
        return new


def simple(net: nn.Module) -> bool:
    """Whether what a module registers is all that refers to its tensors and modules, and `state_dict` names every tensor."""
    return not net._non_persistent_buffers_set and all(plain(v) for name, v in vars(net).items() if not name.startswith("_"))


def plain(value: object) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(map(plain, value)))


def alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype
