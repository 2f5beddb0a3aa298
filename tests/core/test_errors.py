"""The errors: drawn as they are built, each with a sentence, each with something to do."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import pytest

from tideline.archive import errors as archive_errors
from tideline.core import errors as core_errors
from tideline.core.errors import ConfigRefused, FederationError

MODULES = (core_errors, archive_errors)


def drawn(module: ModuleType) -> dict[str, str]:
    """The tree in a module's docstring: name -> the name above it."""
    above: dict[int, str] = {}
    found: dict[str, str] = {}
    for line in (module.__doc__ or "").splitlines():
        node = re.match(r"((?:[|` ] {2})*)([|`]- )?((?:[A-Z]\w+)(?:, [A-Z]\w+)*)(?: {2,}|$)", line)
        if node is None:
            continue
        depth = (len(node[1]) + len(node[2] or "")) // 3
        for name in node[3].split(", "):
            found[name] = above.get(depth - 1, "")
            above[depth] = name
    return found


def classes(module: ModuleType) -> dict[str, type[FederationError]]:
    """The errors that a module defines."""
    found = inspect.getmembers(module, inspect.isclass)
    return {n: c for n, c in found if issubclass(c, FederationError) and c.__module__ == module.__name__}


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_the_tree_is_the_one_that_is_drawn(module: ModuleType) -> None:
    """Every error stands in the docstring below its own base, and every drawn name exists."""
    built = {name: c.__mro__[1].__name__ for name, c in classes(module).items()}
    tree = drawn(module)
    top = next(iter(tree))
    assert tree.pop(top) == ""
    built.pop(top, None)
    assert tree == built


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_every_error_says_when_it_happens(module: ModuleType) -> None:
    """Each class has a sentence of its own."""
    for name, c in classes(module).items():
        assert inspect.cleandoc(c.__dict__.get("__doc__") or "").endswith("."), name


def test_an_error_is_for_a_person_and_for_a_program() -> None:
    """What, what to do, context as data, and a stable name."""
    error = ConfigRefused("rounds is 0", "Correct the value", path="config.rounds")
    assert str(error) == "rounds is 0. Correct the value"
    assert str(FederationError("rounds is 0")) == "rounds is 0"
    assert (error.kind, error.context) == ("ConfigRefused", {"path": "config.rounds"})
