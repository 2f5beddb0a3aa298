"""Progress for people, on stderr: bars on a terminal, a line per closed round elsewhere.

with Watcher() as watcher:
    watcher.show(result)     what engine.result gives, as often as you like
    watcher.event(event)     and, between results, a run's events
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import typer

from tideline.cli.guard import clean
from tideline.client.events import ANSWERED, happening
from tideline.engine.coordinator.scheduler import duration
from tideline.engine.peers.relay import without

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# What engine.progress.waits_for writes.
WAITS = re.compile(r"waiting for (\d+) of (\d+) sites \((.*)\); gives up in .*")
REPLIES = ("answered", "failed")
BAR = 16  # characters of a bar
# A wait is told in a line of its own when nothing else was told for so long.
QUIET_SECONDS = 10.0
# When a site was heard is written down every half minute.
SILENT_SECONDS = 60.0


@dataclass
class Tally:
    """What is known of a run, from results and events, in whichever order they come."""

    total: int | None = None
    cursor: int = -1
    last: str = ""
    asked: int | None = None
    awaited: set[str] = field(default_factory=set)
    waits: str = ""
    silent: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    status: str = ""
    accuracy: dict[str, float] = field(default_factory=dict)
    told: set[tuple[str, int]] = field(default_factory=set)
    fresh: dict[str, float] = field(default_factory=dict)

    def see(self, result: Mapping[str, Any]) -> Iterator[str]:
        """Take a result in; what is new, in lines."""
        self.total = result.get("plan_length", self.total)
        self.cursor = result.get("cursor", sum(p["name"] != "join" for p in result["phases"]))
        self.waits = result.get("waits_for") or ""
        self.silent = silences(result)
        found = WAITS.fullmatch(self.waits)
        self.asked = int(found[2]) if found else None
        self.awaited = set(found[3].split(", ")) if found else set()
        for point in result["curve"]:
            self.accuracy[point["client"]] = point["accuracy"]
        for phase in result["phases"]:
            points = {p["client"]: p["accuracy"] for p in result["curve"] if place(p["phase"], p["round"]) == phase_of(phase)}
            yield from self.close(phase, phase["name"], points)
        yield from self.turn(result["status"], result.get("cause") or "")

    def event(self, event: Mapping[str, Any]) -> Iterator[str]:
        """Take an event in; what is new, in lines."""
        kind, data = event["kind"], event["data"]
        if "client" in data:
            self.reply(kind, data)
            self.alarms = list(alarm(event))
            yield from self.alarms
        elif kind == "closed":
            self.cursor, self.asked, self.awaited, self.waits = data["cursor"], None, set(), ""
            yield from self.close(data, data["phase"], self.fresh)
        elif "cause" in data:
            yield from self.turn(kind, data["cause"])

    def reply(self, kind: str, data: Mapping[str, Any]) -> None:
        """A site answered, or failed."""
        if kind not in REPLIES or data["cursor"] != self.cursor:
            return
        self.awaited.discard(data["client"])
        if "accuracy" in data.get("metrics", {}):
            self.fresh[data["client"]] = self.accuracy[data["client"]] = data["metrics"]["accuracy"]

    def close(self, closed: Mapping[str, Any], phase: str, points: Mapping[str, float]) -> Iterator[str]:
        """A round is closed: told once."""
        number, replies = closed["round"], closed["replies"]
        if place(phase, number) in self.told:
            return
        self.told.add(place(phase, number))
        self.last = f"{phase} {number}" if phase != "join" else "sites gathered"
        scores = f", accuracy {accuracies(points)}" if points else ""
        marks = "".join(f"; {word} {', '.join(names)}" for word, names in (closed.get("marks") or {}).items())
        left = without(closed.get("without") or {})
        yield f"{self.last}: {replies} {'reply' if replies == 1 else 'replies'}{left}{scores}{marks}"
        self.fresh = {}

    def turn(self, status: str, cause: str) -> Iterator[str]:
        """The run's status changed."""
        if status == self.status:
            return
        before, self.status = self.status, status
        if status not in ("waiting", "running") or before == "stalled":
            yield f"{status}: {cause}" if cause else status


def silences(result: Mapping[str, Any]) -> list[str]:
    """Which of the sites that a run waits for are silent, and for how long, in lines. One that works is heard all the time."""
    lines = []
    for each in result.get("awaited", ()):
        silent = each["silent_seconds"]
        if silent is None:
            lines.append(f"{each['client']} has never enrolled")
        elif silent > SILENT_SECONDS:
            lines.append(f"{each['client']} has been silent for {duration(silent)}")
    return lines


def alarm(event: Mapping[str, Any]) -> Iterator[str]:
    """A line, if something went wrong at a site. A step that failed is told by the answer, and so not by its note."""
    told = happening(event)
    if told.level != "info" and event["data"].get("note") not in ANSWERED:
        yield f"{told.where}: {told.what}"


def place(phase: str, number: int) -> tuple[str, int]:
    """A round's name."""
    return phase, number


def phase_of(phase: Mapping[str, Any]) -> tuple[str, int]:
    """A closed round's name."""
    return phase["name"], phase["round"]


def accuracies(points: Mapping[str, float]) -> str:
    """The mean, then each site."""
    mean = sum(points.values()) / len(points)
    return f"{mean:.3f} ({', '.join(f'{name} {value:.3f}' for name, value in sorted(points.items()))})"


class Watcher:
    """Draws a run's progress until it is left. `bars`: None asks whether stderr is a terminal; `quiet`: nothing is drawn."""

    def __init__(self, bars: bool | None = None, quiet: bool = False) -> None:
        self.tally = Tally()
        self.quiet = quiet
        self._bars = (sys.stderr.isatty() if bars is None else bars) and not quiet
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._spoke = time.monotonic()

    def __enter__(self) -> Watcher:
        if self._bars:
            self._progress = open_progress()
            self._tasks = {name: self._progress.add_task(name, total=None, note="") for name in ("rounds", "replies", "accuracy")}
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, result: Mapping[str, Any]) -> None:
        """Show a result, or as much as there is of it."""
        self._tell(self.tally.see(result))

    def event(self, event: Mapping[str, Any]) -> None:
        """Show an event."""
        self._tell(self.tally.event(event))

    def _tell(self, lines: Iterator[str]) -> None:
        new = list(lines)
        if self._progress is not None:
            for line in self.tally.alarms:
                self._progress.console.print(clean(line), markup=False, highlight=False)
            self.tally.alarms = []
            self._draw(self._progress)
            return
        if not new and self.tally.waits and time.monotonic() - self._spoke > QUIET_SECONDS:
            new = [self.tally.waits, *self.tally.silent]
        for line in [] if self.quiet else new:
            self._spoke = time.monotonic()
            typer.echo(clean(line), err=True)

    def _draw(self, progress: Progress) -> None:
        tally, width = self.tally, progress.console.width
        closed = max(tally.cursor, 0)
        rounds = f"{closed} of {tally.total or '?'} {tally.last}"
        progress.update(self._tasks["rounds"], total=tally.total, completed=closed, note=fitted(rounds, width))
        got = 0 if tally.asked is None else tally.asked - len(tally.awaited)
        waits = f"{got} of {tally.asked}, waiting for {', '.join(sorted(tally.awaited))}" if tally.awaited else tally.status
        progress.update(self._tasks["replies"], total=tally.asked, completed=got, note=fitted(waits, width))
        if tally.accuracy:
            mean = sum(tally.accuracy.values()) / len(tally.accuracy)
            progress.update(self._tasks["accuracy"], total=1.0, completed=mean, note=fitted(accuracies(tally.accuracy), width))


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
