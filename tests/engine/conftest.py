"""Fixtures of the engine's tests."""

from __future__ import annotations

import pytest

from tests.engine.toys import stage
from tests.laws.stage import Stage


@pytest.fixture
def on() -> Stage:
    """A coordinator and three sites in this process that play the toy method."""
    return stage()
