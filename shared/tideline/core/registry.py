"""Methods by name: a tuple of (name, "module:attribute"), resolved when a method is used, so that listing them loads nothing."""

from __future__ import annotations

import importlib

from tideline.core.algorithm import Algorithm, AnyAlgorithm
from tideline.core.errors import ConfigRefused, NotFound
from tideline.core.settings import nearest

Methods = tuple[tuple[str, str], ...]


def resolve(methods: Methods, name: str) -> AnyAlgorithm:
    """The method of a name. Raises NotFound with the names that exist, ConfigRefused where its place holds no method."""
    places = dict(methods)
    if name not in places:
        known = sorted(places)
        raise NotFound(f"There is no method {name!r}", f"Use one of: {', '.join(known)}{nearest(name, known)}", path="method")
    found = attribute(places[name], f"The method {name!r}")
    if not isinstance(found, Algorithm):
        raise ConfigRefused(f"The method {name!r}: {places[name]} is no Algorithm", "Correct the registry tuple", path="method")
    return found


def attribute(place: str, whose: str) -> object:
    """What stands at "module:attribute". Raises ConfigRefused with the reason."""
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as cause:
        raise ConfigRefused(f"{whose}: {place}: {cause}", "Write it as MODULE:NAME, importable here", path="method") from cause


def load_methods(place: str) -> Methods:
    """A registry tuple that an operator chose with `--methods MODULE:TUPLE`. Raises ConfigRefused."""
    found = attribute(place, "--methods")
    if not isinstance(found, tuple) or not all(map(is_row, found)):
        raise ConfigRefused(f"--methods {place} is not a tuple of (name, 'module:attribute')", "See tideline.algorithms.METHODS")
    names = [name for name, _ in found]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ConfigRefused(f"--methods {place} names {twice[0]!r} twice", "Give each method a name of its own")
    return found


def is_row(row: object) -> bool:
    """Whether this is (name, "module:attribute")."""
    return isinstance(row, tuple) and len(row) == 2 and all(isinstance(text, str) for text in row)
