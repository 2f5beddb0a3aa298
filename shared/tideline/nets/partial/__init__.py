"""Networks of which a part is frozen: what methods see of one has the tensors that train in its state dict, and no others.

The frozen ones are buffers that are not persistent, so that no optimiser, message or state has them. Batch norm of which nothing
trains stays in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from dataclasses import dataclass, field, replace
from types import MethodType

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tideline.core.asked.world import HeadWorld, World
from tideline.core.record import Weights
from tideline.nets.layers import CLASSIFIER, norms

HELD = 2  # networks whose frozen tensors a process has at hand
RECENT: dict[tuple[Hashable, frozenset[str]], Weights] = {}


def unread() -> Weights:
    raise RuntimeError("The numbers of the frozen tensors are asked for where nobody brought them")


@dataclass(frozen=True)
class Held:
    """The frozen tensors of a network, by their names in its state dict.

    of     which file they are in, and of which network
    read   gives that file's tensors; called when numbers are wanted
    """

    of: Hashable
    names: frozenset[str]
    read: Callable[[], Weights] = field(default=unread, compare=False, repr=False)

    @property
    def weights(self) -> Weights:
        """The numbers, which nobody changes: one copy a process, however many sites it simulates. Raises what `read` raises."""
        key = self.of, self.names
        if (known := RECENT.get(key)) is not None:
            return known
        found = self.read()
        made = RECENT[key] = {name: found[name] for name in sorted(self.names)}
        for old in list(RECENT)[:-HELD]:
            RECENT.pop(old, None)
        return made


@dataclass(frozen=True)
class PartWorld(World):
    """What methods see of a world where a part of the network trains.

    inner   the world with the whole of that network: itself, or of features where no layer below the head trains
    """

    inner: World = field(default_factory=World)
    held: Held = field(default_factory=lambda: Held("", frozenset()))


def of_classes(world: World, classes: int) -> World:
    """The same world for a copy of its network that has a new head of so many classes, all of which trains."""
    if isinstance(world, PartWorld):
        below = frozenset(name for name in world.held.names if not name.startswith(CLASSIFIER))
        inner, held = of_classes(world.inner, classes), replace(world.held, names=below)
        return replace(world, classes=classes, class_names=(), inner=inner, held=held)
    if isinstance(world, HeadWorld):
        return replace(world, classes=classes, class_names=(), whole=of_classes(world.whole, classes))
    return replace(world, classes=classes, class_names=())


def freeze(net: nn.Module, names: Set[str]) -> nn.Module:
    """The same module, with these tensors of its state dict as buffers that are no part of it."""
    for name in sorted(names):
        path, _, leaf = name.rpartition(".")
        layer = net.get_submodule(path)
        tensor = getattr(layer, leaf).detach()
        delattr(layer, leaf)
        layer.register_buffer(leaf, tensor, persistent=False)
    for path in norms(names):
        stay(net.get_submodule(path))
    for layer in net.modules():
        if isinstance(layer, nn.RNNBase):  # it has a list of its tensors beside, which this makes anew
            layer._apply(lambda tensor: tensor)  # type: ignore[no-untyped-call]
    return net


def stay(layer: nn.Module) -> None:
    """Put a layer into evaluation mode, where the network's `train` leaves it."""
    vars(layer)["train"] = MethodType(evaluating, layer)
    if isinstance(layer, _BatchNorm):
        layer.track_running_stats = False  # it has them and uses them; nobody measures them anew, or looks for its counter
    layer.eval()


def evaluating(layer: nn.Module, mode: bool = True) -> nn.Module:
    return nn.Module.train(layer, False)
