"""Run the cells of a grid, each in a child process or as a task elsewhere, some at once. A cell that is done is not run again.

A cell's folder contains its experiment, its result and its log. A child has a lock on it, which ends with the child whatever
happens to its parent: so no two processes run the same cell, and what an orphan finishes is not run again.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tideline.bench.grid import Cell
from tideline.bench.processes import start, stop_all, terminable, unbroken
from tideline.bench.scores import EXPERIMENT, FAILED, RESULT, Score, Status, json_of, read_cell
from tideline.client.output import clean, replace_file
from tideline.core.errors import Refused
from tideline.engine.coordinator.scheduler import duration

CELLS, LOCK, LOG = "cells", "lock", "log.txt"
STATES = "*.safetensors"  # a final state, and the models in it
POLL_SECONDS, STATUS_SECONDS = 0.05, 60.0
CHANGED = "the data have changed since the command began; run it again"
LONGEST = 400  # characters of a child's last line


class Work(Protocol):
    """A cell that has begun."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, once it has ended and `poll` has seen so."""

    def poll(self) -> int | None: ...


W = TypeVar("W", bound=Work)


class Workplace(Protocol[W]):
    """Where cells run."""

    def begin(self, cell: Cell, home: Path, lock: int) -> W:
        """Begin a cell, whose experiment lies in its home, where its result and its log will lie."""

    def stop(self, works: Sequence[W]) -> None:
        """End cells that have begun, and wait for that."""


@dataclass(frozen=True)
class Children:
    """Each cell in a child process, `tideline simulate` with these options. The child inherits the lock."""

    options: tuple[str, ...]

    def begin(self, cell: Cell, home: Path, lock: int) -> subprocess.Popen[bytes]:
        args = ("simulate", str(home / EXPERIMENT), "--out", str(home), *self.options)
        return start(args, home / LOG, {"OMP_NUM_THREADS": "1", **os.environ}, pass_fds=(lock,))

    def stop(self, works: Sequence[subprocess.Popen[bytes]]) -> None:
        stop_all(works)


@dataclass(frozen=True)
class How(Generic[W]):
    """How to run cells: in which folder, how many at once, where, and whether to store final states.

    same_data: whether the data are still those that the cells' experiments name.
    """

    out: Path
    jobs: int
    workplace: Workplace[W]
    keep_states: bool
    same_data: Callable[[], bool]


@dataclass(frozen=True)
class Running(Generic[W]):
    """A cell at work, and the descriptor of its lock."""

    cell: Cell
    work: W
    lock: int
    begun: float


@dataclass
class Bench(Generic[W]):
    """The cells that are left, those that run, and the scores of all."""

    how: How[W]
    say: Callable[[str], None]
    scores: dict[str, Score]
    todo: list[Cell]
    running: list[Running[W]] = field(default_factory=list)
    taken: dict[str, list[float]] = field(default_factory=dict)
    spoke: float = 0.0

    def run(self) -> None:
        """Run the cells that are left. However this ends, no child is left."""
        try:
            while self.todo or self.running:
                self.fill()
                self.reap()
                self.report()
                time.sleep(POLL_SECONDS)
        finally:
            with unbroken():  # a second Ctrl-C while children stop must not leave them behind
                self.how.workplace.stop([each.work for each in self.running])
                for each in self.running:
                    os.close(each.lock)
                self.running.clear()

    def fill(self) -> None:
        """Start cells while there is room. A cell that another process runs is tried again later."""
        for cell in tuple(self.todo):
            if len(self.running) < self.how.jobs:
                with unbroken():
                    self.begin(cell)

    def begin(self, cell: Cell) -> None:
        """Start one cell, unless it is taken, or done by now."""
        home = home_of(self.how.out, cell)
        if (lock := locked(home / LOCK)) is None:
            return
        self.todo.remove(cell)
        if read_cell(home, cell).status is Status.DONE:
            self.end(cell, lock, None)
            return
        for name in (RESULT, FAILED):  # of an earlier try
            (home / name).unlink(missing_ok=True)
        forget_states(home)
        replace_file(home / EXPERIMENT, cell.text)
        self.running.append(Running(cell, self.how.workplace.begin(cell, home, lock), lock, time.monotonic()))

    def reap(self) -> None:
        """Collect the cells whose children have ended."""
        for each in tuple(self.running):
            if each.work.poll() is not None:
                self.running.remove(each)
                self.taken.setdefault(each.cell.label, []).append(time.monotonic() - each.begun)
                self.end(each.cell, each.lock, each.work.returncode)

    def end(self, cell: Cell, lock: int, code: int | None) -> None:
        """Record a cell's score. code: its child's."""
        home = home_of(self.how.out, cell)
        score = read_cell(home, cell)
        if score.status is not Status.DONE:
            score = Score(cell, Status.FAILED, cause_of(home, code))
        elif not self.how.same_data():
            (home / RESULT).unlink()
            score = Score(cell, Status.FAILED, CHANGED)
        if score.status is Status.DONE:
            (home / FAILED).unlink(missing_ok=True)
            if not self.how.keep_states:
                forget_states(home)
        else:
            (home / FAILED).write_text(json.dumps({"code": code, "cause": score.cause}) + "\n", encoding="utf-8")
        os.close(lock)
        self.scores[cell.key] = score
        self.count(f"{line_of(score)}; {self.ahead()}")

    def report(self) -> None:
        if time.monotonic() - self.spoke > STATUS_SECONDS:
            names = "; ".join(each.cell.words() for each in self.running) or "none here; another process runs the rest"
            self.count(f"{self.ahead()}; at work: {names}")

    def count(self, words: str) -> None:
        """Say something after how many cells are done or have failed."""
        self.say(f"[{len(self.scores) - len(self.todo) - len(self.running)}/{len(self.scores)}] {words}")
        self.spoke = time.monotonic()

    def ahead(self) -> str:
        """How many run, and how long it will take."""
        left = self.seconds_left()
        return f"{len(self.running)} running, {len(self.todo)} to go" + (f", about {duration(left)} left" if left else "")

    def seconds_left(self) -> float | None:
        """From how long finished cells took, those of the same method where there are any; None before one has."""
        if not self.taken:
            return None
        usual, now = statistics.fmean(itertools.chain(*self.taken.values())), time.monotonic()
        mean = {label: statistics.fmean(values) for label, values in self.taken.items()}
        work = sum(mean.get(cell.label, usual) for cell in self.todo)
        work += sum(max(mean.get(each.cell.label, usual) - (now - each.begun), 0.0) for each in self.running)
        return work / self.how.jobs


def run_cells(cells: Sequence[Cell], how: How[W], say: Callable[[str], None]) -> list[Score]:
    """Run every cell that is not done; the scores of all, in their order. Raises Refused if another bench runs there."""
    with alone(how.out), terminable():
        scores = {cell.key: read_cell(home_of(how.out, cell), cell) for cell in cells}
        todo = [cell for cell in cells if scores[cell.key].status is not Status.DONE]
        say(f"{len(cells)} cells, {len(cells) - len(todo)} done, {len(todo)} to run, {how.jobs} at once")
        Bench(how, say, scores, todo, spoke=time.monotonic()).run()
        return list(scores.values())


def forget_states(home: Path) -> None:
    for file in home.glob(STATES):
        file.unlink(missing_ok=True)


def home_of(out: Path, cell: Cell) -> Path:
    return out / CELLS / cell.key


@contextlib.contextmanager
def alone(out: Path) -> Iterator[None]:
    """Let one bench at a time run in a folder. Raises Refused."""
    out.mkdir(parents=True, exist_ok=True)
    if (lock := locked(out / LOCK)) is None:
        raise Refused(f"Another bench runs in {out}", "Wait for it, see its tables with --table, or give another --out")
    try:
        yield
    finally:
        os.close(lock)


def locked(path: Path) -> int | None:
    """The descriptor of a file that is now locked; None if another process has the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def cause_of(home: Path, code: int | None) -> str:
    """Why a cell has failed: its run's cause, or the last error of its process."""
    if (result := json_of(home / RESULT)) is not None:
        return clean(f"{result.get('status')}: {result.get('cause')}")
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    lines = (home / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines() if (home / LOG).exists() else []
    errors = [line for line in lines if line.startswith("Error: ")] or lines or ["no output"]
    return clean(errors[-1][:LONGEST]) + f" (exit code {code})"


def line_of(score: Score) -> str:
    if score.status is not Status.DONE:
        return f"{score.cell.words()}: failed, {score.cause}"
    shares = [f"{name} {value:.3f}" for name, value in (("id", score.id), ("ood", score.ood)) if value is not None]
    return f"{score.cell.words()}: {', '.join([*shares, f'{score.seconds:.0f} s'])}"
