"""The manual at /docs in a real browser: all of it is drawn, from this coordinator alone, under its own strict policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from api_world import HOME_KEY, Coordinator, locked
from browser import Tab, browser, tab
from listening import listening

DRAWN = "document.querySelectorAll('.opblock').length"
LINES = "[...document.querySelectorAll('.opblock-summary')].map(e => e.innerText.trim().split(/\\s+/).slice(0, 2).join(' '))"
CALL = "document.querySelector('#operations-{}')"
WHOAMI = CALL.format("keys-whoami")
# A call with a large body, one with a file, one without a key. To open all takes a minute.
OPENED = ("runs-start_run", "weights-put_weights", "health-ready")
AWAY = "http://elsewhere.example/picture.png"


@pytest.fixture(scope="module")
def door() -> Coordinator:
    """A coordinator that asks for a key."""
    return locked()


@pytest.fixture(scope="module")
def program() -> str:
    """The browser of this machine."""
    if (found := browser()) is None:
        pytest.skip("NOT TESTED: there is no browser on this machine (Debian: apt-get install chromium)")
    return found


@pytest.fixture
def page(door: Coordinator, program: str, tmp_path: Path) -> Iterator[Tab]:
    """The manual, drawn."""
    with listening(0, app=door.app) as (host, port), tab(program, tmp_path) as made:
        made.open(f"http://{host}:{port}/docs", DRAWN)
        yield made


def hosts(page: Tab) -> set[str]:
    """Whom it asked for anything; what stands in an address itself (data:) asks nobody."""
    return {urlsplit(each).netloc for each in page.requests if not each.startswith("data:")}


def unfold(page: Tab, call: str) -> None:
    """Open a call, and wait until its answers are drawn."""
    page.evaluate(f"{call}.querySelector('.opblock-summary-control').click()")
    page.when(f"{call}.querySelector('.responses-wrapper .response')")


@pytest.mark.nightly(job="browser")
def test_every_call_is_drawn_and_nothing_comes_from_elsewhere(page: Tab, door: Coordinator) -> None:
    """Each operation is a line, some are opened. The policy forbids nothing that the page needs; the browser has no complaint."""
    described = door.get("/openapi.json").json()["paths"]
    operations = sorted(f"{method.upper()} {path}" for path, all_of in described.items() for method in all_of)
    assert sorted(page.evaluate(LINES)) == operations
    for call in OPENED:
        unfold(page, CALL.format(call))
    assert page.violations() == [] and page.said == []
    assert len(hosts(page)) == 1 and len(page.requests) >= 5, page.requests


@pytest.mark.nightly(job="browser")
def test_a_call_is_tried_with_a_key(page: Tab) -> None:
    """As a reader does: give the key, open a call, send it, and read the answer."""
    page.evaluate("document.querySelector('button.authorize').click()")
    page.when("document.querySelector('.auth-container input')")
    page.evaluate("document.querySelector('.auth-container input').focus()")
    page.call("Input.insertText", text=HOME_KEY)
    page.evaluate("document.querySelector('.auth-container button.authorize').click()")
    page.when("document.querySelector('.auth-btn-wrapper button.btn-done')")
    page.evaluate("document.querySelector('.auth-btn-wrapper button.btn-done').click()")
    unfold(page, WHOAMI)
    page.evaluate(f"{WHOAMI}.querySelector('.try-out__btn').click()")
    page.when(f"{WHOAMI}.querySelector('button.execute')")
    page.evaluate(f"{WHOAMI}.querySelector('button.execute').click()")
    told = page.when(f"(e => e && e.innerText)({WHOAMI}.querySelector('.live-responses-table .response'))")
    assert told.startswith("200") and '"role": "admin"' in told
    assert page.violations() == [] and page.said == [] and len(hosts(page)) == 1


@pytest.mark.nightly(job="browser")
def test_what_the_policy_forbids_is_seen_here(page: Tab) -> None:
    """The tests above would see it: a script in the page does not run, and a picture from elsewhere is not asked for."""
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = true'}))")
    page.evaluate(f"document.body.append(Object.assign(new Image(), {{src: '{AWAY}'}}))")
    page.evaluate(f"fetch('{AWAY}').catch(() => null)")
    forbidden = {tuple(each.split()) for each in page.violations()}
    assert forbidden == {("script-src-elem", "inline"), ("img-src", AWAY), ("connect-src", AWAY)}
    assert page.said and page.evaluate("window.ran") is None
