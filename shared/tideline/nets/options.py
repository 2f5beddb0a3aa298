"""The options of a network, held to the signature of the function that builds it."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.settings import SCALARS, nearest, read, read_tuple, refuse
from tideline.nets.grouped import grouped

PATH = "world.model.options"
NORM, GROUP, BATCH = "norm", "group", "batch"  # an option of every network that has batch norm
LISTS = (list, Sequence)
ALLOWED = "whole numbers, numbers, true or false, texts, and lists of these"


def with_options(build: Callable[..., Any], world: World) -> Any:
    """What the builder gives with the world's options, with group norm in batch norm's place if the world says so. Raises
    ConfigRefused.
    """
    net, norm = build(world, **chosen_options(build, world)), norm_in(build, world)
    if norm != GROUP or not isinstance(net, nn.Module):
        return net
    if not any(isinstance(layer, _BatchNorm) for layer in net.modules()):
        what = f"{PATH}.{NORM} is {GROUP}, and {world.model} has no batch norm that it would replace"
        raise ConfigRefused(what, f"Leave {NORM} out", path=f"{PATH}.{NORM}")
    return grouped(net)


def norm_in(build: Callable[..., object], world: World) -> str | None:
    """What the world says of the network's norm; None where it says nothing, or the builder has an option of that name. Raises
    ConfigRefused for what is none.
    """
    if NORM not in world.options or NORM in parameters(build, world)[0]:
        return None
    found = world.options[NORM]
    if found not in (GROUP, BATCH):
        raise ConfigRefused(f"{PATH}.{NORM} is {found!r}", f"Write {GROUP}, or {BATCH}", path=f"{PATH}.{NORM}")
    return str(found)


def chosen_options(build: Callable[..., object], world: World) -> dict[str, Any]:
    """The world's options as the builder's keyword arguments. Raises ConfigRefused with the option's own path."""
    taken, open_ended = parameters(build, world)
    asked = {name: value for name, value in world.options.items() if name != NORM or norm_in(build, world) is None}
    for name in asked:
        if name not in taken and not open_ended:
            known = sorted(taken)
            todo = f"Use one of: {', '.join(known)}{nearest(name, known)}" if known else "Leave it out: this network has none"
            raise ConfigRefused(f"{world.model} has no option {name!r}", todo, path=f"{PATH}.{name}")
    for name, parameter in taken.items():
        if parameter.default is inspect.Parameter.empty and name not in world.options:
            todo = f"Write model: {{name: {world.model}, options: {{{name}: ...}}}}"
            raise ConfigRefused(f"{PATH}.{name} is missing: {world.model} cannot be built without", todo, path=f"{PATH}.{name}")
    hints = hints_of(build)
    return {name: option(hint_of(name, hints, taken), value, f"{PATH}.{name}") for name, value in asked.items()}


def all_options(build: Callable[..., object], world: World) -> dict[str, object]:
    """What the network is built with, defaults included."""
    taken, _ = parameters(build, world)
    defaults = {name: each.default for name, each in taken.items() if each.default is not inspect.Parameter.empty}
    norm = norm_in(build, world)
    return defaults | chosen_options(build, world) | ({} if norm is None else {NORM: norm})


def parameters(build: Callable[..., object], world: World) -> tuple[dict[str, inspect.Parameter], bool]:
    """What a builder takes after the world, by name, and whether it takes any other, too. Raises ConfigRefused."""
    try:
        first, *rest = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        first, rest = None, []
    if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
        what = f"The function that builds {world.model} does not take a world"
        raise ConfigRefused(what, "Write it as build(world, **options)", path="world.model")
    named = {each.name: each for each in rest if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    return named, any(each.kind is each.VAR_KEYWORD for each in rest)


def hints_of(build: Callable[..., object]) -> Mapping[str, Any]:
    """The types that a builder's signature says; none where they cannot be worked out."""
    try:
        return typing.get_type_hints(build.__init__ if inspect.isclass(build) else build)
    except (NameError, TypeError, AttributeError):
        return {}


def hint_of(name: str, hints: Mapping[str, Any], taken: Mapping[str, inspect.Parameter]) -> Any:
    """The type of an option: as annotated, else of its default; None: any that a file can say."""
    default = taken[name].default if name in taken else None
    return hints.get(name, type(default) if type(default) in SCALARS else None)


def option(hint: Any, value: Any, path: str) -> Any:
    """One option as its type. Raises ConfigRefused."""
    if hint is None or hint is Any:
        check_plain(value, path)
        return value
    if not readable(hint):
        what = f"{path} is of the type {getattr(hint, '__name__', hint)}, which no file can say"
        raise ConfigRefused(what, f"Let the builder take {ALLOWED}", path=path)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        if value not in args:
            raise refuse(path, value, f"should be one of {', '.join(map(str, args))}")
        return value
    if origin in LISTS:
        return list(read_tuple((*args, ...), value, path, {}))
    return read(hint, value, path)


def readable(hint: Any) -> bool:
    """Whether a file can say values of a type: scalars, lists and tuples of them, or one of several."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return all(each is type(None) or readable(each) for each in args)
    if origin is tuple or origin in LISTS:
        return bool(args) and all(each is ... or readable(each) for each in args)
    return origin is typing.Literal or hint in SCALARS


def check_plain(value: Any, path: str) -> None:
    """Raises ConfigRefused for a value that is neither a scalar nor a list of them."""
    if isinstance(value, (tuple, list)):
        for i, each in enumerate(value):
            check_plain(each, f"{path}[{i}]")
    elif value is not None and type(value) not in SCALARS:
        raise refuse(path, value, f"should be of {ALLOWED}")
