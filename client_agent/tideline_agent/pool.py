"""Trainer processes: an idle one is used again, by any run; more are started only while all are busy. Loads no torch.

One lives as long as a run is open that it has worked for: it has opened the site's data.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import structlog

from tideline.core.asked.computing import GPU_MEMORY
from tideline.core.errors import Cancelled, StepFailed
from tideline.core.run import RunId
from tideline.core.settings import EMPTY, Plain, plain
from tideline.engine.ports.site import Done, Job
from tideline.engine.process.environment import DATABASE, without_secrets
from tideline.engine.process.pipe import Child, ChildDied, done_in
from tideline.learning.cache.folder import HALF
from tideline.learning.sites.named import place_in
from tideline_agent.notes import Witness
from tideline_agent.settings import AgentSettings
from tideline_agent.vault import FolderVault

log = structlog.get_logger()
CHECK = "check"  # the call that loads methods and networks, and runs nothing
ABLE = "private_methods"  # the call that loads methods, and says which can protect rows
AUTO = "auto"  # for the number of workers: the trainer finds it
NOBODYS = RunId("")
SPAWN_AFTER_SECONDS = 10.0  # how long a run waits for another's trainer before it gets one of its own
TRIES = 3  # a step whose trainer died is run again, at most twice
# A run of which nothing was heard for so long counts as over, where the coordinator cannot be asked, or is too old to tell.
OPEN_SECONDS = 6 * 3600.0
SILENT = -1.0  # a tick that says: what ticked so far is over, and what comes may be silent
PATIENCE_SECONDS = 1800.0  # a step that has ticked and then is silent for so long is hung


class Trainer:
    """One process: the run that it works for, if any, when it was last used, and when its step last ticked, if it did.

    runs: all that it has worked for.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self.child = Child(command, environment)
        self.used = time.monotonic()
        self.run: RunId | None = None
        self.runs: set[RunId] = set()
        self.ticked: float | None = None

    def heard(self, tick: Callable[[float], None]) -> Callable[[float], None]:
        """The tick, noting that the step lives."""

        def noted(share: float) -> None:
            self.ticked = None if share == SILENT else time.monotonic()
            tick(share)

        return noted


class TrainerPool:
    """The port Pool over processes."""

    def __init__(
        self,
        vault: Path,
        data: Path,
        methods: str,
        device: str,
        idle: float = 60.0,
        patience: float = PATIENCE_SECONDS,
        died: Callable[[RunId, int], None] = lambda run, tries_left: None,
        networks: tuple[str, ...] = (),
        rows_cache: str = HALF,
        uncached: Callable[[RunId, int], None] = lambda run, rows: None,
        workers: int | None = None,
        environment: Mapping[str, str] = EMPTY,
    ) -> None:
        """uncached: told of rows that found no room in the cache, whose size is `rows_cache`. workers: threads that read ahead.

        environment: what its processes are told beside what this one knows.
        """
        self._died, self._idle, self._patience, self._uncached = died, idle, patience, uncached
        program = [sys.executable, "-m", "tideline_agent.trainer"]
        ahead = AUTO if workers is None else str(workers)
        self._command = [*program, str(vault), str(data), methods, device, rows_cache, ahead, *networks]
        # A function of the owner may open the site's own database: then it needs to know where that is.
        self._environment = {**without_secrets(os.environ, *(DATABASE if place_in(data) is None else ())), **environment}
        self._trainers: list[Trainer] = []
        self._open: dict[RunId, float] = {}
        self._freed = threading.Condition()
        self._closed = False

    def check(self) -> None:
        """Start a trainer ahead of the first step. Raises ConfigRefused for methods and networks that it cannot load."""
        self._call(CHECK)

    def private_methods(self) -> tuple[str, ...]:
        """The names of the methods that can protect rows. A trainer loads them."""
        found = self._call(ABLE)[ABLE]
        return tuple(map(str, found)) if isinstance(found, list) else ()

    def _call(self, name: str) -> Mapping[str, Plain]:
        trainer = self._take(NOBODYS)
        try:
            return trainer.child.call(name, {})
        finally:
            with self._freed:
                trainer.run, trainer.used = None, time.monotonic()
                self._freed.notify()

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        trainer, ends = self._take(job.run), False
        try:
            done = self._tried(trainer, job, tick)
            ends = done.ends
            if done.uncached:
                self._uncached(job.run, done.uncached)
            return done
        finally:
            with self._freed:
                trainer.run, trainer.ticked, trainer.used = None, None, time.monotonic()
                self._heard(job.run, ends)
                self._freed.notify()

    def _heard(self, run: RunId, ends: bool = False) -> None:
        """Note that a run is open, or that it is over here. With the lock held."""
        self._open.pop(run, None)
        if not ends:
            self._open[run] = time.monotonic()

    def _serves(self, trainer: Trainer, now: float) -> bool:
        """Whether a trainer has worked for a run that is open. With the lock held."""
        return any(now - self._open.get(run, -math.inf) < OPEN_SECONDS for run in trainer.runs)

    def _tried(self, trainer: Trainer, job: Job, tick: Callable[[float], None]) -> Done:
        """Run, and run again if the process died: memory is uncommitted, so nothing is done twice."""
        for left in reversed(range(TRIES)):
            trainer.ticked = None
            try:
                return done_in(trainer.child.call("step", plain(job), trainer.heard(tick)))
            except ChildDied as error:
                log.warning("trainer_died", run=job.run, round=job.round, reason=error.what, tries_left=left)
                self._died(job.run, left)
                if not left:
                    what = f"The trainer died {TRIES} times during this step; the last time, {error.what}"
                    todo = "Look for the kernel's out-of-memory messages and the trainer's own log at that site"
                    raise StepFailed(what, todo) from None
        raise AssertionError("unreachable")

    def cancel(self, run: RunId) -> None:
        """End the trainers that work for a run, in the middle of their steps."""
        with self._freed:  # so that none is given to another run meanwhile
            self._heard(run, ends=True)
            for trainer in self._trainers:
                if trainer.run == run:
                    trainer.child.kill()

    def quiet(self) -> tuple[RunId, ...]:
        """Runs that idle trainers wait for, and of which nothing was heard as long as an idle one waits; the quietest first."""
        now = time.monotonic()
        with self._freed:
            working = {t.run for t in self._trainers}
            heard = [(at, run) for run, at in self._open.items() if now - at > self._idle and run not in working]
        return tuple(run for _, run in sorted(heard))

    def end(self, runs: Iterable[RunId]) -> None:
        """These runs are over: the next `sweep` ends idle trainers that wait for no other. A step that came meanwhile stays."""
        with self._freed:
            working = {t.run for t in self._trainers}
            for run in runs:
                if run not in working:
                    self._open.pop(run, None)

    def sweep(self) -> None:
        """End trainers that were idle for long and have no open run, and those whose step ticked once and then fell silent."""
        now = time.monotonic()
        with self._freed:
            for trainer in self._trainers:
                if trainer.ticked is not None and now - trainer.ticked > self._patience:
                    trainer.child.end_hung()
            self._open = {run: heard for run, heard in self._open.items() if now - heard < OPEN_SECONDS}
            idle = [t for t in self._trainers if t.run is None and now - t.used > self._idle]
            gone = [t for t in idle if not self._serves(t, now)]
            self._trainers = [t for t in self._trainers if t not in gone]
        for trainer in gone:
            trainer.child.close()

    def close(self) -> None:
        """End every trainer; who waits for one is sent away."""
        with self._freed:
            self._closed = True
            gone, self._trainers = self._trainers, []
            self._freed.notify_all()
        for trainer in gone:
            trainer.child.close()

    def _take(self, run: RunId) -> Trainer:
        """An idle trainer, by choice one that has worked for the run; or, if none is free after a short wait (a start costs
        seconds and memory), another one.
        """
        with self._freed:
            if self._trainers and not self._idle_ones():
                self._freed.wait_for(lambda: self._closed or self._idle_ones(), SPAWN_AFTER_SECONDS)
            if self._closed:
                raise Cancelled("The agent is stopping")
            now, idle = time.monotonic(), self._idle_ones()
            trainer = min(idle, key=lambda t: (run not in t.runs, self._serves(t, now)), default=None)
            if trainer is None:
                trainer = Trainer(self._command, self._environment)
                self._trainers.append(trainer)
            trainer.run = run
            if run != NOBODYS:
                trainer.runs.add(run)
                self._heard(run)
            return trainer

    def _idle_ones(self) -> list[Trainer]:
        return [t for t in self._trainers if t.run is None]


def pool_of(settings: AgentSettings, vault: FolderVault, witness: Witness) -> TrainerPool:
    """The processes that run steps."""
    command = (vault.folder, settings.data, settings.methods, settings.device)
    return TrainerPool(
        *command,
        settings.trainer_idle,
        died=witness.died,
        networks=settings.networks,
        rows_cache=settings.rows_cache,
        uncached=witness.uncached,
        workers=settings.workers,
        environment={GPU_MEMORY: repr(settings.memory_share)},
    )
