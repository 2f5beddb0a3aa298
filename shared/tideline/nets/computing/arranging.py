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
IMAGES = 4  # dims: of images, and of kernels
FIRST = "_channels_first"  # the mark of a module whose layers want its images so
VIEW = "view size is not compatible"  # torch's words where a layer needs numbers that lie in the order of their dims


def arranged(net: nn.Module) -> nn.Module:
    """The same module, which runs as the step at hand computes."""
    now = here()
    if now.plain:
        return net
    if now.channels_last:
        lay(net, torch.channels_last)
    for module in boundaries(net, DEEP):
        if "forward" not in vars(module):
            vars(module)["forward"] = MethodType(run_as_asked, module)
    return net


def lay(net: nn.Module, order: torch.memory_format) -> None:
    """Have kernels lie in such an order in memory; what they are stays the same."""
    for parameter in net.parameters():
        if parameter.dim() == IMAGES:
            parameter.data = parameter.data.contiguous(memory_format=order)


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
    inside = INSIDE.set(True)
    try:
        with now.autocast():
            made = ordered(now, run, module, *given, **named)
    finally:
        INSIDE.reset(inside)
    return as_float32(made)


def ordered(now: Here, run: Run, module: nn.Module, *given: Any, **named: Any) -> Any:
    """A forward of images whose channels lie last, where that is faster; where its layers want them first, of images so."""
    if not now.channels_last or FIRST in vars(module):
        return tried(now, run, module, *given, **named)
    try:
        return tried(now, run, module, *map(images_last, given), **named)
    except RuntimeError as cause:
        if VIEW not in str(cause):
            raise
    vars(module)[FIRST] = True
    lay(module, torch.contiguous_format)
    torch.clear_autocast_cache()  # it has kernels as they lay before
    return tried(now, run, module, *given, **named)


def images_last(x: Any) -> Any:
    """Images, their channels last; all else as it is."""
    return x.contiguous(memory_format=torch.channels_last) if isinstance(x, Tensor) and x.dim() == IMAGES else x


def as_float32(made: Any) -> Any:
    """Tensors of a lower precision as float32, also in tuples and lists."""
    if isinstance(made, Tensor):
        return made.float() if made.dtype in (torch.bfloat16, torch.float16) else made
    if type(made) in (tuple, list):
        return type(made)(map(as_float32, made))
    return made


def tried(now: Here, run: Run, module: nn.Module, *given: Any, **named: Any) -> Any:
    """The forward, compiled if that is asked; where it cannot be, the forward as it is, in this process from then on."""
    if not now.asked.compile:
        return run(module, *given, **named)
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
