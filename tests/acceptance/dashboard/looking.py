"""One page of the dashboard in a browser, and what a browser had to complain of."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Request, Response, expect

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
PATIENCE = 60_000.0  # milliseconds: other tests run beside this one


@dataclass
class Looking:
    """asked: every address that the page wanted; complaints: of the browser. expected: words of those that a test provokes."""

    page: Page
    url: str
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("request", self._note)
        self.page.on("response", self._failed)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)

    def _note(self, request: Request) -> None:
        self.asked.append(request.url)

    def _failed(self, answer: Response) -> None:
        if answer.status >= 500:
            self.complaints.append(f"{answer.status} {answer.url}")

    def sign_in(self, key: str, at: str = "#/runs") -> None:
        """As a user does: open the page, type the key."""
        self.expected += ("401",)  # by which the page learns that nobody is signed in
        self.page.goto(f"{self.url}/{at}")
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.locator("header").wait_for()

    def open(self, at: str, heading: str) -> None:
        self.page.evaluate("at => { location.hash = at }", at)
        expect(self.page.get_by_role("heading", level=1, name=heading)).to_be_visible(timeout=PATIENCE)

    def check(self) -> None:
        """Nothing was asked for elsewhere, and the browser did not complain of what no test provoked."""
        assert {urlsplit(each).netloc for each in self.asked if not each.startswith("data:")} <= {urlsplit(self.url).netloc}
        left = [each for each in self.complaints if not any(words in each for words in self.expected)]
        assert left == [], left

    def accessible(self) -> None:
        """No finding of axe-core, with everything unfolded."""
        self.page.evaluate("document.querySelectorAll('details:not(.menu)').forEach(each => { each.open = true })")
        found = Axe().run(self.page, options=RULES).response["violations"]
        seen = [(each["id"], each["impact"], each["nodes"][0]["html"][:200]) for each in found]
        assert seen == [], seen

    def fits(self) -> None:
        """The page is no wider than the window."""
        assert self.page.evaluate("document.documentElement.scrollWidth") <= self.page.viewport_size["width"]  # type: ignore[index]
