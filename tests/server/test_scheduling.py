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
from tideline.core.errors import StorageFull, Unreachable
from tideline.engine.coordinator.scheduler import Leases
from tideline.engine.model.runs import Status
from tideline.engine.model.transitions import PartCollected
from tideline_server.bell import LocalBell
from tideline_server.scheduling import HELD_UP_SECONDS, TURNERS, SchedulerLoop
from tideline_server.worker import machines

LONG = 20.0  # nothing here takes so long; what does has failed


def test_a_look_leaves_nothing_lying() -> None:
    """What a run that a person cancelled has left is taken at the next look, though no round is closed any more."""
    on = stage()
    run = start(on)
    until(on, run, 1)
    on.run_service.cancel(run)
    last = [digest for digest, _ in on.journal.rounds(run)[-1].state]
    assert on.row(run).status is Status.CANCELLED and len(list(on.parts.digests())) > len(last)

    async def play() -> None:
        scheduler_loop = SchedulerLoop(
            on.scheduler, Leases(on.journal, on.clock, "here", LONG), LocalBell(asyncio.get_running_loop())
        )
        await scheduler_loop.check_leases()
        async with asyncio.timeout(LONG):
            while list(on.parts.digests()) != last:
                await asyncio.sleep(0)
        await scheduler_loop.stop()

    asyncio.run(play())


def scheduler_loop(on: Stage, bell: LocalBell) -> SchedulerLoop:
    """What looks at the stage's runs."""
    return SchedulerLoop(on.scheduler, Leases(on.journal, on.clock, "here", LONG), bell)


async def forever(true: Callable[[], object]) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(LONG):
        while not true():
            await asyncio.sleep(0)


def test_leases_are_kept_while_every_turn_is_slow() -> None:
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

    async def play() -> None:
        made = scheduler_loop(on, LocalBell(asyncio.get_running_loop()))
        await made.check_leases()
        await asyncio.to_thread(lambda: [stuck.acquire(timeout=LONG) for _ in range(TURNERS)])
        before = {lease.run: lease.beats for lease in on.journal.leases()}
        await asyncio.wait_for(made.check_leases(), LONG)
        after = {lease.run: lease.beats for lease in on.journal.leases()}
        assert all(after[run] > before[run] for run in runs)
        crunching.set()
        await made.stop()

    asyncio.run(play())


def test_a_look_that_could_not_be_taken_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a thread to spare costs a while, not the run."""
    on = stage()
    run = start(on)
    for order in on.waiting():
        on.handle(order)
    monkeypatch.setattr("tideline_server.scheduling.HELD_UP_SECONDS", 0.0)
    refused: list[str] = []

    async def play() -> None:
        made = scheduler_loop(on, LocalBell(asyncio.get_running_loop()))
        submit = made._turning.submit

        def none_to_be_had(*args: Any, **more: Any) -> Any:
            if len(refused) < 2:
                refused.append("can't start new thread")
                raise RuntimeError(refused[-1])
            return submit(*args, **more)

        monkeypatch.setattr(made._turning, "submit", none_to_be_had)
        made.take(run)
        await forever(lambda: on.row(run).cursor == 0)
        await made.stop()

    asyncio.run(play())
    assert len(refused) == 2


def test_a_run_that_is_held_up_for_long_waits_for_a_person() -> None:
    """Not before its deadline, and not before an hour; then with the reason. Resumed after the trouble, it goes on."""
    on = stage()
    run = start(on, waiting={"deadline": 600.0})
    until(on, run, 1)
    for order in on.waiting():
        on.handle(order)

    def broken(name: str, real: Callable[..., Any], *asked: Any) -> Any:
        raise Unreachable("The coordinator has not enough memory", "Give it more")

    mend = intercept(on.compute, broken)

    async def play() -> None:
        made = scheduler_loop(on, LocalBell(asyncio.get_running_loop()))
        for _ in range(8):
            assert made.turn(run) is not None
            assert on.row(run).status is Status.RUNNING
            on.clock.advance(500.0)
        made.turn(run)
        await made.stop()

    asyncio.run(play())
    row = on.row(run)
    assert (row.status, row.cause) == (Status.STALLED, "Held up for 67 min: The coordinator has not enough memory. Give it more")
    mend()
    on.run_service.resume(run)
    assert on.play(run).status is Status.COMPLETED


def test_a_round_whose_part_was_collected_is_closed_again_at_once() -> None:
    """It is no trouble of the machine's, unless it comes twice in a row: then it is said, and tried later."""
    on = stage()
    run = start(on)
    until(on, run, 1)
    for order in on.waiting():
        on.handle(order)
    lost = 3

    def collected(name: str, real: Callable[..., Any], *asked: Any) -> Any:
        nonlocal lost
        if lost:
            lost -= 1
            raise PartCollected("Part 0123 was collected while the round was closed", "It is closed again")
        return real(*asked)

    intercept(on.compute, collected)

    async def play() -> list[float]:
        made = scheduler_loop(on, LocalBell(asyncio.get_running_loop()))
        waits = [(made.turn(run) or 0.0) - on.clock.now() for _ in range(3)]
        assert on.row(run).cursor == 1
        made.turn(run)
        await made.stop()
        return waits

    assert asyncio.run(play()) == [0.0, HELD_UP_SECONDS, 0.0]
    assert on.row(run).cursor == 2
    assert [each.kind for each in on.journal.events(run)].count("held_up") == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(5, "Input/output error"), Unreachable),
        (OSError(28, "No space left on device"), StorageFull),
        (MemoryError(), Unreachable),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), Unreachable),
        (RuntimeError("shapes do not fit"), type(None)),
        (ValueError("allocate memory"), type(None)),
    ],
)
def test_what_is_the_machines_trouble(error: Exception, kind: type) -> None:
    """A worker's errors that a later try may not meet again."""
    assert type(machines(error)) is kind
