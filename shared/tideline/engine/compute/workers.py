"""What a process on another machine must have, so that what it computes has the bytes of this one."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from tideline.core.errors import ConfigRefused, DeviceMissing


def versions() -> dict[str, str]:
    """What the bytes of a step depend on."""
    from importlib.metadata import version

    from tideline import __version__

    return {"tideline": __version__, "torch": version("torch")}


def check_worker(expected: Mapping[str, str], device: str) -> None:
    """Raises ConfigRefused if this process has other versions than these; DeviceMissing."""
    import torch

    if (ours := versions()) != expected:
        odd = ", ".join(f"{name} {ours[name]} instead of {expected[name]}" for name in ours if ours[name] != expected[name])
        what = f"The worker on {socket.gethostname()} has {odd}"
        raise ConfigRefused(what, "Install the same versions on every machine: the bytes depend on them", path="pool")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        what = f"The worker on {socket.gethostname()} has no device {device} that torch can use"
        raise DeviceMissing(what, "See the driver and the build of torch there, or use --device cpu", device=device) from None
