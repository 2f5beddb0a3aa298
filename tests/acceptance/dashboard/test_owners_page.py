"""A site's owner, by one link: approves a run, sees what leaves as it leaves, pauses, goes on, and takes the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.conftest import SITES
from tests.acceptance.dashboard.conftest import browsing, keep_picture
from tests.acceptance.dashboard.looking import PATIENCE, Looking
from tests.acceptance.dashboard.test_watching import fedavg
from tests.acceptance.harness import Net, net
from tests.cli.world import tide_process
from tests.services import free_port

pytestmark = pytest.mark.processes
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator and three agents; the owner of `a` wants to be asked, and has a page."""
    with net(tmp_path_factory.mktemp("owner")) as made:
        made.coordinator()
        for name, role in SITES.items():
            more = ("--page", f"127.0.0.1:{free_port()}", *made.policy("[runs]\napprove = 'always'\n")) if name == "a" else ()
            made.agent(name, data[name], role, *more)
        for name in SITES:
            made.heard(name, "enrolled")
        yield made


def link(made: Net) -> str:
    """A new link, as the owner's command prints it."""
    made.until(lambda: "page_served" in made.log("a"), "the page to be served")
    ended = tide_process("site", "page", "--home", made.home / "home-a", "--json")
    assert ended.returncode == 0, ended.stderr
    return re.search(r"http://127[^\"]+", ended.stdout)[0]  # type: ignore[index]


@pytest.fixture
def owner(chromium: Browser, asking: Net, request: pytest.FixtureRequest) -> Iterator[Looking]:
    with browsing(chromium, link(asking), request.node.name, accept_downloads=True) as made:
        yield made


def test_an_owner_decides_and_watches(asking: Net, owner: Looking) -> None:
    """Nothing runs before the word; every byte shows up by itself; a pause holds the next run, whose users see why."""
    page = owner.page
    assert "link=" not in page.url
    run = asking.run(fedavg(HOSTILE, 3))
    expect(page.get_by_role("heading", name=f"Run {run}")).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".ask")).to_contain_text(
        "weights of models, to the coordinator (much about single rows can be read out of them): model (like model), "
    )
    owner.accessible()
    keep_picture(page, "owner-asked")
    page.get_by_role("button", name="Always for these settings").click()
    page.get_by_role("dialog").get_by_role("button", name="Always for these settings").click()
    expect(page.get_by_text("Nothing waits for your word.")).to_be_visible(timeout=PATIENCE)
    total = page.locator("#total")
    expect(total).to_have_text(re.compile(r"^[1-9]\d* repl"), timeout=PATIENCE)
    asking.completed(run)
    expect(page.get_by_role("region", name="Replies that left")).to_contain_text("WEIGHTS", timeout=PATIENCE)
    page.get_by_role("button", name="Pause now").click()
    expect(page.locator(".paused")).to_contain_text("Paused since")
    again = asking.run({**fedavg("again", 3), "seed": 5})
    asking.until(lambda: "which their owners have paused" in asking.client().get(f"/runs/{again}")["waits_for"], "the pause")
    expect(page.get_by_text(re.compile(f"Run {again} .* waits until you go on"))).to_be_visible(timeout=PATIENCE)
    keep_picture(page, "owner-paused")
    page.get_by_role("button", name="Go on").click()
    assert asking.ended(again)["status"] == "completed", "it asks for the same, so it did not wait"
    owner.expected = ("404",)  # the method leaves a site no model of its own
    page.get_by_role("button", name="Download").first.click()
    expect(page.get_by_role("region", name="Runs at this site")).to_contain_text("nothing named 'model'", timeout=PATIENCE)
    with page.expect_download() as download:
        page.get_by_role("link", name="Save as CSV").click()
    assert "coordinator" in Path(download.value.path()).read_text()
    expect(total).to_contain_text("14 replies", timeout=PATIENCE)
    page.get_by_label("Search").fill("no such thing")
    expect(total).to_contain_text("0 replies")
    page.get_by_label("Search").fill("")
    expect(total).to_contain_text("14 replies")
    page.get_by_role("button", name="Check the whole ledger again").click()
    expect(page.get_by_text(re.compile("Checked: "))).to_be_visible()
    page.get_by_role("button", name="Take back").first.click()
    expect(page.get_by_text("You have decided each run by itself.")).to_be_visible(timeout=PATIENCE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_how_it_looks(owner: Looking, scheme: str, width: int) -> None:
    owner.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    owner.page.set_viewport_size({"width": width, "height": 900})
    owner.page.locator("#total").wait_for()
    owner.fits()
    owner.accessible()


def test_a_link_is_spent_and_a_restart_ends_all(asking: Net, owner: Looking) -> None:
    """By keyboard: the pause, which outlasts the agent; the browser is out afterwards."""
    page = owner.page
    for _ in range(60):
        if page.evaluate("document.activeElement.textContent") == "Pause now":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".paused")).to_be_visible(timeout=PATIENCE)
    owner.expected = ("401", "ERR_CONNECTION_REFUSED")
    asking.restart("a")
    asking.until(lambda: asking.log("a").count("page_served") == 2, "the agent to serve again")
    page.goto(link(asking))
    page.reload()
    expect(page.locator(".paused")).to_be_visible(timeout=PATIENCE)
    ended = tide_process("site", "resume", "--home", asking.home / "home-a")
    assert ended.returncode == 0, ended.stderr
    expect(page.get_by_role("button", name="Pause now")).to_be_visible(timeout=PATIENCE)
