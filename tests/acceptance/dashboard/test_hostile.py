"""What others can put on the pages, and what they can do with them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.acceptance.dashboard.looking import PATIENCE, Looking
from tests.acceptance.dashboard.test_watching import fedavg, key
from tests.acceptance.harness import Net

pytestmark = pytest.mark.processes
NAMES = [
    "<img src=x onerror=window.hurt=1>",
    "</script><script>window.hurt=1</script>",
    "javascript:window.hurt=1",
    "\u202egpj.exe\u202c",
    "${window.hurt=1} {{window.hurt=1}}",
    "a" * 200,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_name(federation: Net, looking: Looking, name: str) -> None:
    """On the list, on its page, in a comparison and in its settings: as it was written, and nothing runs."""
    run = federation.run(fedavg(name, 0))
    federation.ended(run)
    page = looking.page
    looking.sign_in(key(federation))
    expect(page.get_by_role("link", name=name, exact=True).first).to_be_visible(timeout=PATIENCE)
    looking.fits()
    looking.open(f"#/runs/{run}", name)
    page.get_by_text("Settings").click()
    looking.fits()
    looking.open(f"#/compare/{run},{run}", "Compare 1 runs")
    assert page.evaluate("window.hurt") is None


def test_a_key_that_is_revoked(federation: Net, looking: Looking) -> None:
    """The page asks for another within seconds, without being touched."""
    made = federation.client().post("/keys", {"name": "leaver", "role": "operator"})
    looking.sign_in(made["key"])
    expect(looking.page.get_by_role("link", name="Start", exact=True)).to_be_visible()
    federation.client().delete("/keys/leaver")
    expect(looking.page.get_by_label("API key")).to_be_visible(timeout=PATIENCE)


def test_a_viewer_sees_and_does_nothing(federation: Net, looking: Looking) -> None:
    """No button that would be refused; and what is sent all the same is refused."""
    made = federation.client().post("/keys", {"name": "viewer", "role": "viewer"})
    run = federation.run(fedavg("a viewer looks", 0))
    federation.ended(run)
    looking.sign_in(made["key"])
    page = looking.page
    expect(page.get_by_role("navigation")).not_to_contain_text(re.compile("Start|Audit"))
    looking.open(f"#/runs/{run}", "a viewer looks")
    expect(page.get_by_role("link", name="Start another like it")).to_have_count(0)
    looking.expected += ("403",)
    sent = "run => import('/pages/api.js').then(api => api.change('POST', `/runs/${run}/cancel`)).catch(error => error.status)"
    assert page.evaluate(sent, run) == 403


def test_a_wrong_key(looking: Looking) -> None:
    """Is told so, and may try again."""
    looking.expected = ("401",)
    looking.page.goto(looking.url)
    looking.page.get_by_label("API key").fill("tidekey_nothing")
    looking.page.get_by_role("button", name="Sign in").click()
    expect(looking.page.get_by_role("alert")).to_contain_text("wrong", timeout=PATIENCE)
    expect(looking.page.get_by_label("API key")).to_be_editable()


def test_a_coordinator_that_goes_away(federation: Net, looking: Looking) -> None:
    """The page says so, and is live again once it is back, with what happened meanwhile."""
    looking.sign_in(key(federation))
    live = looking.page.locator(".live").first
    expect(live).to_have_text("live", timeout=PATIENCE)
    looking.expected += ("ERR_", "Failed to load")
    federation.kill("coordinator")
    expect(live).to_contain_text("trying again", timeout=PATIENCE)
    federation.again("coordinator")
    federation.ready()
    federation.run(fedavg("meanwhile", 0))
    expect(looking.page.get_by_role("link", name="meanwhile")).to_be_visible(timeout=PATIENCE)
    expect(live).to_have_text("live", timeout=PATIENCE)
