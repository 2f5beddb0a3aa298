"""The manual at /docs in a real browser: all of it is drawn, from this coordinator alone, under its own strict policy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from api_world import HOME_KEY, Coordinator
from listening import listening

if TYPE_CHECKING:  # tests that run elsewhere do not wait for its library
    from tests.acceptance.dashboard.looking import Looking

pytestmark = pytest.mark.nightly(job="browser")
VIOLATIONS = """
window.violations = [];
addEventListener("securitypolicyviolation", (e) => violations.push([e.effectiveDirective, e.blockedURI]), true);
"""
# A call with a large body, one with a file, one without a key. To open all takes a minute.
OPENED = ("runs-start_run", "weights-put_weights", "health-ready")
AWAY = "http://elsewhere.example/picture.png"


@pytest.fixture
def manual(door: Coordinator) -> Iterator[Looking]:
    """The manual of a coordinator that asks for a key, drawn."""
    from playwright.sync_api import sync_playwright

    from tests.acceptance.dashboard.conftest import NAMES, OPTIONS
    from tests.acceptance.dashboard.looking import Looking

    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("NOT TESTED: there is no browser on this machine (Debian: apt-get install chromium)")
    with listening(0, app=door.app) as (host, port), sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        shown = Looking(chromium.new_page(), f"http://{host}:{port}")
        shown.page.add_init_script(VIOLATIONS)
        shown.page.goto(f"{shown.url}/docs")
        shown.page.locator(".opblock").first.wait_for()
        yield shown
        chromium.close()


def unfold(manual: Looking, call: str) -> None:
    """Open a call, and wait until its answers are drawn."""
    manual.page.locator(f"#operations-{call} .opblock-summary-control").click()
    manual.page.locator(f"#operations-{call} .responses-wrapper .response").first.wait_for()


def test_every_call_is_drawn_and_nothing_comes_from_elsewhere(manual: Looking, door: Coordinator) -> None:
    """Each operation is a line, some are opened. The policy forbids nothing that the page needs; the browser has no complaint."""
    described = door.get("/openapi.json").json()["paths"]
    lines = manual.page.locator(".opblock-summary").all_inner_texts()
    operations = sorted(f"{method.upper()} {path}" for path, methods in described.items() for method in methods)
    assert sorted(" ".join(line.replace("\u200b", "").split()[:2]) for line in lines) == operations
    for call in OPENED:
        unfold(manual, call)
    assert manual.page.evaluate("violations") == [] and len(manual.asked) >= 5
    manual.check()


def test_a_call_is_tried_with_a_key(manual: Looking) -> None:
    """As a reader does: give the key, open a call, send it, and read the answer."""
    page, call = manual.page, manual.page.locator("#operations-keys-whoami")
    page.locator("button.authorize").first.click()
    page.locator(".auth-container input").first.fill(HOME_KEY)
    page.locator(".auth-container button.authorize").first.click()
    page.locator(".auth-btn-wrapper button.btn-done").first.click()
    unfold(manual, "keys-whoami")
    call.locator(".try-out__btn").click()
    call.locator("button.execute").click()
    answer = call.locator(".live-responses-table .response").first.inner_text()
    assert answer.startswith("200") and '"role": "admin"' in answer
    assert page.evaluate("violations") == []
    manual.check()


def test_what_the_policy_forbids_is_seen_here(manual: Looking) -> None:
    """The tests above would see it: a script in the page does not run, and a picture from elsewhere is not asked for."""
    page = manual.page
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = true'}))")
    page.evaluate(f"document.body.append(Object.assign(new Image(), {{src: '{AWAY}'}}))")
    page.evaluate(f"fetch('{AWAY}').catch(() => null)")
    forbidden = {tuple(violation) for violation in page.evaluate("violations")}
    assert forbidden == {("script-src-elem", "inline"), ("img-src", AWAY), ("connect-src", AWAY)}
    assert manual.complaints and page.evaluate("window.ran") is None
