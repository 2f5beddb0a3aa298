"""Trainer processes, one per run, ended when idle. Loads no torch."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tideline.core.errors import StepFailed
from tideline.core.run import Digest, RunId
from tideline.engine.pipe import Child, ChildDied
from tideline.engine.ports import Done, Job
from tideline.engine.rows import Files

TRIES = 3  # a step whose trainer died is run again, at most twice
PATIENCE_SECONDS = 1800.0  # a step that has ticked and then is silent for so long is hung


class Trainer:
    """One run's process and when it was last used."""

    def __init__(self, command: list[str]) -> None:
        self.child = Child(command)
        self.used = time.monotonic()
        self.busy = 0


class TrainerPool:
    """The port Pool over processes."""

    def __init__(
        self, vault: Path, data: Path, methods: str, device: str, idle: float = 60.0, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._command = [sys.executable, "-m", "tideline_agent.trainer", str(vault), str(data), methods, device]
        self._idle, self._patience = idle, patience
        self._trainers: dict[RunId, Trainer] = {}
        self._lock = threading.Lock()

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        trainer = self._take(job.run)
        try:
            return self._tried(trainer, job, tick)
        finally:
            with self._lock:
                trainer.busy -= 1
                trainer.used = time.monotonic()

    def _tried(self, trainer: Trainer, job: Job, tick: Callable[[float], None]) -> Done:
        """Run, and run again if the process died: memory is uncommitted, so nothing is done twice."""
        for left in reversed(range(TRIES)):
            watch = Patience(trainer.child, self._patience)
            try:
                return done_in(trainer.child.call("step", dataclasses.asdict(job), watch.heard(tick)))
            except ChildDied as error:
                if not left:
                    raise StepFailed(
                        f"The trainer died {TRIES} times during this step; the last time, {error.what}",
                        "Look for the kernel's out-of-memory messages and the trainer's own log at that site",
                    ) from None
            finally:
                watch.end()
        raise AssertionError("unreachable")

    def cancel(self, run: RunId) -> None:
        """End a run's trainer in the middle of its step."""
        with self._lock:
            trainer = self._trainers.get(run)
        if trainer is not None:
            trainer.child.kill()

    def sweep(self) -> None:
        """End trainers that have been idle for long."""
        now = time.monotonic()
        with self._lock:
            idle = [run for run, t in self._trainers.items() if not t.busy and now - t.used > self._idle]
            gone = [self._trainers.pop(run) for run in idle]
        for trainer in gone:
            trainer.child.close()

    def close(self) -> None:
        """End every trainer."""
        with self._lock:
            gone, self._trainers = list(self._trainers.values()), {}
        for trainer in gone:
            trainer.child.kill()
            trainer.child.close()

    def pids(self) -> dict[RunId, int]:
        """The living trainers, for people and tests."""
        with self._lock:
            return {run: pid for run, t in self._trainers.items() if (pid := t.child.pid) is not None}

    def _take(self, run: RunId) -> Trainer:
        with self._lock:
            trainer = self._trainers.setdefault(run, Trainer(self._command))
            trainer.busy += 1
            return trainer


class Patience:
    """Ends a trainer whose step ticked once and then fell silent. Steps that never tick are left alone."""

    def __init__(self, child: Child, seconds: float) -> None:
        self._child, self._seconds = child, seconds
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def heard(self, tick: Callable[[float], None]) -> Callable[[float], None]:
        """The tick, noting that the step lives."""

        def noted(share: float) -> None:
            self._restart()
            tick(share)

        return noted

    def end(self) -> None:
        """The step is over."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()

    def _restart(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(self._seconds, self._child.end_hung)
            self._timer.daemon = True
            self._timer.start()


def done_in(raw: dict[str, Any]) -> Done:
    """A finished step from plain data."""
    return Done(files_in(raw["message"]), files_in(raw["memory"]), raw["metrics"], raw["facts"])


def files_in(raw: list[Any]) -> Files:
    """Files from plain data."""
    return tuple((Digest(digest), int(size)) for digest, size in raw)
