"""What an owner says on the page is what happens at the site: once, always, never, and no."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.acceptance.conftest import SITES
from tests.acceptance.dashboard.conftest import browsing, keep_picture
from tests.acceptance.dashboard.looking import PATIENCE, Looking
from tests.acceptance.dashboard.test_owners_page import link
from tests.acceptance.dashboard.test_watching import fedavg, key
from tests.acceptance.harness import Net, net
from tests.services import free_port
from tests.site.test_machine import TWO, command

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator and three agents; the owner of `a` wants to be asked and has a page, and the machines a driver of GPUs."""
    with net(tmp_path_factory.mktemp("words")) as made:
        command(made.home, TWO)
        made.more["PATH"] = f"{made.home}:/usr/bin:/bin"
        made.coordinator()
        for name, role in SITES.items():
            page = ("--page", f"127.0.0.1:{free_port()}", *made.policy("[runs]\napprove = 'always'\n"), "--device", "auto")
            made.agent(name, data[name], role, *(page if name == "a" else ()))
        for name in SITES:
            made.heard(name, "enrolled")
        yield made


@pytest.fixture
def owner(chromium: Browser, asking: Net, request: pytest.FixtureRequest) -> Iterator[Looking]:
    with browsing(chromium, link(asking), request.node.name) as made:
        yield made


def asked(owner: Looking, run: str) -> Locator:
    """What the page says of a run that waits."""
    found = owner.page.locator(".ask").filter(has_text=run)
    expect(found).to_be_visible(timeout=PATIENCE)
    return found


def press(owner: Looking, found: Locator, label: str, again: bool = False) -> None:
    found.get_by_role("button", name=label).click()
    if again:
        owner.page.get_by_role("dialog").get_by_role("button", name=label).click()
    expect(found).to_have_count(0, timeout=PATIENCE)


def refused(asking: Net, run: str) -> str:
    """What the users of a run read of its site `a`, once it is over."""
    client = next(each for each in asking.ended(run)["clients"] if each["name"] == "a")
    return str(client["declined"] or client["failures"])


def test_once_is_for_one_run(asking: Net, owner: Looking) -> None:
    first = asking.run(fedavg("once", 2))
    press(owner, asked(owner, first), "Approve once")
    asking.completed(first)
    sent = owner.page.get_by_role("region", name="Replies that left")
    expect(sent.get_by_role("row").filter(has_text=first).first).to_be_visible(timeout=PATIENCE)
    again = asking.run(fedavg("once", 2))
    press(owner, asked(owner, again), "Decline")
    assert "declined the run" in refused(asking, again)
    expect(sent.get_by_role("row").filter(has_text=again)).to_have_count(0)


def test_always_is_for_these_settings(asking: Net, owner: Looking) -> None:
    """The same runs by itself, other settings wait; once it is taken back, the same waits, too."""
    first = asking.run(fedavg("always", 3))
    press(owner, asked(owner, first), "Always for these settings", again=True)
    asking.completed(first)
    asking.completed(asking.run(fedavg("the same", 3)))
    other = asking.run(fedavg("another", 4))
    press(owner, asked(owner, other), "Decline")
    decisions = owner.page.locator("#policy li").filter(has_text=re.compile("^Always fedavg"))
    expect(decisions).to_contain_text("fedavg")
    decisions.get_by_role("button", name="Take back").first.click()
    expect(owner.page.get_by_text("You have decided each run by itself.")).to_be_visible(timeout=PATIENCE)
    press(owner, asked(owner, asking.run(fedavg("taken back", 3))), "Decline")


def test_never_is_for_the_method(asking: Net, owner: Looking) -> None:
    """This run and every later one, with any settings; another method waits as ever; taken back, the owner is asked again."""
    first = asking.run(fedavg("never", 2))
    press(owner, asked(owner, first), "Never this method", again=True)
    assert "lets no run of the method fedavg work" in refused(asking, first)
    assert "lets no run of the method fedavg work" in refused(asking, asking.run(fedavg("again", 5)))
    other = asking.run({**fedavg("another method", 2), "method": "fedprox"})
    press(owner, asked(owner, other), "Approve once")
    asking.completed(other)
    decisions = owner.page.locator("#policy li").filter(has_text=re.compile("^Never fedavg"))
    decisions.get_by_role("button", name="Take back").click()
    expect(decisions).to_have_count(0, timeout=PATIENCE)
    press(owner, asked(owner, asking.run(fedavg("asked again", 2))), "Decline")


def test_what_it_computes_on(asking: Net, owner: Looking, chromium: Browser) -> None:
    """The GPU by its name, and how busy it and the processors are; the dashboard has the name, too."""
    machine = owner.page.locator("#now .machine")
    expect(machine).to_contain_text("NVIDIA H100 80GB HBM3: 87 % busy, 42.9 GB of 85.5 GB of its memory taken", timeout=PATIENCE)
    expect(machine).to_contain_text("NVIDIA A2: its driver does not say how busy it is")
    expect(machine).to_contain_text(re.compile(r"Processors\s*\d+ % busy"), timeout=PATIENCE)
    told = {each["name"]: each["device"] for each in asking.client().get("/clients")}
    assert told["a"] == "NVIDIA H100 80GB HBM3" and "core" in told["b"], told
    with browsing(chromium, f"http://127.0.0.1:{asking.http}", "a-site") as looking:
        looking.sign_in(key(asking), "#/sites")
        row = looking.page.get_by_role("region", name="Sites", exact=True).get_by_role("row").filter(has_text="NVIDIA H100")
        expect(row).to_have_count(1, timeout=PATIENCE)
        looking.fits()
        keep_picture(looking.page, "sites-devices")
        looking.open("#/sites/a", "a")
        expect(looking.page.get_by_text("NVIDIA H100 80GB HBM3")).to_be_visible()
