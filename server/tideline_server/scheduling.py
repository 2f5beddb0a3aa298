"""Keeps a scheduler's eye on every open run whose lease is ours: woken by the bell, or when a deadline passes."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from tideline.core.errors import FederationError, Overtaken, StorageFull, Unreachable
from tideline.core.run import RunId
from tideline.engine.coordinator.integrity.verifying import Scrubber
from tideline.engine.coordinator.scheduler import Leases, Scheduler, duration
from tideline.engine.model.runs import OPEN, Status
from tideline.engine.model.transitions import PartCollected
from tideline_server.bell import LocalBell

log = structlog.get_logger()
T = TypeVar("T")
HELD_UP_SECONDS = 10.0
GIVEN_UP_SECONDS = 3600.0  # a run that is held up beyond its deadline waits for a person after so long
TURNERS = 16  # runs that are looked at at once; one at a time is in the worker


class SchedulerLoop:
    """One task per run that this coordinator conducts. The kernel's calls block, so they run on threads."""

    def __init__(
        self,
        scheduler: Scheduler,
        leases: Leases,
        bell: LocalBell,
        lost: Callable[[], None] = lambda: None,
        scrubber: Scrubber | None = None,
        beside: Sequence[Callable[[], None]] = (),
    ) -> None:
        """beside: what is called every few seconds, on a thread, one after the other; `scrubber` tells what it found."""
        self.beside = beside
        self.scheduler, self.leases, self.bell, self.lost, self.scrubber = scheduler, leases, bell, lost, scrubber
        self.turns = 0  # looks that are under way or wait for a thread; the one worker does one at a time
        self._tasks: dict[RunId, asyncio.Task[None]] = {}
        self._held: dict[RunId, tuple[str, float]] = {}  # runs that are held up: why, and since when
        self._once_more: set[RunId] = set()  # runs whose last look lost a part to a collection
        # Leases have a thread of their own: a sign of life must not wait for turns, which wait for numbers.
        self._turning, self._leasing = ThreadPoolExecutor(TURNERS, "turn"), ThreadPoolExecutor(1, "leases")
        self._watching: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self) -> None:
        """Take up every open run that nobody else conducts, and from now on each that moves."""
        self.bell.on_ring(self.heard)
        await self.check_leases()
        self._watching = asyncio.create_task(self.watch())

    async def watch(self) -> None:
        """Look again and again: that keeps our leases, finds runs whose scheduler has died, and needs no bell."""
        while True:
            await asyncio.sleep(self.leases.pause)
            await self.check_leases()

    async def check_leases(self) -> None:
        """Keep what is ours, take what is free, and tidy. Bells may be lost: each run is looked at, and what others order."""
        self.tidy()
        try:
            for run in await on(self._leasing, self.leases.poll):
                self.take(run)
                self.bell.nudge(f"run:{run}")
            if self.leases.elsewhere:
                self.bell.nudge_all()
        except FederationError as error:
            log.warning("leases_unknown", reason=str(error))  # the others may take our runs now; then our writes are refused
        except Exception:
            log.exception("leases_failed")

    def tidy(self) -> None:
        """Collect parts beside all else: a slow store must not cost us our leases."""
        if self._tidying is None or self._tidying.done():
            self._tidying = asyncio.create_task(self.tidied())

    async def tidied(self) -> None:
        try:
            await asyncio.to_thread(self.scheduler.part_store.tidy)
            for step in self.beside:
                await asyncio.to_thread(step)
        except Exception:
            log.exception("tidying_failed")

    def damaged(self) -> float | None:
        """Damaged parts that were put aside; None until they are counted."""
        return None if self.scrubber is None or self.scrubber.damaged is None else float(self.scrubber.damaged)

    def heard(self, topic: str) -> None:
        kind, _, name = topic.partition(":")
        if kind == "run":
            self.take(RunId(name))

    def take(self, run: RunId) -> None:
        task = self._tasks.get(run)
        if (task is None or task.done()) and not self._stopped:
            self._tasks[run] = asyncio.create_task(self.follow(run))

    async def follow(self, run: RunId) -> None:
        """Look, wait, look again, for as long as the run is open and ours."""
        topic = f"run:{run}"
        while True:
            seen = self.bell.count(topic)
            at = await self.check_run(run)
            if at is None and self.bell.count(topic) == seen:
                del self._tasks[run]
                return
            wait = 0.0 if at is None else max(at - self.scheduler.clock.now(), 0.0)
            await self.bell.moved(topic, seen, min(wait, self.leases.seconds))

    async def check_run(self, run: RunId) -> float | None:
        """One look, on a thread. Where none can be had, another look is due soon."""
        self.turns += 1
        try:
            with structlog.contextvars.bound_contextvars(run=run):
                return await on(self._turning, lambda: self.turn(run))
        except Exception as error:
            log.exception("run_not_looked_at", run=run, reason=type(error).__name__)
            return self.scheduler.clock.now() + HELD_UP_SECONDS
        finally:
            self.turns -= 1

    def turn(self, run: RunId) -> float | None:
        """One look, if the run's lease is ours or free; when to look again, None where it is for others or for nobody.

        What goes wrong unforeseen ends the run with its reason instead of leaving it hanging.
        """
        token: int | None = None
        try:
            token = self.leases.take(run)
            if token is None:
                return None
            at = self.scheduler.turn(run, token)
            self._held.pop(run, None)
            self._once_more.discard(run)
            return at
        except Overtaken as error:
            self.overtaken(run, error)
            return None
        except PartCollected as error:
            return self.write_again(run, error, token)
        except (StorageFull, Unreachable) as error:
            return self.hold(run, error, token)
        except OSError as error:
            return self.hold(
                run, StorageFull(f"The coordinator's disk: {error.strerror}", "Look at it; it is tried again"), token
            )
        except Exception as error:
            log.exception("conductor_failed", run=run)
            cause = FederationError(f"the coordinator failed with {type(error).__name__}", "See its log")
            return self.end(run, cause, token)

    def write_again(self, run: RunId, error: PartCollected, token: int | None) -> float:
        """Close the round again at once, which stores the part anew. Twice in a row is the store's trouble."""
        if run in self._once_more:
            self._once_more.discard(run)
            return self.hold(run, error, token)
        log.info("round_closed_again", run=run, reason=str(error))
        self._once_more.add(run)
        return self.scheduler.clock.now()

    def overtaken(self, run: RunId, error: Overtaken) -> None:
        """Another conducts the run now; what was worked out here is dropped."""
        log.warning("run_overtaken", run=run, reason=str(error))
        self.leases.lose(run)
        self.lost()

    def end(self, run: RunId, cause: FederationError, token: int | None) -> float | None:
        """End a run with its reason; later, where even that cannot be written now."""
        try:
            row = self.scheduler.journal.run(run)
            if row is not None:
                self.scheduler.fail(row, cause, token)
            return None
        except Overtaken as error:
            self.overtaken(run, error)
            return None
        except FederationError as error:
            return self.hold(run, error, token)
        except Exception:
            log.exception("journal_failed", run=run)
            return self.scheduler.clock.now() + HELD_UP_SECONDS

    def hold(self, run: RunId, error: FederationError, token: int | None) -> float:
        """The machine's trouble, such as a full disk: nothing was written, nothing is lost, and it is tried again soon."""
        log.warning("run_held_up", run=run, reason=str(error))
        now = self.scheduler.clock.now()
        reason, since = self._held.get(run, ("", now))
        try:
            if reason != str(error):  # told once, and not every few seconds
                self.scheduler.journal.event(run, "held_up", {"why": str(error)}, now)
            self._held[run] = (str(error), since)
            self.give_up(run, error, now - since, token)
        except FederationError:
            log.warning("event_lost", run=run)  # the journal has no room either; the log has the reason
        return now + HELD_UP_SECONDS

    def give_up(self, run: RunId, error: FederationError, seconds: float, token: int | None) -> None:
        """Let a person look at a run that is held up for long and beyond its deadline. What it has is kept."""
        row = self.scheduler.journal.run(run)
        if row is not None and seconds > GIVEN_UP_SECONDS and self.scheduler.clock.now() > row.deadline_at:
            cause = f"Held up for {duration(seconds)}: {error}"
            self.scheduler.journal.set_status(run, OPEN, Status.STALLED, cause, self.scheduler.clock.now(), token)
            self.scheduler.bell.ring(f"run:{run}")
            del self._held[run]

    async def stop(self) -> None:
        """Stop looking, and leave the runs to others. What is in the journal is taken up again at the next start."""
        self._stopped = True
        tasks = [*self._tasks.values(), *(task for task in (self._watching, self._tidying) if task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await on(self._leasing, self.leases.close)
        except FederationError as error:
            log.warning("leases_kept", reason=str(error))  # they end by themselves
        for threads in (self._turning, self._leasing):
            threads.shutdown(wait=False)


async def on(threads: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    """A call that blocks, on one of the threads."""
    return await asyncio.get_running_loop().run_in_executor(threads, contextvars.copy_context().run, call)
