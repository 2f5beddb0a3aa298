"""Calls of Compute, intercepted: what happens in place of one, or around it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tideline.engine.ports.compute import Compute

NAMES = ("methods", "describe", "draft", "begin", "close", "check")
Around = Callable[..., Any]  # (name, real, *asked): what the call gives


def intercept(compute: Compute, around: Around) -> Callable[[], None]:
    """From now on every call goes through `around`; gives what ends that."""
    real = {name: getattr(compute, name) for name in NAMES}
    for name, call in real.items():
        setattr(compute, name, partial(around, name, call))

    def end() -> None:
        for name, call in real.items():
            setattr(compute, name, call)

    return end
