"""Methods by name: a tuple of (name, "module:attribute"), resolved when a method is used, so that listing them loads nothing."""

from __future__ import annotations

import importlib

from tideline.core.algorithm import Algorithm
from tideline.core.errors import ConfigRefused, NotFound
from tideline.core.settings import nearest

Methods = tuple[tuple[str, str], ...]


def resolve(methods: Methods, name: str) -> Algorithm:
    """The method of a name. Raises NotFound with the names that exist."""
    places = dict(methods)
    if name not in places:
        known = sorted(places)
        raise NotFound(f"There is no method {name!r}", f"Use one of: {', '.join(known)}{nearest(name, known)}", path="method")
    found = attribute(places[name])
    assert isinstance(found, Algorithm)
    return found


def attribute(place: str) -> object:
    """What stands at "module:attribute"."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def load_methods(place: str) -> Methods:
    """A registry tuple that an operator chose with `--methods MODULE:TUPLE`. Raises ConfigRefused."""
    try:
        found = attribute(place)
    except (ImportError, AttributeError, ValueError) as cause:
        raise ConfigRefused(f"--methods {place}: {cause}", "Write it as MODULE:TUPLE, importable here") from None
    good = isinstance(found, tuple) and all(isinstance(row, tuple) and len(row) == 2 for row in found)
    if not good:
        raise ConfigRefused(f"--methods {place} is not a tuple of (name, 'module:attribute')", "See tideline.algorithms.METHODS")
    return found  # type: ignore[return-value]
