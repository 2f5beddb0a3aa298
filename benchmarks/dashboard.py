"""How soon the dashboard shows something in a real browser, and how much it loads for it.

    python benchmarks/dashboard.py [--runs 200,10000] [--sites 50] [--loads 7] [--limit shown=300] [--demo]

A journal is filled as for `lists.py`, with one run of 10,000 events more, and a real coordinator opens it. A browser that is
signed in, and has no file kept, loads a page again and again; the middle of the loads counts. By the browser's own clock, in ms
from the start of the load: `paint` is its first contentful paint, `shown` the first frame after the list's rows, or the run's
sentence, are there, `found` that with what a search through all runs finds, from the last key on. `page` and `server` are how
long the page's thread and the coordinator's processor worked until then. `kb` is what came over the line, `files`
how many requests that were.

--demo: the commands of the manual instead, counted, and the seconds from `tideline demo` to the first curve of a run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.crowd import Crowd, fill
from benchmarks.limits import check_keys, emit, limit, table
from benchmarks.lists import BEGAN, Team, busy, filled
from tests.acceptance.harness import COORDINATOR, Net, net
from tideline.core.run import RunId
from tideline.engine.model.accounts import Client, Invite
from tideline.engine.model.runs import OPEN, Status
from tideline_server.store import SqlJournal

MANUAL = Path(__file__).resolve().parent.parent / "docs" / "dashboard.md"
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LONG = Crowd(members=10, rounds=910, run=RunId("10a900000000"))  # of 10,000 events and a few
ROWS, SENTENCE, CURVE = "main tbody tr", ".standing", ".chart canvas"
MARK = """selector => {
  const look = () => {
    if (!document.querySelector(selector)) return false;
    requestAnimationFrame(() => setTimeout(() => { window.shownAt ??= performance.now(); }));
    return true;
  };
  new MutationObserver((_, observer) => look() && observer.disconnect()).observe(document, { childList: true, subtree: true });
}"""
FIGURES = """async () => {
  while (window.shownAt === undefined) await new Promise(done => setTimeout(done, 20));
  const all = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const sum = all.reduce((bytes, each) => bytes + each.transferSize, 0);
  return { paint: paint ? paint.startTime : NaN, shown: window.shownAt, kb: sum / 1000, files: all.length };
}"""
Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    """One size. shown: the list's, which limits are for; list, run: the two pages' figures; events: of the run."""

    runs: int
    sites: int
    events: int
    shown: float
    found: float
    list: Figures
    run: Figures


@dataclass(frozen=True)
class Newcomer:
    """What stands between a person and a first curve."""

    commands: int
    first_curve_s: float


def main() -> int:
    """A table for each size; 1 if a limit is exceeded."""
    args = arguments()
    check_keys(Newcomer if args.demo else Row, args.limit)
    os.umask(0o077)  # as a coordinator writes
    with browsing() as browser:
        if args.demo:
            row = newcomer(browser)
            words = [f"{row.commands} commands; {row.first_curve_s:g} s from the second to the first curve"]
            return emit(row, words, args.limit, args.json)
        return max(emit(row, lines(row), args.limit, args.json) for row in (measure(browser, many, args) for many in args.runs))


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="200,10000", help="runs in the list, one size after the other")
    parser.add_argument("--sites", type=int, default=50, help="sites")
    parser.add_argument("--loads", type=int, default=7, help="loads of each page")
    parser.add_argument("--demo", action="store_true", help="count a newcomer's commands instead")
    parser.add_argument("--limit", type=limit, action="append", default=[], metavar="KEY=NUMBER", help="exit 1 above it")
    parser.add_argument("--quick", action="store_true", help="4 runs, 3 sites, 2 loads")
    parser.add_argument("--json", action="store_true", help="a JSON line for each size")
    args = parser.parse_args()
    if args.quick:
        args.runs, args.sites, args.loads = "4", 3, 2
    args.runs = [int(many) for many in args.runs.split(",")]
    return args


@contextmanager
def browsing() -> Iterator[Browser]:
    """This machine's browser."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        sys.exit("there is no browser on this machine (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=found, args=OPTIONS)


def measure(browser: Browser, many: int, args: Any) -> Row:
    """One size."""
    with ExitStack() as stack:
        there = stack.enter_context(net(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        events = prepared(there, many, args.sites)
        there.coordinator("--rate", "0")
        listed = looked(browser, there, "#/runs", ROWS, args.loads)
        shown = looked(browser, there, f"#/runs/{LONG.run}", SENTENCE, args.loads)
        return Row(many, args.sites, events, listed["shown"], searched(browser, there, many), listed, shown)


def prepared(there: Net, many: int, sites: int) -> int:
    """Fill the journal; how many events the long run has."""
    there.folder.mkdir()
    hospitals, team = Team(sites, 6, RunId("990000000000"), "hospitals"), Team(4, 6, RunId("000000000000"), "team")
    with closing(SqlJournal(there.folder / "coordinator.db")) as journal:
        filled(journal, [hospitals], 1)
        filled(journal, [team], many)
        for name in LONG.names:
            journal.add_invite(Invite(token_hash=name, name=name, labels={}, expires=9e9, used_by=""))
            own: dict[str, Any] = {"sign_key": name.encode().hex().ljust(64, "0"), "receive_key": "b" * 64}
            about: dict[str, Any] = {
                "roles": ("source", "target"),
                "labels": {},
                "version": "1",
                "enrolled": BEGAN,
                "seen": BEGAN,
            }
            journal.enrol(name, Client(name=name, **about, **own))
        fill(journal, LONG)
        journal.set_status(LONG.run, OPEN, Status.CANCELLED, "enough", BEGAN)
        return journal.last_event(LONG.run)


def looked(browser: Browser, there: Net, at: str, selector: str, loads: int) -> Figures:
    """The middle of so many loads, each by a browser that keeps nothing but who is signed in."""
    key = (there.folder / "admin.key").read_text().strip()
    server, found = psutil.Process(there.running[COORDINATOR].pid), list[Figures]()
    for _ in range(loads):
        with signed_in(browser, there, key) as page:
            page.add_init_script(f"({MARK})({selector!r})")
            thread = page.context.new_cdp_session(page)
            thread.send("Performance.enable")
            before = busy(server)
            page.goto(f"http://127.0.0.1:{there.http}/{at}")
            figures = page.evaluate(FIGURES)
            worked = {each["name"]: each["value"] for each in thread.send("Performance.getMetrics")["metrics"]}
            found.append(figures | {"page": 1000 * worked["TaskDuration"], "server": 1000 * (busy(server) - before)})
    return {name: round(statistics.median(each[name] for each in found), 1) for name in found[0]}


@contextmanager
def signed_in(browser: Browser, there: Net, key: str) -> Iterator[Page]:
    """A page of a new context with a session."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    url = f"http://127.0.0.1:{there.http}"
    context.request.post(f"{url}/sign-in/key", data={"key": key}, headers={"Origin": url}).json()
    context.add_init_script("localStorage.setItem('tideline-was-signed-in', '1')")  # as a browser that was here before has it
    yield context.new_page()
    context.close()


def searched(browser: Browser, there: Net, many: int) -> float:
    """Milliseconds from the last key of a search for the oldest run to its row."""
    key = (there.folder / "admin.key").read_text().strip()
    with signed_in(browser, there, key) as page:
        page.goto(f"http://127.0.0.1:{there.http}/#/runs")
        page.locator(ROWS).first.wait_for()
        oldest = f"{min(many - 1, 1):012d}"
        began = time.perf_counter()
        page.get_by_label("Search").fill(oldest)
        page.locator(f'main a[href="#/runs/{oldest}"]').wait_for()
        return round(1000 * (time.perf_counter() - began), 1)


def newcomer(browser: Browser) -> Newcomer:
    """The manual's commands; the first installs, the second shows."""
    manual = MANUAL.read_text()
    commands = re.search(r"```sh\n(.*?)```", manual, re.DOTALL)
    assert commands is not None, "docs/dashboard.md has no commands"
    typed = commands[1].strip().splitlines()
    assert typed[-1] == "tideline demo", typed
    with tempfile.TemporaryDirectory() as home:
        began = time.perf_counter()
        demo = subprocess.Popen(
            [sys.executable, "-m", "tideline", "demo"], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            return Newcomer(len(typed), round(first_curve(browser, demo, began), 1))
        finally:
            demo.terminate()
            demo.wait(30)


def first_curve(browser: Browser, demo: subprocess.Popen[str], began: float) -> float:
    """Seconds until the link that the demo prints shows a curve."""
    assert demo.stdout is not None
    link = next(found[0] for line in demo.stdout if (found := re.search(r"http://\S+#key=\S+", line)))
    page = browser.new_page()
    page.set_default_timeout(120_000)
    page.goto(link)
    page.locator("main tbody a").first.click()
    page.locator(CURVE).first.wait_for()
    return time.perf_counter() - began


def lines(row: Row) -> list[str]:
    """A table for people."""
    head = (f"{row.runs} runs, {row.sites} sites: ms", "paint", "shown", "page", "server", "kB", "files")
    pages = {"the list": row.list, f"a run of {row.events} events": row.run}
    cells = [(name, *(of[key] for key in ("paint", "shown", "page", "server", "kb", "files"))) for name, of in pages.items()]
    return [*table(head, cells), f"a search through all of them: {row.found:g} ms"]


if __name__ == "__main__":
    sys.exit(main())
