"""kill -9 before and after every commit and every rename of a file: whatever dies, the run ends in the undisturbed bytes.

python -m tests.acceptance.failpoints [--database postgres] [--only WORDS] [--later N] [--every N [--first K]] [--secure]

A first run notes every point that is passed. Then each is tried: the process that passes it dies there, is started again with
the same command, and the run must complete. A line a point. --later N: it dies at the pass after the first N. --every N: one in
N of the points by name from the K-th on, so that the same are tried every time. --secure: in a run with secure sums.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance import gated
from tests.acceptance.conftest import SITES, WORLD, write_blobs
from tests.acceptance.harness import COORDINATOR, Net
from tests.postgres import own_schema
from tideline.algorithms import METHODS
from tideline.core.errors import FederationError
from tideline.engine.simulation.federation import SimSite, simulate
from tideline.learning.formats.folder import read_folder

FAILING = Path(__file__).parent / "failing"
SQLITE, POSTGRES = "sqlite", "postgres"
RUNS = 6  # tries to come past a point
BY_THE_CLOCK = ("journal.beat", "journal.saw", "journal.renew")  # passed now and then, and not by every run
REGISTRY = "tests.acceptance.gated:METHODS"


@dataclass(frozen=True)
class Play:
    """What is run, and by which sites."""

    experiment: Mapping[str, Any]
    sites: Mapping[str, str]


PLAIN = Play({"method": "gated", "config": {"rounds": 3}, "world": WORLD, "roster": SITES, "seed": 9}, SITES)
SUMMING = dict.fromkeys(("a", "b", "c", "d"), "source")
SECURE = Play({"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": SUMMING, "seed": 9, "secure_sums": True}, SUMMING)


class Range:
    """A federation whose processes die at points, and are started again."""

    def __init__(self, federation: Net, data: dict[str, Path], play: Play = PLAIN) -> None:
        self.federation, self.data, self.play = federation, data, play
        self.gun = federation.home / "gun"
        self.gun.mkdir()
        self.over = threading.Event()
        federation.more |= {"TIDELINE_GUN": str(self.gun), "PYTHONPATH": str(FAILING)}

    def begin(self) -> None:
        """Start the coordinator, then the agents; those that die are started again."""
        try:
            self.federation.coordinator()
        except Died:
            self.federation.again(COORDINATOR)
            self.federation.ready()
        threading.Thread(target=self.attend, daemon=True).start()
        for name, role in self.play.sites.items():
            self.federation.agent(name, self.data[name], role)

    def revive(self) -> None:
        for name, process in list(self.federation.running.items()):
            if process.poll() == -signal.SIGKILL:
                self.federation.again(name)

    def attend(self) -> None:
        """Start again whatever dies, until it is over."""
        while not self.over.wait(0.05):
            self.revive()

    def run(self, name: str) -> dict[str, Any]:
        """One run from its start to its end, through deaths. It is asked for once, under one key."""
        run = self.federation.run({**self.play.experiment, "name": name})
        found: dict[str, Any] = {}

        def ended() -> bool:
            try:
                found.update(self.federation.result(run))
            except FederationError:
                return False
            return found["status"] not in ("waiting", "running")

        self.federation.until(ended, f"run {name} to end")
        return found

    def seen(self) -> list[str]:
        """The points passed since the last call, each once."""
        passed = (self.gun / "seen").read_text().splitlines() if (self.gun / "seen").exists() else []
        (self.gun / "seen").unlink(missing_ok=True)
        return list(dict.fromkeys(passed))

    def arm(self, point: str, later: int = 0) -> None:
        """Whoever passes the point next dies there."""
        (self.gun / "fired").unlink(missing_ok=True)
        (self.gun / "armed").write_text(f"{point} {later}")

    def tell(self) -> None:
        """Print what each process said last."""
        for name in self.federation.running:
            print(f"--- {name}\n{self.federation.log(name)[-6000:]}", flush=True)

    def fired(self) -> bool:
        """Whether somebody died. The gun is empty afterwards."""
        (self.gun / "armed").unlink(missing_ok=True)
        return (self.gun / "fired").exists()


class Died(Exception):
    """A process that was awaited is dead."""


class Mortal(Net):
    """A federation in which nobody waits for a process that is dead."""

    def ready(self, name: str = COORDINATOR) -> None:
        said = self.home_of(name) / "coordinator.json"
        process = self.running[name]

        def open_or_dead() -> bool:
            if process.poll() == -signal.SIGKILL:
                raise Died
            return said.exists() and f'"pid": {process.pid}' in said.read_text()

        self.until(open_or_dead, "the coordinator to open its doors")


@contextmanager
def firing_range(home: Path, database: str = SQLITE, play: Play = PLAIN) -> Iterator[Range]:
    """A federation that is not started yet, with a database of its own. What dies in it is started again."""
    data = {name: write_blobs(home / "data" / name, i) for i, name in enumerate(play.sites)}
    with own_schema() if database == POSTGRES else nullcontext() as url:
        federation = Mortal(home, REGISTRY, url)
        place = Range(federation, data, play)
        try:
            yield place
        finally:
            place.over.set()
            federation.stop()


def undisturbed(data: dict[str, Path], play: Play = PLAIN) -> str:
    sites = {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r)) for n in play.sites}
    return str(simulate((*METHODS, *gated.METHODS), play.experiment, sites)["state_digest"])


def points(database: str, play: Play = PLAIN) -> tuple[list[str], list[str]]:
    """Every point that a federation passes while it starts, and every point of a run."""
    with tempfile.TemporaryDirectory(prefix="points-") as folder, firing_range(Path(folder), database, play) as place:
        place.begin()
        place.run("first")
        starting = place.seen()
        place.run("second")
        running = place.seen()
        return [point for point in starting if point not in running], running


def die_in_run(place: Range, point: str, later: int, expected: str) -> str:
    """One run with one death; another, where the run did not come past the point. What went wrong, or nothing."""
    for _ in range(RUNS):
        place.arm(point, later)
        result = place.run(f"{point} {later} {time.monotonic_ns()}")
        fired, wrong = place.fired(), wrong_with(result, expected)
        if wrong:
            place.tell()
        if wrong or fired:
            return wrong
    return "" if later else missed(point)


def die_at_start(point: str, database: str, expected: str, play: Play = PLAIN) -> str:
    """A federation of its own that loses a process while it starts, and a run in it."""
    with tempfile.TemporaryDirectory(prefix="start-") as folder, firing_range(Path(folder), database, play) as place:
        place.arm(point)
        place.begin()
        result = place.run("after")
        fired, wrong = place.fired(), wrong_with(result, expected)
        return wrong or ("" if fired else missed(point))


def missed(point: str) -> str:
    """What it means that nobody came past a point."""
    return "" if any(name in point for name in BY_THE_CLOCK) else "nobody died there"


def wrong_with(result: dict[str, Any], expected: str) -> str:
    """What is wrong with a run's end, or nothing."""
    if result["status"] != "completed":
        return f"{result['status']}: {result['cause']}"
    return "" if result["state_digest"] == expected else f"other bytes: {result['state_digest']}"


def main() -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=(SQLITE, POSTGRES), default=SQLITE)
    parser.add_argument("--only", default="", help="points with these words")
    parser.add_argument("--later", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="one in so many of the points")
    parser.add_argument("--first", type=int, default=0, help="with --every: the first of them, from 0")
    parser.add_argument("--secure", action="store_true", help="a run with secure sums")
    asked = parser.parse_args()
    play = SECURE if asked.secure else PLAIN
    starting, running = (share(found, asked.only, asked.every, asked.first) for found in points(asked.database, play))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="range-") as folder, firing_range(Path(folder), asked.database, play) as place:
        place.begin()
        expected = undisturbed(place.data, play)
        place.run("warm")
        for point in running:
            failed += report(point, die_in_run(place, point, asked.later, expected))
    for point in starting:
        failed += report(point, die_at_start(point, asked.database, expected, play))
    print(f"{len(running) + len(starting)} points, {failed} failed in {time.monotonic() - began:.0f} s")
    return int(failed > 0)


def share(found: Iterable[str], only: str, every: int, first: int = 0) -> list[str]:
    """Return one in `every` of the points with these words, by name: which are passed first differs from run to run.

    Each point has a name for before and one for after, side by side; an odd number takes both by turns.
    """
    return sorted(point for point in found if only in point)[first::every]


def report(point: str, wrong: str) -> bool:
    print(f"{'FAILED ' + wrong if wrong else 'ok':8s}  {point}", flush=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
