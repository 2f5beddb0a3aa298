"""A federation of three real agents, and a browser that looks at it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from tests.acceptance.conftest import SITES, start_all
from tests.acceptance.dashboard.looking import Looking
from tests.acceptance.harness import Net, net

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = [
    "--no-sandbox",  # root has none; the pages are our own
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


@pytest.fixture(scope="module")
def playwright_running() -> Iterator[Playwright]:
    """While it runs, no test of this process can have an event loop of its own."""
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="module")
def chromium(playwright_running: Playwright) -> Iterator[Browser]:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("NOT TESTED: there is no browser on this machine (Debian: apt-get install chromium)")
    made = playwright_running.chromium.launch(executable_path=found, args=OPTIONS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator, and three agents that have enrolled."""
    with net(tmp_path_factory.mktemp("federation")) as made:
        start_all(made, data)
        for name in SITES:
            made.heard(name, "enrolled")
        yield made


@pytest.fixture
def looking(chromium: Browser, federation: Net, request: pytest.FixtureRequest) -> Iterator[Looking]:
    """A browser of its own for a test, not signed in."""
    with browsing(chromium, f"http://127.0.0.1:{federation.http}", request.node.name) as made:
        yield made


@contextmanager
def browsing(chromium: Browser, address: str, picture: str, **options: bool) -> Iterator[Looking]:
    """Open a browser, at an owner's page if the address is a link to it. It must have nothing to complain of at the end."""
    context = chromium.new_context(viewport={"width": 1200, "height": 1000}, **options)  # type: ignore[arg-type]
    place, _, link = address.partition("/#")
    made = Looking(context.new_page(), place)
    if link:
        made.page.goto(address)
        made.page.get_by_role("heading", level=1).wait_for()
    yield made
    keep_picture(made.page, picture)
    context.close()
    made.check()


def keep_picture(page: Page, name: str) -> None:
    """Keep a picture of what a page shows in the folder TIDELINE_TEST_PICTURES, if there is one."""
    if folder := os.environ.get("TIDELINE_TEST_PICTURES"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{re.sub('[^A-Za-z0-9_-]+', '-', name)}.png", full_page=True)
