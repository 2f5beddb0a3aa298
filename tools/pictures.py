"""Takes the manual's pictures of the dashboard and of the owner's page, in a browser of this machine.

    python tools/pictures.py docs/images

A coordinator and three agents with real digits, the owner of one of whom wants to be asked. It takes about a minute.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.acceptance.dashboard.conftest import OPTIONS
from tests.acceptance.dashboard.looking import Looking
from tests.acceptance.harness import Net, net
from tests.services import free_port

DATA = {"hospital-a": ("mnist", "1/2"), "hospital-b": ("mnist", "2/2"), "hospital-c": ("usps", "1/1")}
ROLES = {"hospital-a": "source", "hospital-b": "source", "hospital-c": "target"}
EXPERIMENT: dict[str, Any] = {
    "name": "digits at three hospitals",
    "method": "fedavg",
    "config": {"rounds": 40, "rate": 0.03},
    "world": {"model": "lenet", "inputs": [1, 28, 28], "classes": 10},
    "roster": ROLES,
    "seed": 1,
}
ASKS = "[runs]\napprove = 'always'\n"
WIDE, NARROW = {"width": 1100, "height": 900}, {"width": 390, "height": 844}
MINUTE = 60_000.0


def main(folder: Path) -> int:
    with tempfile.TemporaryDirectory() as home, net(Path(home)) as made, sync_playwright() as playwright:
        start(made, Path(home))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS)
        run = made.run(EXPERIMENT)
        asked = owners_page(browser, made)
        expect(asked.get_by_role("heading", name=f"Run {run}")).to_be_visible(timeout=MINUTE)
        asked.screenshot(path=folder / "owners-page.png", clip={"x": 0, "y": 0, **WIDE, "height": 750})
        asked.get_by_role("button", name="Approve once").click()
        page = dashboard(browser, made)
        page.evaluate("at => { location.hash = at }", f"#/runs/{run}")
        expect(page.locator(".standing")).to_contain_text(re.compile(r"Round (1[2-9]|[23]\d) of"), timeout=5 * MINUTE)
        page.set_viewport_size({**WIDE, "height": 1160})
        page.wait_for_timeout(500)
        page.screenshot(path=folder / "dashboard.png")
        page.set_viewport_size(NARROW)
        page.wait_for_timeout(500)
        page.screenshot(path=folder / "dashboard-phone.png")
        browser.close()
    return 0


def start(made: Net, home: Path) -> None:
    """The coordinator and the agents, each with digits of its own."""
    made.coordinator()
    for name, (domain, part) in DATA.items():
        words = ["data", "sample", str(home / name), "--domain", domain, "--part", part]
        subprocess.run([sys.executable, "-m", "tideline", *words], check=True, stdout=subprocess.DEVNULL)
        asks = ("--page", f"127.0.0.1:{free_port()}", *made.policy(ASKS)) if name == "hospital-a" else ()
        made.agent(name, home / name, ROLES[name], *asks)


def owners_page(browser: Browser, made: Net) -> Page:
    made.until(lambda: "page_served" in made.log("hospital-a"), "the page to be served")
    words = ["site", "page", "--home", str(made.home / "home-hospital-a"), "--json"]
    said = subprocess.run([sys.executable, "-m", "tideline", *words], check=True, capture_output=True, text=True).stdout
    page = browser.new_context(viewport=WIDE).new_page()
    page.goto(re.search(r"http://127[^\"]+", said)[0])  # type: ignore[index]
    return page


def dashboard(browser: Browser, made: Net) -> Page:
    looking = Looking(browser.new_context(viewport=WIDE).new_page(), f"http://127.0.0.1:{made.http}")
    looking.sign_in((made.folder / "admin.key").read_text().strip())
    return looking.page


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
