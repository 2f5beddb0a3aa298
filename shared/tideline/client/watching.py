"""Watch a run until it ends or stalls, with its progress on stderr: bars on a terminal, a line per closed round elsewhere.

with Watcher() as watcher:
    watcher.show(result)     a run's result, as often as you like
    watcher.event(event)     and, between results, its events
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from tideline.client.answers import ClosedRound, Event, EventData, RunResult
from tideline.client.events import ANSWERED, happening
from tideline.client.http import PATIENCE_SECONDS, Client
from tideline.client.output import clean, counted, warn
from tideline.core.run import Role
from tideline.engine.coordinator.scheduler import duration
from tideline.engine.peers.relay import without

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

OPEN = ("waiting", "running")
FINAL = ("completed", "failed", "cancelled")
# The result is requested no more often than this; between results, events are shown.
REST_SECONDS = 0.5
# What engine.coordinator.scheduler.waits_for writes.
WAITS = re.compile(r"waiting for (\d+) of (\d+) sites \((.*)\); gives up in .*")
REPLIES = ("answered", "failed")
FEW = 16  # sites whose accuracies stand one by one
DRAWN_SECONDS = 0.1  # bars are drawn no more often for the events of one round
BAR = 16  # characters of a bar
# After so long without another line, what the run waits for gets a line of its own.
QUIET_SECONDS = 10.0
# The coordinator notes a sign of life every half minute.
SILENT_SECONDS = 60.0
SHOWN = 5  # sites in a sentence
ADVICE = "Their data differ too much for this method, or it trained too little; the notes say whether sources learnt"


@dataclass
class Tally:
    """What is known of a run, from results and events, in whichever order they come."""

    total: int | None = None
    cursor: int = -1
    last: str = ""
    asked: int | None = None
    awaited: set[str] = field(default_factory=set)
    heard: set[str] = field(default_factory=set)  # of this round, since it is watched
    waits: str = ""
    silent: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    status: str = ""
    accuracy: dict[str, float] = field(default_factory=dict)
    shown: set[tuple[str, int]] = field(default_factory=set)
    fresh: dict[str, float] = field(default_factory=dict)

    def see(self, result: RunResult) -> Iterator[str]:
        """Add a result; what is new, in lines."""
        self.total = result.get("plan_length", self.total)
        self.cursor = result.get("cursor", sum(p["name"] != "join" for p in result["phases"]))
        self.waits = result.get("waits_for") or ""
        self.silent = silences(result)
        match = WAITS.fullmatch(self.waits)
        self.asked, self.awaited = (int(match[2]), set(match[3].split(", "))) if match else (None, set())
        self.heard = set()
        points = {p["client"]: p["accuracy"] for p in result["curve"] if p["client"] is not None}
        # Where there are means alone, the sites' last accuracies stand in their lines.
        self.accuracy |= points or {c["name"]: c["accuracy"] for c in result["clients"] if c["accuracy"] is not None}
        scores = scorings(result)
        for phase in result["phases"]:
            yield from self.close(phase, phase["name"], scores.get((phase["name"], phase["round"]), ""))
        yield from self.turn(result["status"], result.get("cause") or "")

    def event(self, event: Event) -> Iterator[str]:
        """Add an event; what is new, in lines."""
        kind, data = event["kind"], event["data"]
        if "client" in data:
            if kind in REPLIES and data["cursor"] == self.cursor:
                self.awaited.discard(data["client"])
                self.heard.add(data["client"])
                if "accuracy" in data.get("metrics", {}):
                    self.fresh[data["client"]] = self.accuracy[data["client"]] = data["metrics"]["accuracy"]
            line = happening(event)
            # A failed step has a line for the reply, and so none for its note.
            wrong = line.level != "info" and data.get("note") not in ANSWERED
            self.alarms = [f"{line.where}: {line.what}"] if wrong else []
            yield from self.alarms
        elif kind == "closed":
            self.cursor, self.asked, self.awaited, self.heard, self.waits = data["cursor"], data.get("asked"), set(), set(), ""
            yield from self.close(data, data["phase"], accuracies(self.fresh) if self.fresh else "")
        elif "cause" in data:
            yield from self.turn(kind, data["cause"])

    def close(self, closed: ClosedRound | EventData, phase: str, accuracy: str) -> Iterator[str]:
        """The line of a closed round, once. accuracy: in words; empty if nobody was scored."""
        number, replies = closed["round"], closed["replies"]
        if (phase, number) in self.shown:
            return
        self.shown.add((phase, number))
        self.last, self.fresh = f"{phase} {number}" if phase != "join" else "sites gathered", {}
        scores = f", accuracy {accuracy}" if accuracy else ""
        marks = "".join(f"; {word} {', '.join(names)}" for word, names in (closed.get("marks") or {}).items())
        found = cast(EventData, closed).get("best")
        best = f"; best so far, {found['value']:.3f} on validation rows" if found else ""
        yield f"{self.last}: {counted(replies, 'reply', 'replies')}{without(closed.get('without', {}))}{scores}{best}{marks}"

    def turn(self, status: str, cause: str) -> Iterator[str]:
        before, self.status = self.status, status
        if status != before and (status not in OPEN or before == "stalled"):
            yield f"{status}: {cause}" if cause else status


def silences(result: RunResult) -> list[str]:
    """Which of the sites that a run waits for are silent, and for how long, in lines."""
    lines = []
    for each in result.get("awaited", ()):
        silent = each["silent_seconds"]
        if silent is None:
            lines.append(f"{each['client']} has never enrolled")
        elif silent > SILENT_SECONDS:
            lines.append(f"{each['client']} has been silent for {duration(silent)}")
    return lines


def guesses(result: RunResult) -> list[str]:
    """Targets at which a run has ended no better than by guessing, in a line. The result's notes say it of sites with labels."""
    classes = cast(int, result["world"]["classes"])
    targets = ((each["name"], each["accuracy"]) for each in result["clients"] if each["role"] == Role.TARGET)
    named = [name for name, accuracy in targets if accuracy is not None and accuracy <= 1 / classes]
    if result["status"] != "completed" or not named:
        return []
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    return [f"No better than guessing one of {classes} classes at {', '.join(named[:SHOWN])}{more}. {ADVICE}"]


def scorings(result: RunResult) -> dict[tuple[str, int], str]:
    """The accuracies of each scoring in words, by phase and round."""
    points: defaultdict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    means: dict[tuple[str, int], str] = {}
    for point in result["curve"]:
        place = point["phase"], point["round"]
        if point["client"] is None:
            means[place] = f"{point['accuracy']:.3f} (mean of {counted(point.get('sites', 0), 'site')})"
        else:
            points[place][point["client"]] = point["accuracy"]
    return {place: accuracies(each) for place, each in points.items()} | means


def accuracies(points: Mapping[str, float]) -> str:
    """The mean, and each site's where there are few."""
    shown = [f"{name} {value:.3f}" for name, value in sorted(points.items())]
    each = ", ".join(shown) if len(shown) <= FEW else f"mean of {len(shown)} sites"
    return f"{sum(points.values()) / len(points):.3f} ({each})"


class Watcher:
    """Shows a run's progress for a block. bars: None: if stderr is a terminal; quiet: show nothing."""

    def __init__(self, bars: bool | None = None, quiet: bool = False) -> None:
        self.tally = Tally()
        self.quiet = quiet
        self._bars = (sys.stderr.isatty() if bars is None else bars) and not quiet
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._spoke = self._drawn = time.monotonic()
        self._began: tuple[float, int] | None = None  # when the bars were first drawn, and how many exchanges were closed then

    def __enter__(self) -> Watcher:
        if self._bars:
            self._progress = open_progress()
            self._tasks = {name: self._progress.add_task(name, total=None, note="") for name in ("rounds", "replies", "accuracy")}
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, result: RunResult) -> None:
        self._drawn = -math.inf
        self._show(self.tally.see(result))

    def event(self, event: Event) -> None:
        self._show(self.tally.event(event))

    def _show(self, lines: Iterator[str]) -> None:
        new = list(lines)
        if self._progress is not None:
            for line in self.tally.alarms:
                self._progress.console.print(clean(line), markup=False, highlight=False)
            self.tally.alarms = []
            if new or time.monotonic() - self._drawn > DRAWN_SECONDS:
                self._draw(self._progress)
            return
        if not new and self.tally.waits and time.monotonic() - self._spoke > QUIET_SECONDS:
            new = [self.tally.waits, *self.tally.silent]
        for line in [] if self.quiet else new:
            self._spoke = time.monotonic()
            warn(line)

    def _draw(self, progress: Progress) -> None:
        tally, width = self.tally, progress.console.width
        closed, self._drawn = max(tally.cursor, 0), time.monotonic()
        rounds = f"{closed} of {tally.total or '?'} {tally.last}{self._left(closed)}"
        progress.update(self._tasks["rounds"], total=tally.total, completed=closed, note=fitted(rounds, width))
        got = 0 if tally.asked is None else tally.asked - len(tally.awaited) if tally.awaited else len(tally.heard)
        count = f"{got} of {tally.asked}" if tally.asked and tally.status in OPEN else tally.status
        waits = f"{count}, waiting for {', '.join(sorted(tally.awaited))}" if tally.awaited else count
        progress.update(self._tasks["replies"], total=tally.asked, completed=got, note=fitted(waits, width))
        if tally.accuracy:
            mean = sum(tally.accuracy.values()) / len(tally.accuracy)
            progress.update(self._tasks["accuracy"], total=1.0, completed=mean, note=fitted(accuracies(tally.accuracy), width))

    def _left(self, closed: int) -> str:
        """About how long the rest takes, once that can be said."""
        self._began = began, before = self._began or (self._drawn, closed)
        if self.tally.total is None or not before < closed < self.tally.total:
            return ""
        return f", about {duration((self._drawn - began) / (closed - before) * (self.tally.total - closed))} left"


def fitted(note: str, width: int) -> str:
    """A bar's word on one line of a window this wide: it is cut, the bar is not."""
    room = max(width - BAR - len("accuracy") - 3, 1)
    text = clean(note)
    return text if len(text) <= room else f"{text[: room - 1]}…"


def open_progress() -> Progress:
    """Three bars with a word after each."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(BAR), TextColumn("{task.fields[note]}", markup=False))
    return Progress(*columns, console=Console(stderr=True))


def follow(client: Client, run: str, watcher: Watcher) -> RunResult:
    """Watch a run of a coordinator; its result when it and its reference have ended or stalled."""
    result = follow_one(client, run, watcher)
    if result["status"] == "completed" and result["reference"]:
        follow_one(client, result["reference"], Watcher(quiet=True), PATIENCE_SECONDS)
        result = poll(client, run, watcher)
    return result


def follow_one(client: Client, run: str, watcher: Watcher, patience: float = 0.0) -> RunResult:
    """Watch one run until it has ended or stalled. patience: none at the start of a watch, when an address may be wrong."""
    seen = 0
    for past in client.events(run, patience=patience):
        seen = past["seq"]
        if "client" in past["data"]:
            watcher.event(past)  # what went wrong at a site before you watched; all else stands in the result
    result, polled = poll(client, run, watcher), time.monotonic()
    events = client.follow(run, seen)
    while result["status"] in OPEN:
        event = next(events)
        if event is not None:
            watcher.event(event)
        if event is None or "cause" in event["data"] or time.monotonic() - polled > REST_SECONDS:
            result, polled = poll(client, run, watcher), time.monotonic()
    return result


def events_of(client: Client, run: str, follow: bool) -> Iterator[Event]:
    """A run's events so far; with `follow` also those that come, until it ends."""
    seen = 0
    for past in client.events(run):
        seen = past["seq"]
        yield past
    if not follow or client.run(run)["status"] in FINAL:
        yield from client.events(run, seen) if follow else ()
        return
    for event in client.follow(run, seen):
        if event is not None:
            yield event
        # None comes between two streams: the last stream ends with the run.
        if (event is None or event["kind"] in FINAL) and client.run(run, PATIENCE_SECONDS)["status"] in FINAL:
            return


def poll(client: Client, run: str, watcher: Watcher) -> RunResult:
    result = client.run(run, PATIENCE_SECONDS)
    watcher.show(result)
    return result
