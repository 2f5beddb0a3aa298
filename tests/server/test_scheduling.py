"""What the coordinator does beside its runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.intercepting import intercept
from tests.engine.toys import stage, start, until
from tests.laws.stage import Stage
from tests.server.loops import LONG, on_a_loop
from tideline.core.errors import StorageFull, Unreachable
from tideline.engine.coordinator.scheduler import Leases
from tideline.engine.model.runs import Status
from tideline.engine.model.transitions import PartCollected
from tideline_server.bell import LocalBell
from tideline_server.scheduling import HELD_UP_SECONDS, TURNERS, SchedulerLoop
from tideline_server.worker import machines


@on_a_loop
async def test_a_look_leaves_nothing_lying() -> None:
    """What a run that a person cancelled has left is taken at the next look, though no round is closed any more."""
    on = stage()
    run = start(on)
    until(on, run, 1)
    on.run_service.cancel(run)
    last = [digest for digest, _ in on.journal.rounds(run)[-1].state]
    assert on.row(run).status is Status.CANCELLED and len(list(on.parts.digests())) > len(last)
    loop = scheduler_loop(on)
    await loop.check_leases()
    await forever(lambda: list(on.parts.digests()) == last)
    await loop.stop()


def scheduler_loop(on: Stage) -> SchedulerLoop:
    """What looks at the stage's runs."""
    bell = LocalBell(asyncio.get_running_loop())
    return SchedulerLoop(on.scheduler, Leases(on.journal, on.clock, "here", LONG), bell)


async def forever(true: Callable[[], object]) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(LONG):
        while not true():
            await asyncio.sleep(0)


@on_a_loop
async def test_leases_are_kept_while_every_turn_is_slow() -> None:
    """Signs of life do not stand behind turns that wait for numbers, however many there are."""
    on, crunching = stage(), threading.Event()
    runs = [start(on, seed=seed) for seed in range(TURNERS + 4)]
    for order in on.waiting():
        on.handle(order)
    stuck = threading.Semaphore(0)

    def slow(name: str, real: Callable[..., Any], *asked: Any) -> Any:
        stuck.release()
        assert crunching.wait(LONG)
        return real(*asked)

    intercept(on.compute, slow)
    made = scheduler_loop(on)
    await made.check_leases()
    await asyncio.to_thread(lambda: [stuck.acquire(timeout=LONG) for _ in range(TURNERS)])
    before = {lease.run: lease.beats for lease in on.journal.leases()}
    await asyncio.wait_for(made.check_leases(), LONG)
    after = {lease.run: lease.beats for lease in on.journal.leases()}
    assert all(after[run] > before[run] for run in runs)
    crunching.set()
    await made.stop()


@on_a_loop
async def test_a_look_that_could_not_be_taken_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a thread to spare costs a while, not the run."""
    on = stage()
    run = start(on)
    for order in on.waiting():
        on.handle(order)
    monkeypatch.setattr("tideline_server.scheduling.HELD_UP_SECONDS", 0.0)
    loop, refused = scheduler_loop(on), list[str]()
    submit = loop._turning.submit

    def none_to_be_had(*args: Any, **more: Any) -> Any:
        if len(refused) < 2:
            refused.append("can't start new thread")
            raise RuntimeError(refused[-1])
        return submit(*args, **more)

    monkeypatch.setattr(loop._turning, "submit", none_to_be_had)
    loop.take(run)
    await forever(lambda: on.row(run).cursor == 0)
    await loop.stop()
    assert len(refused) == 2


@on_a_loop
async def test_a_run_that_is_held_up_for_long_waits_for_a_person() -> None:
    """Not before its deadline, and not before an hour; then with the reason. Resumed after the trouble, it goes on."""
    on = stage()
    run = start(on, waiting={"deadline": 600.0})
    until(on, run, 1)
    for order in on.waiting():
        on.handle(order)

    def broken(name: str, real: Callable[..., Any], *asked: Any) -> Any:
        raise Unreachable("The coordinator has not enough memory", "Give it more")

    mend, loop = intercept(on.compute, broken), scheduler_loop(on)
    for _ in range(8):
        assert loop.turn(run) is not None
        assert on.row(run).status is Status.RUNNING
        on.clock.advance(500.0)
    loop.turn(run)
    await loop.stop()
    row = on.row(run)
    assert (row.status, row.cause) == (Status.STALLED, "Held up for 67 min: The coordinator has not enough memory. Give it more")
    mend()
    on.run_service.resume(run)
    assert on.play(run).status is Status.COMPLETED


@on_a_loop
async def test_a_round_whose_part_was_collected_is_closed_again_at_once() -> None:
    """It is no trouble of the machine's, unless it comes twice in a row: then it is said, and tried later."""
    on, lost = stage(), [1, 2, 3]
    run = start(on)
    until(on, run, 1)
    for order in on.waiting():
        on.handle(order)

    def collected(name: str, real: Callable[..., Any], *asked: Any) -> Any:
        if lost:
            lost.pop()
            raise PartCollected("Part 0123 was collected while the round was closed", "It is closed again")
        return real(*asked)

    intercept(on.compute, collected)
    loop = scheduler_loop(on)
    waits = [(loop.turn(run) or 0.0) - on.clock.now() for _ in range(3)]
    assert on.row(run).cursor == 1
    loop.turn(run)
    await loop.stop()
    assert waits == [0.0, HELD_UP_SECONDS, 0.0]
    assert on.row(run).cursor == 2
    assert [event.kind for event in on.journal.events(run)].count("held_up") == 1


ERRORS: tuple[tuple[Exception, type], ...] = (
    (OSError(5, "Input/output error"), Unreachable),
    (OSError(28, "No space left on device"), StorageFull),
    (MemoryError(), Unreachable),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), Unreachable),
    (RuntimeError("shapes do not fit"), type(None)),
    (ValueError("allocate memory"), type(None)),
)


def test_what_is_the_machines_trouble() -> None:
    """A worker's errors that a later try may not meet again."""
    for error, kind in ERRORS:
        assert type(machines(error)) is kind, error
