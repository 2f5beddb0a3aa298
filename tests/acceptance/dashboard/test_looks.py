"""How the pages look and are used: on a phone, in the dark, by keyboard, by who sees no colours."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Route, expect

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
    found = federation.run(fedavg("to be looked at", 4))
    federation.ended(found)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_every_page(federation: Net, looking: Looking, run: str, scheme: str, width: int) -> None:
    looking.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    looking.page.set_viewport_size({"width": width, "height": 900})
    looking.sign_in(key(federation))
    for at, heading in (PAGES | {f"#/runs/{run}": "to be looked at"}).items():
        looking.open(at, heading)
        looking.fits()
        looking.accessible()


def test_the_page_of_sign_in(looking: Looking) -> None:
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


def test_the_wizard_by_keyboard(federation: Net, looking: Looking, run: str) -> None:
    page = looking.page
    looking.sign_in(key(federation), "#/start")
    expect(page.get_by_role("button", name="Start the run")).to_be_enabled(timeout=PATIENCE)
    page.get_by_label("One method").focus()
    page.keyboard.press("Space")
    # While the text is checked nothing can be started, and a button that is disabled is passed over.
    expect(page.get_by_text(re.compile(r"1 run, \d+ exchanges, sites a, b, c"))).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("button", name="Start the run")).to_be_enabled(timeout=PATIENCE)
    for _ in range(60):
        if page.evaluate("document.activeElement.textContent") == "Start the run":
            break
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Start the run")).to_be_enabled(timeout=PATIENCE)
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/runs/*")
    started = page.url.rpartition("/")[2]
    federation.client().post(f"/runs/{started}/cancel")


@pytest.mark.parametrize("width", [390, 1200])
def test_graphs_and_harm(federation: Net, looking: Looking, run: str, width: int) -> None:
    """Links as arrows, in a circle where a site is both; groups as boxes; and a sentence where adaptation did harm."""

    def richer(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        sites = [client["name"] for client in found["clients"]]
        every = {name: [float(name != other) for other in sites] for name in sites}
        found["phases"][-1]["tables"] = {
            "alpha": {"drawn": "graph", "columns": sites, "rows": every},
            "to the target": {"drawn": "graph", "columns": ["c"], "rows": {"a": [0.25], "b": [0.75]}},
        }
        found["groups"] = {"last": {"group 0": sites[:2], "group 1": sites[2:]}, "adjusted_rand_index": None}
        target = next(client for client in found["clients"] if client["role"] == "target")
        target["accuracy"], target["source_only"] = 0.1, 0.9
        found["clients"][0]["epsilon"] = 1.25
        found["scores"]["c"] = {"accuracy": {"value": 0.1, "low": 0.0, "high": 0.3, "rows": 12}}
        route.fulfill(response=answer, json=found)

    looking.page.set_viewport_size({"width": width, "height": 900})
    looking.page.route(f"**/runs/{run}", richer)
    looking.sign_in(key(federation), f"#/runs/{run}")
    page = looking.page
    expect(page.get_by_text("Negative transfer: adaptation made c worse, by more than chance")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("img", name="a to c: 0.250; b to c: 0.750")).to_be_visible()
    expect(page.get_by_role("img", name="a to b: 1.000; a to c: 1.000")).to_be_visible()
    expect(page.get_by_role("region", name="Sites of the run").get_by_role("cell").filter(has_text="1.25")).to_have_count(1)
    expect(page.get_by_role("list", name="Groups of sites").get_by_role("listitem")).to_have_count(2)
    looking.fits()
    looking.accessible()


def test_a_rehearsal_that_waits_for_its_runs(federation: Net, looking: Looking, run: str) -> None:
    """Its sentence says what it waits for, and no table stands there without a row."""

    def waiting(route: Route) -> None:
        answer = route.fetch()
        more = {"status": "waiting", "cursor": -1, "waits_for": "waiting for 12 runs of the rehearsal", "awaited": []}
        route.fulfill(response=answer, json=answer.json() | more | {"verdict": {"targets": [], "gains": {}, "unfinished": 12}})

    looking.page.route(f"**/runs/{run}", waiting)
    looking.sign_in(key(federation), f"#/runs/{run}")
    sentence = "Gathering the sites: every site has answered; waiting for 12 runs of the rehearsal."
    expect(looking.page.locator(".standing")).to_have_text(sentence, timeout=PATIENCE)
    expect(looking.page.get_by_text("What the rehearsal says")).to_have_count(0)


@pytest.mark.parametrize(
    ("at", "region"),
    [("#/runs", "Runs"), ("#/sites", "Sites"), ("#/sites/a", "Runs of the site"), ("#/audit", "Audit entries"), ("", "Events")],
)
def test_a_table_on_a_phone(federation: Net, looking: Looking, run: str, at: str, region: str) -> None:
    """Each row is a card: every cell has its head, and nothing is cut off or has to be moved sideways."""
    page = looking.page
    page.set_viewport_size({"width": 390, "height": 900})
    looking.sign_in(key(federation), at or f"#/runs/{run}")
    if region == "Events":
        page.get_by_text("Events", exact=True).click()
    box = page.get_by_role("region", name=region, exact=True)
    expect(box).to_be_visible(timeout=PATIENCE)
    assert box.evaluate("each => each.scrollWidth <= each.clientWidth + 1")
    cell = box.get_by_role("row").nth(1).locator("td").first
    assert cell.evaluate("each => getComputedStyle(each, '::before').content").startswith(f'"{cell.get_attribute("data-head")}')
