"""The one table from errors to statuses."""

from __future__ import annotations

import inspect
from http import HTTPStatus
from types import ModuleType

import pytest
from grpc import StatusCode

from tideline.archive import errors as archive_errors
from tideline.core import errors as core_errors
from tideline.core.errors import FederationError
from tideline_server.errors import TABLE, UNEXPECTED, Code, code_of


def classes(module: ModuleType) -> list[type[FederationError]]:
    """The error classes that a module defines."""
    found = inspect.getmembers(module, inspect.isclass)
    return [c for _, c in found if issubclass(c, FederationError) and c.__module__ == module.__name__]


ALL = [c for m in (core_errors, archive_errors) for c in classes(m) if c is not FederationError]


def test_every_error_has_its_codes(subtests: pytest.Subtests) -> None:
    """Each class, by itself or through a base, has a row with a real HTTP error and a real gRPC status."""
    for kind in ALL:
        with subtests.test(kind.__name__):
            code = code_of(kind)
            assert any(base in TABLE for base in kind.__mro__)
            assert 400 <= HTTPStatus(code.http) < 600 and code.grpc in {status.name for status in StatusCode} - {"OK"}
            assert code_of(kind("what happened")) == code


def test_the_table_is_that_of_the_tree() -> None:
    """The table names no class that the tree does not have, and both modules were looked at."""
    assert set(TABLE) <= set(ALL)
    assert len(ALL) > 40


def test_the_nearest_base_decides() -> None:
    """A class of its own row overrules its base; one without takes the nearest."""
    assert code_of(archive_errors.Hole) == code_of(core_errors.Malformed) == Code(400, "INVALID_ARGUMENT")
    assert code_of(archive_errors.TooLarge).http == 413
    assert code_of(FederationError) == UNEXPECTED


def test_only_what_passes_is_worth_trying_again() -> None:
    """Agents retry UNAVAILABLE and RESOURCE_EXHAUSTED; nothing that was refused is among them."""
    again = {kind for kind in ALL if code_of(kind).grpc in ("UNAVAILABLE", "RESOURCE_EXHAUSTED")}
    assert again == {core_errors.Unreachable, core_errors.TooMany, core_errors.StorageFull}
