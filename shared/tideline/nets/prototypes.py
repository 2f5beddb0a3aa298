"""Copies of a network that has no numbers yet: to build one takes longer than a small step does, to copy it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

V = TypeVar("V")
PLAIN = (int, float, str, bool, type(None), torch.Size)


class Prototype:
    """A network on the meta device, to be copied."""

    def __init__(self, net: nn.Module) -> None:
        self.net, self.tensors = net, dict(net.state_dict(keep_vars=True))
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

        return copied(self.net, "", fill)


def simple(net: nn.Module) -> bool:
    """Whether what a module registers is all that refers to its tensors and modules, and `state_dict` names every tensor."""
    return not net._non_persistent_buffers_set and all(plain(v) for name, v in vars(net).items() if not name.startswith("_"))


def plain(value: object) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(map(plain, value)))


def alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def copied(net: nn.Module, prefix: str, fill: Callable[[str, Tensor], Tensor]) -> nn.Module:
    """A module of the same class whose dictionaries are its own, with the tensors that `fill` gives for a name."""
    new = object.__new__(type(net))
    own: dict[str, Any] = vars(new)
    own.update((name, value.copy() if isinstance(value, (dict, set)) else value) for name, value in vars(net).items())
    for store in ("_parameters", "_buffers"):
        own[store].update((name, fill(prefix + name, each)) for name, each in present(own[store]))
    own["_modules"].update((name, copied(each, f"{prefix}{name}.", fill)) for name, each in present(own["_modules"]))
    return new


def present(store: Mapping[str, V | None]) -> Iterator[tuple[str, V]]:
    return ((name, each) for name, each in tuple(store.items()) if each is not None)
