"""Coordinators for the tests of the HTTP door."""

from __future__ import annotations

import pytest
from api_world import Coordinator


@pytest.fixture
def coordinator() -> Coordinator:
    """A fresh federation behind its door."""
    return Coordinator()


@pytest.fixture(scope="session")
def finished() -> tuple[Coordinator, str]:
    """A federation whose run has completed, with its id; for looking only."""
    coordinator = Coordinator()
    run = coordinator.start()
    coordinator.play(run)
    return coordinator, run
