"""The report in a browser and on paper: it prints on A4 with nothing cut off, and nothing in it hinders anybody."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.acceptance.dashboard.conftest import keep_picture
from tests.acceptance.dashboard.looking import RULES
from tests.cli.echo import told
from tideline.report.page import write_report

pytestmark = pytest.mark.processes
PAPER = {"width": 688, "height": 1017}  # A4 within margins of 14 mm, in pixels of CSS
WIDER = """width => [...document.querySelectorAll('main *')]
  .filter(each => each.getBoundingClientRect().right > width + 1).map(each => each.outerHTML.slice(0, 99))"""
LONG = "hospital-with-a-long-name-number-{}-of-the-federation"


def small() -> dict[str, Any]:
    return told()


def large() -> dict[str, Any]:
    """Thirty sites with long names, with accuracies of long names, and metrics over four rounds."""
    known, names = told(), [LONG.format(number) for number in range(30)]
    metrics = {f"accuracy_{word}": 0.5 for word in ("with_prior", "after_adaptation_of_everything", "x", "y")}
    more = {"domain": "a_domain_whose_name_is_long", "metrics": metrics}
    clients = [
        dict(known["clients"][at % 3], name=name, role=("source", "target")[at % 2], **more) for at, name in enumerate(names)
    ]
    rounds = [(name, number) for name in names for number in (1, 2, 3, 4)]
    history = [
        {"client": name, "phase": "train", "round": n, "cursor": n, "metrics": {"loss": 1 / n, "alignment": n * 1.0}}
        for name, n in rounds
    ]
    curve = [{"client": name, "round": n, "accuracy": 0.1 * n, "phase": "score"} for name, n in rounds]
    return {**known, "clients": clients, "history": history, "curve": curve}


RESULTS = {"small": small, "large": large}
PAGES = {"small": 6, "large": 12}  # of paper, at most


@pytest.fixture(params=sorted(RESULTS))
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shown(chromium: Browser, size: str, tmp_path: Path) -> Page:
    write_report(RESULTS[size](), tmp_path / "report.html")  # type: ignore[arg-type]
    page = chromium.new_page(viewport={"width": 1200, "height": 1000})
    page.goto((tmp_path / "report.html").as_uri())
    return page


def test_it_prints_on_a4(shown: Page, size: str, tmp_path: Path) -> None:
    """On no more pages than it needs, each of A4; nothing is wider than the paper, and no picture higher."""
    shown.emulate_media(media="print")
    shown.set_viewport_size(PAPER)  # type: ignore[arg-type]
    keep_picture(shown, f"report-paper-{size}")
    assert shown.evaluate("document.documentElement.scrollWidth") <= PAPER["width"]
    assert shown.evaluate(WIDER, PAPER["width"]) == []
    assert shown.evaluate("Math.max(0, ...[...document.images].map(each => each.height))") <= PAPER["height"]
    made = tmp_path / "report.pdf"
    shown.pdf(path=made, prefer_css_page_size=True)
    content = made.read_bytes()
    boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", content)
    assert {(round(float(w)), round(float(h))) for w, h in boxes} == {(595, 842)}
    assert len(re.findall(rb"/Type /Page\b", content)) <= PAGES[size]


def test_all_of_it_is_on_paper(shown: Page) -> None:
    """What is folded on a screen is open, but for the numbers behind charts, which are in files."""
    shown.emulate_media(media="print")
    inner = shown.locator("details.inner")
    assert inner.count() >= 2
    for at in range(inner.count()):
        content = inner.nth(at).locator("h2").first.inner_text()
        assert inner.nth(at).evaluate("each => each.getBoundingClientRect().height") > 100, content


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_on_a_screen(shown: Page, scheme: str, width: int, size: str) -> None:
    """No finding of axe-core with everything unfolded, and no wider than the window."""
    shown.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    shown.set_viewport_size({"width": width, "height": 900})
    shown.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(shown, options=RULES).response["violations"]
    assert [(each["id"], each["impact"], each["nodes"][0]["html"][:200]) for each in found] == []
    keep_picture(shown, f"report-{size}-{scheme}-{width}")
