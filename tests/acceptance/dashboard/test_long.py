"""Ten thousand runs in the list, and a run of ten thousand events: what is shown is read, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from benchmarks.crowd import Crowd, fill
from benchmarks.lists import Team, filled
from tests.acceptance.dashboard.conftest import browsing
from tests.acceptance.dashboard.looking import PATIENCE, Looking
from tests.acceptance.dashboard.test_watching import key
from tests.acceptance.harness import Net, net
from tideline.core.run import RunId
from tideline.engine.model.runs import OPEN, Status
from tideline_server.store import SqlJournal

pytestmark = [pytest.mark.processes, pytest.mark.nightly(job="browser")]
RUNS = 10_000
LONG = Crowd(members=10, rounds=910, run=RunId("10a900000000"))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    """A coordinator that has run for years, and no agents."""
    with net(tmp_path_factory.mktemp("old")) as made:
        made.folder.mkdir(mode=0o700)
        with closing(SqlJournal(made.folder / "coordinator.db")) as journal:
            filled(journal, [Team(3, 2, RunId("000000000000"), "team-0")], RUNS)
            fill(journal, LONG)
            journal.set_status(LONG.run, OPEN, Status.CANCELLED, "enough", 9.0)
        made.coordinator("--rate", "0")
        yield made


@pytest.fixture
def user(chromium: Browser, old: Net, request: pytest.FixtureRequest) -> Iterator[Looking]:
    with browsing(chromium, f"http://127.0.0.1:{old.http}", request.node.name) as made:
        made.sign_in(key(old))
        yield made


def test_ten_thousand_runs(user: Looking) -> None:
    """A page of them is read; more on demand; a search goes through all, and no answer has more than a page."""
    page = user.page
    expect(page.locator(".title")).to_contain_text(re.compile(r"10,001 runs in all"), timeout=PATIENCE)
    rows = page.get_by_role("region", name="Runs").locator("tbody tr")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Show 100 more").click()
    expect(rows).to_have_count(200)
    page.get_by_label("Search").fill("000000000042")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("a study, 0042")
    page.get_by_label("Search").fill("nothing has this name")
    page.get_by_role("button", name="Show all").click()
    expect(rows).to_have_count(100)
    page.get_by_label("Status").select_option("completed")
    expect(page.get_by_text("No run fits")).to_be_visible()
    asked = [parse_qs(urlsplit(each).query) for each in user.asked if urlsplit(each).path == "/runs"]
    assert asked and all("limit" in each for each in asked)


def test_a_run_of_ten_thousand_events(user: Looking) -> None:
    """Its sentence and curve are there; of the events the newest were read, and none a second time."""
    page = user.page
    user.open(f"#/runs/{LONG.run}", "crowd")
    expect(page.locator(".standing")).to_contain_text("Cancelled")
    page.get_by_text("Events", exact=True).click()
    expect(page.get_by_text(re.compile(r"has all 10,?0\d\d"))).to_be_visible()
    followed = [each for each in user.asked if "/events" in each]
    assert all("last=" in each or "since=" in each for each in followed), followed
