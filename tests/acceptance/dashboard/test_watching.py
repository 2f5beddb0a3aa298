"""An operator opens one address, starts a run, and sees what goes on and what to do, without loading a page again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.dashboard.looking import PATIENCE, Looking
from tests.acceptance.harness import Net

pytestmark = pytest.mark.processes
WORLD = {"inputs": [6], "classes": 3, "model": "mlp", "normalise": "none"}
ROSTER = {"a": "source", "b": "source", "c": "target"}


def key(federation: Net) -> str:
    return (federation.folder / "admin.key").read_text().strip()


def fedavg(name: str, rounds: int, **more: object) -> dict[str, object]:
    return {"name": name, "method": "fedavg", "config": {"rounds": rounds}, "world": WORLD, "roster": ROSTER, **more}


def shows(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.locator(".standing")).to_have_text(text, timeout=PATIENCE)


def test_from_the_wizard_to_the_model(federation: Net, looking: Looking) -> None:
    """Sites, data, method, the text, and it runs; its page follows it to the end, and says how to take the model."""
    page = looking.page
    looking.sign_in(key(federation), "#/start")
    page.get_by_label("Features or tables").check()
    page.get_by_label("Shape of a row").fill("6")
    page.get_by_label("Classes").fill("3")
    page.get_by_label("Network").fill("mlp")
    page.get_by_label("One method").check()
    page.get_by_label("Rounds").fill("4")
    page.get_by_role("button", name="Write the experiment").click()
    expect(page.get_by_text(re.compile(r"1 run, 9 exchanges, sites a, b, c"))).to_be_visible(timeout=PATIENCE)
    page.get_by_text("The same from a shell or from Python").click()
    expect(page.get_by_label("curl", exact=True)).to_contain_text(f"{looking.url}/runs")
    page.evaluate("window.loadedOnce = true")
    page.get_by_role("button", name="Start the run").click()
    page.wait_for_url(re.compile(r"#/runs/[0-9a-f]{12}"))
    shows(page, re.compile(r"Completed after 4 rounds"))
    assert page.evaluate("window.loadedOnce"), "the page was loaded again"
    expect(page.get_by_role("region", name="Sites of the run").get_by_role("row")).to_have_count(4)
    expect(
        page.get_by_role("img", name=re.compile("Share of held-out rows predicted right: a .*%, b .*%, c .*%"))
    ).to_be_visible()
    page.get_by_text("Take the model").click()
    expect(page.get_by_label("Commands")).to_contain_text("tideline run export")
    looking.accessible()


def test_mistakes_are_shown_as_they_are_written(federation: Net, looking: Looking) -> None:
    """With their line; nothing can be started until they are mended. And a run is edited into another."""
    run = federation.run(fedavg("to be edited", 1))
    federation.ended(run)
    page = looking.page
    looking.sign_in(key(federation), f"#/start?from={run}")
    text = page.get_by_label("The experiment, as YAML")
    expect(text).to_have_value(re.compile("name: to be edited again"))
    start = page.get_by_role("button", name="Start the run")
    expect(start).to_be_enabled(timeout=PATIENCE)
    good = text.input_value()
    looking.expected += ("422",)
    text.fill(good.replace("rounds: 1", "rounds: -1"))
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"experiment:\d+: config.rounds"), timeout=PATIENCE)
    expect(start).to_be_disabled()
    text.fill(good.replace("rounds: 1", "rounds: 2"))
    expect(start).to_be_enabled(timeout=PATIENCE)
    start.click()
    shows(page, re.compile(r"Completed after 2 rounds"))


def test_an_agent_that_is_killed(federation: Net, looking: Looking) -> None:
    """The run's page says whom it waits for, the doctor what to do; the run goes on once the agent is back."""
    page = looking.page
    looking.sign_in(key(federation))
    federation.kill("b")
    run = federation.run(fedavg("waits for b", 2))
    looking.open(f"#/runs/{run}", "waits for b")
    shows(page, re.compile(r"2 of 3 sites answered, waiting for b"))
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    federation.again("b")
    shows(page, re.compile(r"Completed after 2 rounds"))


def test_two_runs_are_compared(federation: Net, looking: Looking) -> None:
    """Ticked in the list; curves over rounds and over traffic, and a table with intervals."""
    names = ("the first of two", "the second of two")
    for seed, name in enumerate(names):
        federation.ended(federation.run(fedavg(name, 4, seed=seed)))
    page = looking.page
    looking.sign_in(key(federation))
    for name in names:
        page.get_by_label(f"Compare {name}").check()
    page.get_by_role("link", name="Compare 2 runs").click()
    expect(page.get_by_role("heading", name="Compare 2 runs")).to_be_visible()
    expect(page.get_by_role("region", name="Accuracy by site and run")).to_contain_text(re.compile(r"\d %.* to .*\d %"))
    expect(page.get_by_role("img", name=re.compile("Mean accuracy of the targets: the first of two"))).to_be_visible()
    page.get_by_role("button", name="over traffic").click()
    page.get_by_role("button", name="sources", exact=True).click()
    expect(page.get_by_role("img", name=re.compile("Mean accuracy of the sources"))).to_be_visible()
    looking.accessible()


def test_a_run_is_cancelled_once_it_was_asked_twice(federation: Net, looking: Looking) -> None:
    """A dialogue comes first. The list says so at once, in a page that was open before."""
    page = looking.page
    looking.sign_in(key(federation))
    run = federation.run(fedavg("to be cancelled", 5000))
    row = page.get_by_role("row").filter(has_text="to be cancelled")
    expect(row).to_contain_text(re.compile("running|waiting"), timeout=PATIENCE)
    looking.open(f"#/runs/{run}", "to be cancelled")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Leave it").click()
    assert federation.result(run)["status"] in ("running", "waiting")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    shows(page, re.compile("Cancelled"))
    looking.open("#/runs", "Runs")
    expect(row).to_contain_text("cancelled", timeout=PATIENCE)


def test_a_site_is_invited_approved_and_revoked(federation: Net, looking: Looking, data: dict[str, Path]) -> None:
    """A token is shown once; whoever waits stands above the list with a fingerprint."""
    page = looking.page
    looking.sign_in(key(federation), "#/sites")
    page.get_by_text("Invite a site").click()
    page.get_by_role("textbox", name="Name").fill("invited")
    page.get_by_role("button", name="Make a token").click()
    expect(page.get_by_label("The command at the site")).to_contain_text("tideline agent --token tide")
    token = federation.client().post("/invites", {"name": "held", "ttl_seconds": 600, "hold": True})["token"]
    federation.start("held", *federation.agent_command("held", data["a"], "source", token))
    warning = page.locator(".warn").filter(has_text="held")
    expect(warning).to_contain_text("waits for approval", timeout=PATIENCE)
    warning.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("row").filter(has_text="held")).to_contain_text("approved", timeout=PATIENCE)
    looking.open("#/sites/held", "held")
    page.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.locator(".title")).to_contain_text("revoked", timeout=PATIENCE)
    federation.leave("held")
