"""Charts, where Helm's engine is."""

from __future__ import annotations

import os

import pytest

from tests.deploy.chart import why_not


@pytest.fixture(scope="session", autouse=True)
def helm() -> None:
    """Without it the tests are left out, loudly; where changes are checked before they land, they fail."""
    if why_not() and os.environ.get("CI"):
        pytest.fail(why_not())
    if why_not():
        pytest.skip(why_not())
