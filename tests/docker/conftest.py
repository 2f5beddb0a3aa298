"""Containers, where there is an engine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.docker.engine import Containers, base_images, why_not


@pytest.fixture(scope="session")
def settings() -> dict[str, str]:
    """What images are built with here. Without an engine the tests are left out, loudly."""
    if why_not():
        pytest.skip(why_not())
    return base_images()


@pytest.fixture(scope="session")
def images(settings: dict[str, str]) -> dict[str, str]:
    """The project's images, built."""
    made = Containers(settings)
    if not os.environ.get("TIDELINE_TEST_IMAGES"):  # set where they have just been built
        made.compose("build", "setup", "site-1")
    return settings


@pytest.fixture(scope="module")
def federation(images: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Containers]:
    """A federation with the overlays and settings that the module names, brought up: the services that it names, or all."""
    made = Containers(images | getattr(request.module, "SETTINGS", {}), *getattr(request.module, "OVERLAYS", ()))
    try:
        made.compose("up", "--detach", "--no-build", *getattr(request.module, "SERVICES", ()))
        yield made
    finally:
        made.down()
