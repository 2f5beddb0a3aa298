"""What stands between a browser and the coordinator: proxies, clocks, other people's pages, keys that end."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect

from tests.acceptance.dashboard.buffering import relay
from tests.acceptance.dashboard.conftest import NAMES, OPTIONS
from tests.acceptance.dashboard.looking import PATIENCE, Looking
from tests.acceptance.dashboard.test_watching import fedavg, key, shows
from tests.acceptance.harness import Net

pytestmark = pytest.mark.processes
HOURS = 5 * 3600 * 1000
LATE = f"""(() => {{
  const Real = Date;
  window.Date = class extends Real {{
    constructor(...given) {{ given.length ? super(...given) : super(Real.now() + {HOURS}); }}
    static now() {{ return Real.now() + {HOURS}; }}
  }};
}})()"""


def test_a_proxy_that_holds_streams_back(federation: Net, looking: Looking) -> None:
    """The page says so within seconds, reads the lists again and again, and follows a run to its end."""
    with relay(federation.http) as port:
        page = looking.page
        looking.url = f"http://127.0.0.1:{port}"
        looking.sign_in(key(federation))
        expect(page.locator(".live").first).to_contain_text("holds the live line back", timeout=PATIENCE)
        run = federation.run(fedavg("behind a proxy", 2))
        expect(page.get_by_role("link", name="behind a proxy")).to_be_visible(timeout=PATIENCE)
        looking.open(f"#/runs/{run}", "behind a proxy")
        shows(page, re.compile("Completed after 2 rounds"))
        page.get_by_text("Events", exact=True).click()
        expect(page.get_by_role("region", name="Events")).to_contain_text("completed", timeout=PATIENCE)
        page.goto("about:blank")


def test_a_clock_that_is_hours_wrong(federation: Net, looking: Looking) -> None:
    """Times are told by the coordinator's clock, and the doctor says that the clocks differ."""
    federation.ended(federation.run(fedavg("just now", 0)))
    looking.page.add_init_script(LATE)
    looking.sign_in(key(federation))
    row = looking.page.get_by_role("row").filter(has_text="just now")
    expect(row.locator("time").first).to_have_text(re.compile(r"^(now|\d+ s ago|under 1 s ago)$"), timeout=PATIENCE)
    looking.open("#/sites", "Sites")
    expect(looking.page.get_by_role("row").filter(has_text="approved").locator("time").first).to_have_text(
        re.compile(r"^(now|\d+ s ago|under 1 s ago)$"), timeout=PATIENCE
    )
    looking.open("#/doctor", "Doctor")
    expect(looking.page.get_by_text("clock and the coordinator's differ by 5 h")).to_be_visible(timeout=PATIENCE)


def test_requests_whose_heads_are_forged(federation: Net, looking: Looking) -> None:
    """A browser's session changes nothing for a page from elsewhere, whatever else is right, and serves under no other host."""
    looking.sign_in(key(federation))
    csrf = looking.page.evaluate("fetch('/session').then(answer => answer.json()).then(found => found.csrf)")
    ask = looking.page.context.request  # with the browser's cookies
    named = {"Tideline-CSRF": csrf, "Idempotency-Key": "forged"}

    def posted(**heads: str) -> int:
        return ask.post(f"{looking.url}/invites", data={"name": "stolen"}, headers=named | heads).status

    assert posted(Origin="http://evil.example") == posted(Origin="null") == posted() == 403
    assert posted(Origin="http://evil.example", Host="evil.example") == 401
    assert ask.get(f"{looking.url}/runs", headers={"Host": "evil.example"}).status == 401
    assert posted(Origin=looking.url) == 201, "the same with the page's own"


@pytest.fixture
def rebound(chromium: Browser, playwright_running: Playwright) -> Iterator[Page]:
    """A page of a browser for which another name is this machine."""
    found = next(path for name in NAMES if (path := shutil.which(name)))
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    made = playwright_running.chromium.launch(executable_path=found, args=[*OPTIONS[:-1], rules])
    yield made.new_page()
    made.close()


def test_a_name_that_was_pointed_here(federation: Net, rebound: Page) -> None:
    """A page under somebody else's name has no session, can start none without a key, and reads nothing of ours."""
    ours, theirs = f"http://127.0.0.1:{federation.http}", f"http://evil.example:{federation.http}"
    context = rebound.context
    rebound.goto(ours)
    rebound.get_by_label("API key").fill(key(federation))
    rebound.get_by_role("button", name="Sign in").click()
    rebound.locator("header").wait_for()
    rebound.goto(theirs)
    expect(rebound.get_by_label("API key")).to_be_visible(timeout=PATIENCE)
    assert rebound.evaluate("fetch('/runs').then(answer => answer.status)") == 401
    across = f"fetch('{ours}/runs', {{credentials: 'include'}}).then(answer => answer.status, () => 'refused')"
    assert rebound.evaluate(across) == "refused"
    session = next(each for each in context.cookies(ours) if "session" in each["name"])
    context.add_cookies([{"name": session["name"], "value": session["value"], "url": theirs}])
    assert rebound.evaluate("fetch('/runs').then(answer => answer.status)") == 401, (
        "a stolen cookie serves at its own address alone"
    )
