"""The networks that this process adds to the built-in ones, for processes that it starts."""

from __future__ import annotations

from collections.abc import Iterable

from tideline.core.algorithm import import_from_here
from tideline.nets import registry


def places() -> tuple[str, ...]:
    """Where this process found them."""
    return registry.places()


def same_here(places: Iterable[str]) -> None:
    """Know the same in a process that was started for steps, and find modules where its parent does. Raises ConfigRefused."""
    import_from_here()
    if tuple(places) != registry.places():
        registry.use(places)
