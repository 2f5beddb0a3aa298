"""Running the cells of a grid: each by a child process, some at once, and what is done stays done.

A cell's folder holds its experiment, its result and its log. A child holds a lock on it, which ends with the child whatever
happens to its parent: so no cell is ever run by two processes, and what an orphan finishes is not run again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tideline.bench.grid import Cell
from tideline.bench.scores import EXPERIMENT, FAILED, RESULT, Score, Status, json_of, read_cell
from tideline.cli.guard import clean
from tideline.cli.local.demo import STOP_SECONDS, terminable, unbroken
from tideline.core.errors import Refused
from tideline.engine.coordinator.scheduler import duration

CELLS, LOCK, LOG, STATE = "cells", "lock", "log.txt", "state.safetensors"
POLL_SECONDS, STATUS_SECONDS = 0.05, 60.0
CHANGED = "the data have changed since the command began; give it again"
SAID = 400  # characters of what a child said last


@dataclass(frozen=True)
class How:
    """How cells are run: in which folder, how many at once, with which options, and whether final states are kept.

    `same_data`: whether the data are still those that the cells' experiments name.
    """

    out: Path
    jobs: int
    options: tuple[str, ...]
    keep_states: bool
    same_data: Callable[[], bool]


@dataclass(frozen=True)
class Running:
    """A cell's child process; `lock` is the file that it holds."""

    cell: Cell
    process: subprocess.Popen[bytes]
    lock: int
    begun: float


@dataclass
class Bench:
    """The cells that are left, those that run, and what is known of all."""

    how: How
    say: Callable[[str], None]
    scores: dict[str, Score]
    todo: list[Cell]
    running: list[Running] = field(default_factory=list)
    taken: dict[str, list[float]] = field(default_factory=dict)
    spoke: float = 0.0

    def play(self) -> None:
        """Run what is left. However this ends, no child is left."""
        try:
            while self.todo or self.running:
                self.fill()
                self.reap()
                self.tell()
                time.sleep(POLL_SECONDS)
        finally:
            with unbroken():  # a second Ctrl-C while children stop must not leave them behind
                self.stop()

    def fill(self) -> None:
        """Start cells while there is room. One that another process works on is looked at again later."""
        for cell in tuple(self.todo):
            if len(self.running) == self.how.jobs:
                return
            with unbroken():
                self.begin(cell)

    def begin(self, cell: Cell) -> None:
        """Start one cell, unless it is taken, or done by now."""
        home = home_of(self.how.out, cell)
        lock = locked(home / LOCK)
        if lock is None:
            return
        self.todo.remove(cell)
        if read_cell(home, cell).status is Status.DONE:
            self.end(cell, lock, None)
            return
        prepare(home, cell)
        self.running.append(Running(cell, child(home, self.how.options, lock), lock, time.monotonic()))

    def reap(self) -> None:
        """Take in the cells whose children have ended."""
        for each in tuple(self.running):
            if each.process.poll() is not None:
                self.running.remove(each)
                self.taken.setdefault(each.cell.label, []).append(time.monotonic() - each.begun)
                self.end(each.cell, each.lock, each.process.returncode)

    def end(self, cell: Cell, lock: int, code: int | None) -> None:
        """Note what a cell has come to; `code`: that of its child."""
        home = home_of(self.how.out, cell)
        score = read_cell(home, cell)
        if score.status is Status.DONE and not self.how.same_data():
            (home / RESULT).unlink()
            score = Score(cell, Status.FAILED, CHANGED)
        elif score.status is not Status.DONE:
            score = Score(cell, Status.FAILED, cause_of(home, code))
        if score.status is Status.DONE:
            (home / FAILED).unlink(missing_ok=True)
            if not self.how.keep_states:
                (home / STATE).unlink(missing_ok=True)
        else:
            (home / FAILED).write_text(json.dumps({"code": code, "cause": score.cause}) + "\n", encoding="utf-8")
        os.close(lock)
        self.scores[cell.key] = score
        self.say(f"[{self.ended()}/{len(self.scores)}] {line_of(score)}; {self.ahead()}")
        self.spoke = time.monotonic()

    def tell(self) -> None:
        """From time to time, how far all is."""
        if time.monotonic() - self.spoke > STATUS_SECONDS:
            self.spoke = time.monotonic()
            names = "; ".join(each.cell.words() for each in self.running) or "nothing here; another process works on what is left"
            self.say(f"[{self.ended()}/{len(self.scores)}] {self.ahead()}; at work: {names}")

    def ended(self) -> int:
        """How many cells have come to an end, good or bad."""
        left = {each.key for each in self.todo} | {each.cell.key for each in self.running}
        return len(self.scores) - len(left)

    def ahead(self) -> str:
        """How many run, and how long it will take."""
        left = self.seconds_left()
        return f"{len(self.running)} running, {len(self.todo)} to go" + (f", about {duration(left)} left" if left else "")

    def seconds_left(self) -> float | None:
        """From how long finished cells took, those of the same method where there are any; None before one has."""
        if not self.taken:
            return None
        usual = statistics.fmean(value for values in self.taken.values() for value in values)
        mean = {label: statistics.fmean(values) for label, values in self.taken.items()}
        now = time.monotonic()
        work = sum(mean.get(cell.label, usual) for cell in self.todo)
        work += sum(max(mean.get(each.cell.label, usual) - (now - each.begun), 0.0) for each in self.running)
        return work / self.how.jobs

    def stop(self) -> None:
        """Ask the children to end, wait, then end them. What they worked on is begun again another time."""
        for each in self.running:
            each.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        for each in self.running:
            try:
                each.process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()
            os.close(each.lock)
        self.running.clear()


def run_cells(cells: Sequence[Cell], how: How, say: Callable[[str], None]) -> list[Score]:
    """Run every cell that is not done; what all have come to, in their order. Raises Refused where another bench is at work."""
    with alone(how.out), terminable():
        scores = {cell.key: read_cell(home_of(how.out, cell), cell) for cell in cells}
        todo = [cell for cell in cells if scores[cell.key].status is not Status.DONE]
        say(f"{len(cells)} cells, {len(cells) - len(todo)} done, {len(todo)} to run, {how.jobs} at once")
        bench = Bench(how, say, scores, todo, spoke=time.monotonic())
        bench.play()
        return list(bench.scores.values())


def home_of(out: Path, cell: Cell) -> Path:
    """A cell's folder."""
    return out / CELLS / cell.key


@contextlib.contextmanager
def alone(out: Path) -> Iterator[None]:
    """One bench at a time works in a folder. Raises Refused."""
    out.mkdir(parents=True, exist_ok=True)
    lock = locked(out / LOCK)
    if lock is None:
        raise Refused(f"Another bench works in {out}", "Wait for it, look at it with --table, or give another --out")
    try:
        yield
    finally:
        os.close(lock)


def locked(path: Path) -> int | None:
    """An open file that nobody else holds, or None where somebody does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def prepare(home: Path, cell: Cell) -> None:
    """A folder with the experiment and nothing of an earlier try."""
    for name in (RESULT, FAILED, STATE):
        (home / name).unlink(missing_ok=True)
    made = home / f".{EXPERIMENT}"
    made.write_bytes(cell.text.encode())
    made.replace(home / EXPERIMENT)


def child(home: Path, options: Sequence[str], lock: int) -> subprocess.Popen[bytes]:
    """`tideline simulate` on a cell's experiment. It inherits the lock, and hears no Ctrl-C of its parent's."""
    command = [sys.executable, "-m", "tideline", "simulate", str(home / EXPERIMENT), "--out", str(home), *options]
    env = {"OMP_NUM_THREADS": "1", **os.environ}
    with (home / LOG).open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=(lock,), env=env
        )


def cause_of(home: Path, code: int | None) -> str:
    """Why a cell has failed: as its run says, or else as its process said last."""
    result = json_of(home / RESULT)
    if result is not None:
        return clean(f"{result.get('status')}: {result.get('cause')}")
    said = (home / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines() if (home / LOG).exists() else []
    errors = [line for line in said if line.startswith("Error: ")] or said
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return clean((errors[-1] if errors else "it said nothing")[:SAID]) + f" (exit code {code})"


def line_of(score: Score) -> str:
    """A cell that has ended, in a line."""
    if score.status is not Status.DONE:
        return f"{score.cell.words()}: failed, {score.cause}"
    told = [f"{name} {value:.3f}" for name, value in (("id", score.id), ("ood", score.ood)) if value is not None]
    return f"{score.cell.words()}: {', '.join([*told, f'{score.seconds:.0f} s'])}"
