"""What others can put on the pages, and what they can do with them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.acceptance.dashboard.looking import PATIENCE, Looking
from tests.acceptance.dashboard.test_watching import fedavg, key
from tests.acceptance.harness import Net

pytestmark = pytest.mark.processes
NAMES = [
    *("<img src=x onerror=window.hurt=1>", "</script><script>window.hurt=1</script>", "javascript:window.hurt=1"),
    *("\u202egpj.exe\u202c", "${window.hurt=1} {{window.hurt=1}}", "\x1b[31mred\x1b]0;title\x07", "'; touch hurt; echo '"),
    "a" * 200,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_name(federation: Net, looking: Looking, name: str) -> None:
    """On every page: as it was written, and nothing runs. What is copied of it has no character that is not seen."""
    run = federation.run(fedavg(name, 0))
    federation.ended(run)
    page = looking.page
    looking.sign_in(key(federation))
    expect(page.get_by_role("link", name=name, exact=True).first).to_be_visible(timeout=PATIENCE)
    looking.fits()
    looking.open(f"#/runs/{run}", name)
    page.get_by_text("Settings").click()
    looking.fits()
    expect(page.get_by_label("The experiment", exact=True)).not_to_contain_text(re.compile("[\x00-\x09\x1b\u202e\u202c]"))
    looking.open(f"#/compare/{run},{run}", "Compare 1 runs")
    looking.open(f"#/start?from={run}", "Start a run")
    expect(page.locator(".status.valid")).to_be_visible(timeout=PATIENCE)
    page.get_by_text("The same from a shell or from Python").click()
    for label in ("Command line", "curl", "Python"):
        expect(page.get_by_label(label, exact=True)).not_to_contain_text(re.compile("[\x00-\x09\x1b\u202e\u202c]"))
    looking.fits()
    looking.open("#/sites/a", "a")
    expect(page.get_by_role("region", name="Runs of the site").get_by_role("link", name=name, exact=True)).to_be_visible()
    looking.fits()
    for at, heading in (("#/sites", "Sites"), ("#/doctor", "Doctor"), ("#/audit", "Audit log")):
        looking.open(at, heading)
        looking.fits()
    assert page.evaluate("window.hurt") is None


def test_labels_and_causes_are_text(federation: Net, looking: Looking, data: dict[str, Path]) -> None:
    """What a site was invited with, and what it said of a failure, among the sites, on its page, and where it is arranged by."""
    label = "<img src=x onerror=window.hurt=1>\u202egpj"
    asked = {"name": "labelled", "ttl_seconds": 600, "labels": {"place": label}}
    token = federation.client().post("/invites", asked)["token"]
    federation.start("labelled", *federation.agent_command("labelled", data["a"], "source", token))
    looking.sign_in(key(federation), "#/sites")
    page = looking.page
    expect(page.get_by_role("row").filter(has_text="labelled")).to_contain_text(label, timeout=PATIENCE)
    page.get_by_label("Arrange by").select_option("label place")
    expect(page.get_by_role("region", name="Arrangement of sites")).to_contain_text(label)
    looking.open("#/sites/labelled", "labelled")
    expect(page.get_by_text(f"place={label}")).to_be_visible()
    looking.fits()
    assert page.evaluate("window.hurt") is None
    federation.client().post("/clients/labelled/revoke", {"reason": label})
    expect(page.locator(".cause").filter(has_text="gpj").first).to_be_visible(timeout=PATIENCE)
    federation.leave("labelled")
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
    expect(page.get_by_role("link", name="Clone and edit")).to_have_count(0)
    looking.expected += ("403",)
    sent = "run => import('/pages/api.js').then(api => api.change('POST', `/runs/${run}/cancel`)).catch(error => error.status)"
    assert page.evaluate(sent, run) == 403


def test_a_wrong_key(looking: Looking) -> None:
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
