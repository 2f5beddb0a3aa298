"""Whatever others call their runs, settings and users, the owner's page shows as text; and it can be read on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.dashboard.conftest import browsing, keep_picture
from tests.acceptance.dashboard.looking import Looking
from tests.acceptance.dashboard.prepared import HOSTILE, REPLIES, brief_with, fill, hold, served, work
from tideline_agent.page.content import seen

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("texts") / "home"
    fill(made)
    for number, each in enumerate(HOSTILE):
        hold(made, f"{number:012x}", brief_with(each))
        work(made, f"worked-{number}", each, each)
    return made


@pytest.fixture
def owner(chromium: Browser, home: Path, request: pytest.FixtureRequest) -> Iterator[Looking]:
    with served(home) as link, browsing(chromium, link, request.node.name) as made:
        made.page.locator("#total").wait_for()
        yield made


def test_every_text_is_text(owner: Looking) -> None:
    """Of runs that wait, are at work and have worked, of what left, and of what is decided. Nothing runs, nothing is drawn."""
    page = owner.page
    for each in HOSTILE:
        ask = page.locator(".ask").filter(has_text=seen(each))
        expect(ask).to_have_count(1)
        expect(ask.locator("img, script")).to_have_count(0)
    expect(page.locator("#now li").first).to_contain_text(HOSTILE[0])
    replies = page.get_by_role("region", name="Replies that left")
    for each in HOSTILE:
        expect(replies.get_by_role("row").filter(has_text=each)).to_have_count(1)
        expect(page.locator("#results").get_by_role("row").filter(has_text=each)).to_have_count(1)
    assert page.locator("main img, main script, main iframe").count() == 0
    assert page.evaluate("window.hurt") is None
    assert page.title() == "Your site – Tideline", "an escape sequence sets no title"
    page.get_by_label("Search").fill(HOSTILE[0])
    expect(page.locator("#total")).to_contain_text("1 reply")
    assert page.evaluate("window.hurt") is None
    owner.fits()


def test_a_word_that_turns_text_around_turns_its_own_alone(owner: Looking) -> None:
    """In what an owner decides on, it is spelled out; in a cell it turns that cell."""
    expect(owner.page.locator(".ask").filter(has_text="gpj.exe").locator("li").first).to_contain_text("\\u202egpj.exe\\u202c;")
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", owner.page.locator("#waiting").inner_text())
    box = owner.page.get_by_role("region", name="Replies that left").get_by_role("row").filter(has_text="gpj.exe")
    cells = [cell.bounding_box() for cell in box.locator("th, td").all()]
    lefts = [each["x"] for each in cells if each]
    assert lefts == sorted(lefts), "cells stand in the order of their heads"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_full_pages(owner: Looking, scheme: str, width: int) -> None:
    """With waiting runs, a long table and hostile names: no wider than the window, and no finding of axe."""
    owner.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    owner.page.set_viewport_size({"width": width, "height": 900})
    owner.fits()
    owner.accessible()


def test_what_left_on_a_phone(owner: Looking) -> None:
    """Each reply is a card: every cell has its head, no cell is cut off or scrolled, and each field its bytes and digest."""
    page = owner.page
    page.set_viewport_size({"width": 390, "height": 900})
    page.get_by_label("Search").fill("train/fit")
    expect(page.locator("#total")).to_contain_text(f"{REPLIES - len(HOSTILE)} replies")
    box = page.get_by_role("region", name="Replies that left")
    assert box.evaluate("each => each.scrollWidth <= each.clientWidth + 1")
    first = box.get_by_role("row").nth(1)
    expect(first).to_contain_text("WEIGHTS to coordinator: model (1.2 MB)")
    assert first.locator("td").first.evaluate("each => getComputedStyle(each, '::before').content").startswith('"Run')
    first.get_by_text("By field").click()
    expect(first.locator(".fields li")).to_have_count(2)
    expect(first.locator(".fields")).to_contain_text("rows: COUNT to coordinator, 3 B, b3-")
    keep_picture(page, "egress-phone")
    owner.accessible()


def test_pages_of_what_left(owner: Looking) -> None:
    page = owner.page
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_text(f"201 to 400 of {REPLIES}")).to_be_visible()
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_role("region", name="Replies that left").get_by_role("row")).to_have_count(REPLIES - 400 + 1)
    page.get_by_label("Search").fill(f"b3-{7:064x}")
    expect(page.locator("#total")).to_contain_text("1 reply")
