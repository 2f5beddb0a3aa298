"""Keeps a conductor's eye on every open run: woken by the bell, or when a deadline passes."""

from __future__ import annotations

import asyncio

import structlog

from tideline.core.errors import FederationError, StorageFull, Unreachable
from tideline.core.run import RunId
from tideline.engine.conductor import Conductor
from tideline.engine.rows import OPEN
from tideline_server.bell import LocalBell

log = structlog.get_logger()
HELD_UP_SECONDS = 10.0
LONGEST_WAIT = 60.0  # seconds; a bell may be lost, so every run is looked at this often


class Conducting:
    """One task per open run. The kernel's calls block, so they run on threads."""

    def __init__(self, conductor: Conductor, bell: LocalBell) -> None:
        self.conductor, self.bell = conductor, bell
        self._tasks: dict[RunId, asyncio.Task[None]] = {}
        self._held: dict[RunId, str] = {}  # runs that are held up, and why
        self._stopped = False

    async def start(self) -> None:
        """Take up every open run, and from now on each that moves."""
        self.bell.on_ring(self.heard)
        for run in await asyncio.to_thread(self.conductor.journal.runs):
            if run.status in OPEN:
                self.take(run.id)

    def heard(self, topic: str) -> None:
        """A run rang: somebody must look at it."""
        kind, _, name = topic.partition(":")
        if kind == "run":
            self.take(RunId(name))

    def take(self, run: RunId) -> None:
        """See that a task looks at the run."""
        if run not in self._tasks and not self._stopped:
            self._tasks[run] = asyncio.create_task(self.conduct(run))

    async def conduct(self, run: RunId) -> None:
        """Look, wait, look again, until the run is not open."""
        topic = f"run:{run}"
        while True:
            seen = self.bell.count(topic)
            at = await asyncio.to_thread(self.turn, run)
            if at is None and self.bell.count(topic) == seen:
                del self._tasks[run]
                return
            wait = LONGEST_WAIT if at is None else max(at - self.conductor.clock.now(), 0.0)
            await self.bell.moved(topic, seen, min(wait, LONGEST_WAIT))

    def turn(self, run: RunId) -> float | None:
        """One look. What goes wrong unforeseen ends the run with its reason instead of leaving it hanging."""
        try:
            at = self.conductor.turn(run)
            self._held.pop(run, None)
            return at
        except (StorageFull, Unreachable) as error:
            return self.hold(run, error)
        except OSError as error:
            return self.hold(run, StorageFull(f"The coordinator's disk: {error}", "Look at it; it is tried again"))
        except Exception as error:
            log.exception("conductor_failed", run=run)
            return self.end(run, FederationError(f"the coordinator failed with {type(error).__name__}", "See its log"))

    def end(self, run: RunId, cause: FederationError) -> float | None:
        """End a run with its reason; later, where even that cannot be written now."""
        try:
            row = self.conductor.journal.run(run)
            if row is not None:
                self.conductor.fail(row, cause)
            return None
        except FederationError as error:
            return self.hold(run, error)
        except Exception:
            log.exception("journal_failed", run=run)
            return self.conductor.clock.now() + HELD_UP_SECONDS

    def hold(self, run: RunId, error: FederationError) -> float:
        """The machine's trouble, such as a full disk: nothing was written, nothing is lost, and it is tried again soon."""
        log.warning("run_held_up", run=run, reason=str(error))
        now = self.conductor.clock.now()
        if self._held.get(run) != str(error):  # told once, and not every few seconds
            try:
                self.conductor.journal.event(run, "held_up", {"why": str(error)}, now)
                self._held[run] = str(error)
            except FederationError:
                log.warning("event_lost", run=run)  # the journal has no room either; the log has the reason
        return now + HELD_UP_SECONDS

    async def stop(self) -> None:
        """Stop looking. What is in the journal is taken up again at the next start."""
        self._stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
