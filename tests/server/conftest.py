"""A Redis for the tests of bells and limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis import Redis, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    """A running Redis."""
    with running(tmp_path) as made:
        yield made
