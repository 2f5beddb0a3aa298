"""How the pages look and are used: on a phone, in the dark, by keyboard, by who sees no colours."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.acceptance.dashboard.looking import PATIENCE, Looking
from tests.acceptance.dashboard.test_watching import fedavg, key
from tests.acceptance.harness import Net

pytestmark = pytest.mark.processes
PAGES = {
    "#/runs": "Runs",
    "#/sites": "Sites",
    "#/sites/a": "a",
    "#/start": "Start a run",
    "#/doctor": "Doctor",
    "#/audit": "Audit log",
}


@pytest.fixture(scope="module")
def run(federation: Net) -> str:
    """A run that has ended."""
    found = federation.run(fedavg("to be looked at", 4))
    federation.ended(found)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_every_page(federation: Net, looking: Looking, run: str, scheme: str, width: int) -> None:
    """None is wider than the window, and axe-core finds nothing."""
    looking.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    looking.page.set_viewport_size({"width": width, "height": 900})
    looking.sign_in(key(federation))
    for at, heading in (PAGES | {f"#/runs/{run}": "to be looked at"}).items():
        looking.open(at, heading)
        looking.fits()
        looking.accessible()


def test_the_page_of_sign_in(looking: Looking) -> None:
    """Nothing is there before."""
    looking.expected = ("401",)
    looking.page.goto(looking.url)
    expect(looking.page.get_by_label("API key")).to_be_focused()
    looking.accessible()


def test_by_keyboard_alone(federation: Net, looking: Looking, run: str) -> None:
    """Past the menu to the content, to a run, and through its folds; a dialogue can be left with Escape."""
    page = looking.page
    looking.expected = ("401",)
    page.goto(looking.url)
    page.get_by_label("API key").wait_for()
    page.keyboard.type(key(federation))
    page.keyboard.press("Enter")
    link = page.get_by_role("link", name="to be looked at")
    link.first.wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(60):
        if page.evaluate("document.activeElement.textContent") == "to be looked at":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="to be looked at")).to_be_visible(timeout=PATIENCE)
    for _ in range(60):
        if page.evaluate("document.activeElement.textContent") == "Settings":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("The experiment", exact=True)).to_contain_text("method: fedavg")
