"""The errors: each with a sentence, each with something to do."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from tideline.archive import errors as archive_errors
from tideline.core import errors as core_errors
from tideline.core.errors import ConfigRefused, FederationError

MODULES = (core_errors, archive_errors)


def classes(module: ModuleType) -> dict[str, type[FederationError]]:
    """The errors that a module defines."""
    found = inspect.getmembers(module, inspect.isclass)
    return {n: c for n, c in found if issubclass(c, FederationError) and c.__module__ == module.__name__}


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
