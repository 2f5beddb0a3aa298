"""The last release, unpacked once."""

from __future__ import annotations

import pytest

from tests.upgrades.trees import Released, needed


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Released:
    """Skips where the history lacks its commit."""
    return needed(tmp_path_factory.mktemp("released"))
