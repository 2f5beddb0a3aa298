"""Networks that are not the project's own: built on the CPU, once in a process, checked, and copied.

What cannot work is refused when it is built first, by name and with the way out. Buffers that no state dict has are part of the
copy, so each instance has the numbers that the module itself computed for them.
"""

from __future__ import annotations

import copy
import json
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tideline.core.asked.world import HeadWorld, Kind, World
from tideline.core.errors import ConfigRefused, kind_of
from tideline.core.settings import plain
from tideline.core.tables.columns import Columns
from tideline.nets import registry
from tideline.nets.apart import SEED, Tried, again, alone, evaluated, log, probe, refused, taken_apart, whole
from tideline.nets.layers import alike
from tideline.nets.options import chosen_options, with_options
from tideline.nets.partial import PartWorld
from tideline.nets.small import Net

MOST = 1 << 32  # numbers of a network: 17 GB of float32
HELD = 4  # networks that a process holds to copy from
# Torch's global generator is one for all threads: who draws from it, or has it drawn from, holds this.
DRAWING = threading.RLock()


@dataclass(frozen=True)
class Key:
    """What a network depends on, as something that a cache knows again."""

    build: registry.Build
    model: str
    inputs: tuple[int, ...]
    classes: int
    options: str
    sizes: str
    rows: tuple[int, ...] = ()  # of the head alone: what the encoder takes, whose features are `inputs`
    columns: Columns = ()
    vocabulary: int = 0  # of token ids that the network takes; 0: it takes numbers

    @property
    def world(self) -> World:
        given: dict[str, Any] = {"options": json.loads(self.options), "sizes": json.loads(self.sizes)}
        given |= {"classes": self.classes, "model": self.model, "columns": self.columns}
        tokens: dict[str, Any] = {"dtype": Kind.INT64, "vocabulary": self.vocabulary} if self.vocabulary else {}
        if not self.rows:
            return World(inputs=self.inputs, **given, **tokens)
        return HeadWorld(inputs=self.inputs, **given, whole=World(inputs=self.rows, **given, **tokens))


def key_of(world: World) -> Key:
    """Of a world that a method sees in part that of the whole network. Raises ConfigRefused for one that is not known."""
    if isinstance(world, PartWorld):
        return key_of(world.inner)
    whole = world.whole if isinstance(world, HeadWorld) else world
    options, sizes = (json.dumps(plain(each), sort_keys=True) for each in (world.options, world.sizes))
    return Key(
        build=registry.builder(world.model),
        model=world.model,
        inputs=world.inputs,
        classes=world.classes,
        options=options,
        sizes=sizes,
        rows=whole.inputs if isinstance(world, HeadWorld) else (),
        columns=world.columns,
        vocabulary=whole.vocabulary,
    )


def foreign(world: World) -> Tried:
    """The world's network, checked, for copies: nobody changes it. Raises ConfigRefused."""
    return known_foreign(key_of(world))


@lru_cache(maxsize=HELD)
def known_foreign(key: Key) -> Tried:
    with DRAWING, alone():
        check_size(key.build, key.world)
        torch.default_generator.manual_seed(SEED)
        module = module_of(key.build, key.world)
        check_module(module, key.world)
        untouched = another(module, key.world)
        tried = whole(module, key.world) if isinstance(module, Net) else taken_apart(module, key.world)
        check_training(another(untouched, key.world), key.world)
        # What a forward has left in plain attributes, such as timm's caches of attention biases, is in no copy.
        return replace(tried, net=again(untouched, tried.path).train())


def build(world: World) -> Net:
    """A network of its own, its first weights from torch's global generator. Raises ConfigRefused."""
    tried = foreign(world)
    with torch.device("cpu"):
        net = again(module_of(registry.builder(world.model), world), tried.path).train()
    if not alike(net.state_dict(), tried.net.state_dict()):
        raise refused(world, "is another one each time it is built", "Let its layers depend on the world and its options alone")
    with torch.no_grad():
        kept = dict(unsaved(tried.net))
        for name, buffer in unsaved(net):
            buffer.copy_(kept[name])
    return net


def copied(world: World) -> Net:
    """A copy of the checked network, which draws no numbers; its weights are to be set. Raises ConfigRefused."""
    with torch.device("cpu"):
        return copy.deepcopy(foreign(world).net)


def check_size(build: registry.Build, world: World) -> None:
    """Raises ConfigRefused for more numbers than a site is to make room for, before any is: a coordinator chooses the options.

    Of a network that cannot be built without storage it is not known.
    """
    chosen_options(build, world)
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        try:
            module = with_options(build, world)
            size = sum(tensor.numel() for _, tensor in tensors(module)) if isinstance(module, nn.Module) else 0
        except Exception:  # noqa: BLE001 - what is wrong with it is said where it is built
            return
    if size > MOST:
        what = f"has {size:,} numbers, which is beyond {MOST:,}"
        raise refused(world, what, "Choose other options")


def module_of(build: registry.Build, world: World) -> nn.Module:
    """What the builder gives. Raises ConfigRefused."""
    chosen_options(build, world)
    try:
        module = with_options(build, world)
    except (ConfigRefused, MemoryError):
        raise
    except Exception as cause:
        log.warning("The network %s cannot be built", world.model, exc_info=cause)
        what = f"cannot be built: its builder raises {type(cause).__name__}"
        raise refused(world, what, "See the log of this process for its words; correct the builder, or its options") from cause
    if not isinstance(module, nn.Module):
        raise refused(world, f"is {kind_of(module)}", "Let its builder give an nn.Module, on the CPU")
    return module


def check_module(module: nn.Module, world: World) -> None:
    """Raises ConfigRefused for what copies and messages cannot have."""
    for name, tensor in tensors(module):
        if is_lazy(tensor):
            what = f"is lazy: {name} has no shape before it has seen rows"
            raise refused(world, what, "Give its layers their sizes, such as nn.Linear in place of nn.LazyLinear")
        if tensor.device.type != "cpu":
            raise refused(world, f"has {name} on {tensor.device}", "Build it on the CPU: it is moved to where steps compute")
    seen = dict[int, str]()
    for name, tensor in tensors(module):
        first = seen.setdefault(tensor.untyped_storage().data_ptr() or id(tensor), name)
        if first != name:
            what = f"has one tensor under two names, {first} and {name}"
            raise refused(world, what, "Register it once and use it twice, or give each place a tensor of its own")
    for name, words, todo in hidden(module):
        raise refused(world, f"has {words} as its attribute {name}, which no state dict has", todo)


def hidden(module: nn.Module) -> Iterator[tuple[str, str, str]]:
    """What modules have as plain attributes and a state dict would have if it were registered: its name, and what to do."""
    registered = {id(each) for each in module.modules()} | {id(each) for _, each in tensors(module)}
    for prefix, each in module.named_modules():
        for name, value in vars(each).items():
            if name in vars(EMPTY) and name != "training":
                continue
            place = f"{prefix}.{name}" if prefix else name
            for found in flat(value):
                if id(found) in registered:
                    continue
                if isinstance(found, Tensor):
                    old = " (of torch.nn.utils.weight_norm take the one in torch.nn.utils.parametrizations)"
                    yield place, "a plain tensor", f'Register it: self.register_buffer("{name}", ...){old * (name == "weight")}'
                else:
                    yield place, "modules", "Put them into an nn.ModuleList or nn.ModuleDict"


EMPTY = nn.Module()


def flat(value: object, depth: int = 2) -> Iterator[Tensor | nn.Module]:
    """The tensors and modules in a value, and in lists and mappings of them."""
    if isinstance(value, (Tensor, nn.Module)):
        yield value
    elif depth and isinstance(value, (list, tuple, set)):
        for each in value:
            yield from flat(each, depth - 1)
    elif depth and isinstance(value, Mapping):
        for each in value.values():
            yield from flat(each, depth - 1)


def another(module: nn.Module, world: World) -> nn.Module:
    """A copy of a module. Raises ConfigRefused for one that cannot be copied."""
    try:
        return copy.deepcopy(module)
    except Exception as cause:
        log.warning("The network %s cannot be copied", world.model, exc_info=cause)
        what = f"cannot be copied ({type(cause).__name__})"
        raise refused(world, what, "Keep nothing in it that is computed from its weights, nor open files or locks") from cause


def check_training(module: nn.Module, world: World) -> None:
    """Raises ConfigRefused for a network that gives something else while it is trained."""
    try:
        given = evaluated(lambda: module.train()(probe(world)))
    except Exception as cause:
        log.warning("The network %s cannot compute in training mode", world.model, exc_info=cause)
        what = f"raises {type(cause).__name__} in forward when it is in training mode"
        raise refused(world, what, "See the log of this process for its words; correct forward") from cause
    if not isinstance(given, Tensor) or tuple(given.shape) != (2, world.classes):
        what = f"gives {kind_of(given)} when it is in training mode"
        raise refused(world, what, "Return one tensor (n, classes) then, too; switch auxiliary outputs off")


def tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers by name, each as often as it is named."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def with_storage(net: nn.Module, device: str) -> nn.Module:
    """The network on a device, with room for what has none yet; other tensors have numbers that no state dict brings."""

    def placed(each: Tensor) -> Tensor:
        return torch.empty_like(each, device=device) if each.is_meta else each.to(device)

    return cast("nn.Module", net._apply(placed))  # type: ignore[no-untyped-call]


def unsaved(net: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The buffers that no state dict has."""
    for prefix, module in net.named_modules():
        for name in sorted(module._non_persistent_buffers_set):
            if (buffer := module._buffers.get(name)) is not None:
                yield f"{prefix}.{name}", buffer
