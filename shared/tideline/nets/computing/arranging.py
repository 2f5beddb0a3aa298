"""Networks that run as the step at hand computes: their forward in its precision, their outputs float32 as before.

What is called from outside is arranged: the network, its features and classifier, and the halves of these. Inside of one another
they run as they are, so that nothing is cast between layers. Names in the state dict, and weights, stay what they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from tideline.nets.computing import NOT_COMPILED, Here, here

log = logging.getLogger(__name__)
DEEP = 2  # levels below the network: features and classifier, and what these are made of
INSIDE: ContextVar[bool] = ContextVar("INSIDE", default=False)
Run = Callable[..., Any]
UNCOMPILED: set[Run] = set()  # forwards that could not be compiled in this process


def arranged(net: nn.Module) -> nn.Module:
    """The same module, which runs as the step at hand computes."""
    now = here()
    if now.plain:
        return net
    if now.channels_last:
        for parameter in net.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    for module in boundaries(net, DEEP):
        if "forward" not in vars(module):
            vars(module)["forward"] = MethodType(run_as_asked, module)
    return net


def boundaries(net: nn.Module, deep: int) -> Iterator[nn.Module]:
    yield net
    if deep:
        for child in net.children():
            yield from boundaries(child, deep - 1)


def run_as_asked(module: nn.Module, *given: Any, **named: Any) -> Any:
    """A module's forward, as the step at hand computes; as it is within another's."""
    run, now = type(module).forward, here()
    if torch.compiler.is_compiling() or now.plain or INSIDE.get():
        return run(module, *given, **named)
    if now.channels_last:
        given = tuple(images_last(x) for x in given)
    inside = INSIDE.set(True)
    try:
        with now.autocast():
            made = tried(now, run, module, *given, **named) if now.asked.compile else run(module, *given, **named)
    finally:
        INSIDE.reset(inside)
    return as_float32(made)


def images_last(x: Any) -> Any:
    """Images, their channels last; all else as it is."""
    return x.contiguous(memory_format=torch.channels_last) if isinstance(x, Tensor) and x.dim() == 4 else x


def as_float32(made: Any) -> Any:
    """Tensors of a lower precision as float32, also in tuples and lists."""
    if isinstance(made, Tensor):
        return made.float() if made.dtype in (torch.bfloat16, torch.float16) else made
    if type(made) in (tuple, list):
        return type(made)(map(as_float32, made))
    return made


def tried(now: Here, run: Run, module: nn.Module, *given: Any, **named: Any) -> Any:
    """A compiled forward; where it cannot be compiled or run, the forward as it is, in this process from then on."""
    if run not in UNCOMPILED:
        try:
            return compiled(run)(module, *given, **named)
        except torch.OutOfMemoryError:
            raise
        except Exception as cause:  # noqa: BLE001 - whatever fails here, an error of the network's own is raised below
            log.warning("%s cannot be compiled (%s), and runs as it is", type(module).__name__, type(cause).__name__)
            UNCOMPILED.add(run)
    now.say(NOT_COMPILED)
    return run(module, *given, **named)


@lru_cache(maxsize=64)
def compiled(run: Run) -> Run:
    return torch.compile(run)
