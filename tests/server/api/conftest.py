"""Coordinators for the tests of the HTTP door."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from api_world import Coordinator, locked
from listening import Port, open_port


@pytest.fixture
def coordinator() -> Coordinator:
    """A fresh federation behind a door that asks for no key."""
    return Coordinator()


@pytest.fixture
def door() -> Coordinator:
    """A fresh federation behind a door that asks for a key."""
    return locked()


@pytest.fixture(scope="session")
def ended() -> Coordinator:
    """A federation whose run `ended.run` has completed; for looking only."""
    coordinator = Coordinator()
    coordinator.run = coordinator.start()
    coordinator.play(coordinator.run)
    return coordinator


@pytest.fixture(scope="session")
def port() -> Iterator[Port]:
    """A port that serves one app after another."""
    with open_port() as made:
        yield made
