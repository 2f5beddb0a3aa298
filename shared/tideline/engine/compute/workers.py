"""What a process that computes for this one must have, so that its bytes are the same: versions, a device, added networks."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping

from tideline.core.algorithm import import_from_here
from tideline.core.errors import ConfigRefused, DeviceMissing
from tideline.nets import registry


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


def network_places() -> tuple[str, ...]:
    """Where this process found the networks that it adds to the built-in ones."""
    return registry.places()


def know_networks(places: Iterable[str]) -> None:
    """Know the same in a process that was started for steps, and find modules where its parent does. Raises ConfigRefused."""
    import_from_here()
    if tuple(places) != registry.places():
        registry.use(places)
