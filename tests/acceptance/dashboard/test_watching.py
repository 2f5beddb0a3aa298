"""An operator opens one address, starts a run, and sees what goes on and what to do, without loading a page again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.acceptance.dashboard.looking import PATIENCE, Looking
from tests.acceptance.harness import Net
from tideline.dossier.verifying import verify

pytestmark = pytest.mark.processes
WORLD = {"inputs": [6], "classes": 3, "model": "mlp", "normalise": "none"}
COUNTING = """() => {
  window.clicks = 0;
  document.addEventListener("click", event => { window.clicks += event.isTrusted && event.detail > 0; }, true);
}"""
ROSTER = {"a": "source", "b": "source", "c": "target"}


def key(federation: Net) -> str:
    return (federation.folder / "admin.key").read_text().strip()


def fedavg(name: str, rounds: int, **more: object) -> dict[str, object]:
    return {"name": name, "method": "fedavg", "config": {"rounds": rounds}, "world": WORLD, "roster": ROSTER, **more}


def shows(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.locator(".standing")).to_have_text(text, timeout=PATIENCE)


@pytest.mark.smoke
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
    expect(page.get_by_text(re.compile(r"1 run, 9 exchanges, sites a, b, c"))).to_be_visible(timeout=PATIENCE)
    page.evaluate("window.loadedOnce = true")
    page.get_by_role("button", name="Start the run").click()
    page.wait_for_url(re.compile(r"#/runs/[0-9a-f]{12}"))
    shows(page, re.compile(r"Completed after 4 rounds"))
    assert page.evaluate("window.loadedOnce"), "the page was loaded again"
    expect(page.get_by_role("region", name="Sites of the run").get_by_role("row")).to_have_count(4)
    expect(
        page.get_by_role("img", name=re.compile("Share of held-out rows predicted right: a .*%, b .*%, c .*%"))
    ).to_be_visible()
    page.get_by_text("Export", exact=True).click()
    expect(page.get_by_label("Commands")).to_contain_text("tideline run export")
    looking.accessible()
    with page.expect_download() as downloading:
        page.get_by_role("link", name="The dossier, signed").click()
    signer = federation.client().get("/signer")["fingerprint"]
    found = verify(Path(downloading.value.path()), signer)
    assert f"#/runs/{found.run['run']}" in page.url and downloading.value.suggested_filename.endswith(".zip")


def test_from_chosen_sites_in_five_clicks(federation: Net, looking: Looking, tmp_path: Path) -> None:
    """Three sites, and a run of them goes on; what the page shows as a command, as curl and in Python starts the same."""
    federation.ended(federation.run(fedavg("what the data are like", 0)))
    page = looking.page
    looking.sign_in(key(federation), "#/sites")
    page.evaluate(COUNTING)
    for name in ROSTER:
        page.get_by_label(f"Take {name} into a run").check()
    page.get_by_role("link", name="Start a run with 3 sites").click()
    expect(page.locator(".status.valid")).to_be_visible(timeout=PATIENCE)
    assert page.evaluate("window.clicks") == 4
    written = page.get_by_label("The experiment, as YAML").input_value()
    page.get_by_text("The same from a shell or from Python").click()
    shown = {label: page.get_by_label(label, exact=True).inner_text() for label in ("Command line", "curl", "Python")}
    before = {run["id"] for run in federation.client().get("/runs")}
    shell = shown["Command line"].replace(" --watch", "")
    commands = {
        "shell": ["bash", "-e", "-c", shell],
        "curl": ["bash", "-e", "-c", shown["curl"]],
        "python": [sys.executable, "-c", shown["Python"].replace("run.wait()", "run.id")],
    }
    environment = federation.environment() | {
        "TIDELINE_API_KEY": key(federation),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    for command in commands.values():
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True, timeout=120)
    page.get_by_role("button", name="Start the run").click()
    page.wait_for_url(re.compile(r"#/runs/[0-9a-f]{12}"))
    mine = [run for run in federation.client().get("/runs") if run["id"] not in before and run["parent"] is None]
    assert len(mine) == 4 and len({(run["name"], run["method"], run["of"]) for run in mine}) == 1, mine
    assert (tmp_path / "experiment.yaml").read_text() == written
    for run in mine:
        federation.client().post(f"/runs/{run['id']}/cancel")


def test_exchanges_that_were(federation: Net, looking: Looking) -> None:
    """Each has its strips and its orders: who was asked, how long it took, what went over the line."""
    run = federation.run(fedavg("strips", 3))
    federation.ended(run)
    page = looking.page
    looking.sign_in(key(federation), f"#/runs/{run}")
    chooser = page.get_by_label("Exchange")
    expect(chooser).to_contain_text("score, round 3")
    strips = page.get_by_role("img", name=re.compile(r"^a: .*\d s.*; b: .*; c: "))
    expect(strips).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Earlier").click()
    expect(page.get_by_role("img", name=re.compile(r"^a: .*\d s.*; b: [^;]*$"))).to_be_visible(timeout=PATIENCE)
    chooser.select_option("-1")
    page.get_by_text("The orders").click()
    orders = page.get_by_role("region", name="Orders")
    expect(orders.get_by_role("row")).to_have_count(4)
    expect(orders).to_contain_text("answered")
    looking.accessible()


def test_four_stages_of_a_sites_work(federation: Net, looking: Looking) -> None:
    """Queued, fetching, computing and sending follow each other without a gap, in the strip and in the table."""
    run = federation.run(fedavg("stages", 2))
    federation.ended(run)
    told = federation.client().get(f"/runs/{run}/orders?last=50")
    assert len(told) > 9 and all(order["stages"] for order in told), told
    for order in told:
        times = [order["created"], *(order["stages"][name] for name in ("fetching", "computing", "sending")), order["answered"]]
        assert times == sorted(times), order
    page = looking.page
    looking.sign_in(key(federation), f"#/runs/{run}")
    page.get_by_label("Exchange").select_option("0")
    strips = page.get_by_role("img", name=re.compile(r"^a: queued .* s, fetching .* s, computing .* s, sending .* s; b: queued"))
    expect(strips).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".keys").filter(has_text="fetching what it reads")).not_to_contain_text("queued or fetching")
    page.get_by_text("The orders").click()
    for head in ("Queued", "Fetching", "Computing", "Sending"):
        expect(page.get_by_role("region", name="Orders").get_by_role("columnheader", name=head)).to_be_visible()


def test_a_site_that_tells_no_stages(federation: Net, looking: Looking) -> None:
    """As agents from before: its notes tell less, and the page says so."""
    run = federation.run(fedavg("no stages", 1))
    federation.ended(run)
    page = looking.page

    def forget(route: Route) -> None:
        orders = [order | {"stages": None} for order in route.fetch().json()]
        route.fulfill(json=orders)

    page.route(re.compile(r"/orders\b"), forget)
    looking.sign_in(key(federation), f"#/runs/{run}")
    page.get_by_label("Exchange").select_option("0")
    strips = page.get_by_role("img", name=re.compile(r"^a: (asked|waiting) .* s.*; b: (asked|waiting) .* s"))
    expect(strips).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".keys").filter(has_text=re.compile("queued or fetching|the site tells no stages"))).to_be_visible()
    page.get_by_text("The orders").click()
    expect(page.get_by_role("region", name="Orders").get_by_role("row", name=re.compile("^a "))).to_contain_text("–")


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


def test_a_site_that_does_not_come_back(federation: Net, looking: Looking) -> None:
    """Its run stalls, says why, and is resumed with fewer; the notes say from when on fewer were enough."""
    page = looking.page
    looking.sign_in(key(federation))
    federation.kill("b")
    run = federation.run(fedavg("without b", 2, waiting={"deadline": 15.0}))
    looking.open(f"#/runs/{run}", "without b")
    page.get_by_text("Resume with fewer").click(timeout=PATIENCE)
    enough = page.get_by_label("Replies that are enough in a round from now on")
    expect(enough).to_have_value("2")
    looking.accessible()
    looking.fits()
    page.get_by_role("button", name="Resume with 2 of 3").click()
    shows(page, re.compile(r"Completed after 2 rounds"))
    expect(page.get_by_text("Since the run was resumed, 2 replies are enough in a round")).to_be_visible()
    federation.again("b")


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
