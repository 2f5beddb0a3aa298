"""How often the part store is tidied, and whom it disturbs if that fails."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from tests.engine.toys import METHODS, start, until
from tests.laws.stage import Stage
from tests.synthetic import NAMES, sites
from tideline.archive.parts import MemoryAside, MemoryParts
from tideline.core.errors import StorageFull, Unreachable
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.engine.coordinator.part_store import GRACE_SECONDS, PartStore
from tideline.engine.model.orders import OrderStatus, Reply
from tideline.engine.model.runs import Status
from tideline.engine.ports.journal import MOST_DROPPED
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.journal import MemoryJournal

RUN, ANNA = RunId("run"), ClientId(NAMES[0])
DAY = 86400.0


class StubbornParts(MemoryParts):
    """Parts that cannot be put aside while there is some trouble."""

    def __init__(self, trouble: Exception | None = None) -> None:
        super().__init__()
        self.trouble = trouble

    def aside(self) -> MemoryAside:
        return StubbornAside(self)


class StubbornAside(MemoryAside):
    """The trouble comes when half is done."""

    def __init__(self, parts: StubbornParts) -> None:
        super().__init__(parts)
        self._stubborn = parts

    def take(self, digests: Collection[Digest]) -> None:
        super().take(digests)
        if self._stubborn.trouble is not None:
            raise self._stubborn.trouble


class Shed:
    """A part store with a clock that the test sets, and what it told."""

    def __init__(self, pause: float) -> None:
        self.parts, self.clock, self.told = StubbornParts(), ManualClock(10 * DAY), list[str]()
        self.part_store = PartStore(self.parts, MemoryJournal(), self.clock, pause, self.told.append)

    def litter(self, content: bytes) -> Digest:
        """A part that was pushed too long ago."""
        digest = self.parts.put([content])
        self.part_store.journal.add_parts([digest], RUN, ANNA, self.clock.now() - GRACE_SECONDS - 1.0)
        return digest

    def tidied(self, at_once: bool = False) -> bool:
        """Whether a call of `tidy` takes what lies about."""
        digest = self.litter(b"something")
        self.part_store.tidy(at_once)
        return not self.parts.has(digest)


def test_without_a_pause_it_is_tidied_at_every_call() -> None:
    """As simulations have it."""
    shed = Shed(0.0)
    assert [shed.tidied() for _ in range(3)] == [True] * 3


def test_a_pause_lies_between_two_times() -> None:
    """By the room's clock, from the last time on; a clock that was set back makes nobody wait."""
    shed = Shed(2.0)
    assert [shed.tidied(), shed.tidied()] == [True, False]
    shed.clock.advance(1.75)
    assert not shed.tidied()
    shed.clock.advance(0.25)
    assert [shed.tidied(), shed.tidied()] == [True, False]
    shed.clock.advance(-DAY)
    assert [shed.tidied(), shed.tidied()] == [True, False]


def test_at_once_is_at_once() -> None:
    """And the pause begins anew."""
    shed = Shed(2.0)
    assert [shed.tidied(), shed.tidied(at_once=True), shed.tidied(at_once=True)] == [True] * 3
    shed.clock.advance(1.0)
    assert shed.tidied(at_once=True)
    shed.clock.advance(1.5)
    assert not shed.tidied()


@pytest.mark.parametrize("trouble", [StorageFull("no room"), Unreachable("no answer"), OSError("no disk")])
def test_trouble_is_told_once(trouble: Exception) -> None:
    """Until it is over, or another; each pause it is tried again, and what was left is taken then."""
    shed = Shed(2.0)
    shed.parts.trouble = trouble
    for _ in range(3):
        assert not shed.tidied()
        shed.clock.advance(2.0)
    assert shed.told == [str(trouble)]
    shed.parts.trouble = OSError("another")
    assert not shed.tidied()
    assert shed.told == [str(trouble), "another"]
    shed.parts.trouble = None
    shed.clock.advance(2.0)
    assert shed.tidied()
    shed.parts.trouble = trouble
    shed.clock.advance(2.0)
    assert not shed.tidied()
    assert shed.told == [str(trouble), "another", str(trouble)]


def test_a_fault_of_ours_is_not_hidden() -> None:
    """Only what a store may say is trouble."""
    shed = Shed(0.0)
    shed.parts.trouble = ValueError("a mistake")
    with pytest.raises(ValueError, match="a mistake"):
        shed.tidied()


@pytest.mark.parametrize("trouble", [StorageFull("no room"), Unreachable("no answer"), OSError("no disk")])
def test_no_round_waits_for_a_collection_that_fails(trouble: Exception) -> None:
    """The run ends as ever, without a word of it; later everything but its last state is taken."""
    parts = StubbornParts(trouble)
    on = Stage(METHODS, sites(NAMES[:3]), parts=parts)
    run = start(on)
    row = on.play(run)
    assert (row.status, row.cause) == (Status.COMPLETED, "")
    assert {event.kind for event in on.journal.events(run)} <= {"created", "answered", "closed", "completed"}
    assert len(list(parts.digests())) > 1
    parts.trouble = None
    on.part_store.tidy()
    assert list(parts.digests()) == [row.state_digest]


def test_the_end_of_a_run_waits_for_no_pause() -> None:
    """Amid its rounds what they leave lies about until the pause is over; with the last one everything goes."""
    on = Stage(METHODS, sites(NAMES[:3]))
    on.part_store.pause = 10 * DAY
    run = start(on, rounds=5)
    until(on, run, 1)
    early = len(list(on.parts.digests()))
    until(on, run, 4)
    assert len(list(on.parts.digests())) > early
    assert [on.play(run).state_digest] == list(on.parts.digests())


def test_a_run_that_fails_is_tidied_up() -> None:
    """Its failure is an end like any other: its last state is all that stays."""
    on = Stage(METHODS, sites(NAMES[:3]))
    on.part_store.pause = 10 * DAY
    run = start(on, rounds=5, fault="tell", config={"when": 3})
    assert on.play(run).status is Status.FAILED
    assert list(on.parts.digests()) == [digest for digest, _ in on.journal.rounds(run)[-1].state]


def test_a_collection_that_the_database_does_again_takes_what_the_last_try_took() -> None:
    """What only an earlier try took is back in its place, and known."""

    class Twice(MemoryJournal):
        """A journal whose database undoes the first try of a collection; somebody pushes one of its parts before the second."""

        def collect(
            self, before: float, drop: Callable[[Collection[Digest]], object] = lambda digests: None, most: int = MOST_DROPPED
        ) -> tuple[Digest, ...]:
            if not taken:
                taken.extend(self._parts)
                drop(taken)
                self.add_parts(taken[:1], RUN, ANNA, before + 1.0)
            return super().collect(before, drop, most)

    shed, taken = Shed(0.0), list[Digest]()
    shed.part_store.journal = Twice()
    first, second = shed.litter(b"first"), shed.litter(b"second")
    assert shed.part_store.collect() == 1
    assert (list(shed.parts.digests()), shed.parts.has(second)) == ([first], False)


def test_a_reply_whose_part_was_dropped_just_before_it_is_recorded_is_sent_again() -> None:
    """Though it was seen and checked, and though another's push that found it there has written its row anew."""
    on = Stage(METHODS, sites(NAMES[:3]))
    run = start(on)
    until(on, run, 0)
    (order,) = on.agent_service.orders(ANNA)
    answer, dropped = on.journal.answer, list[Digest]()

    def late(name: OrderId, reply: Reply, *more: Any) -> OrderStatus | None:
        if not dropped:
            dropped.extend(digest for digest, _ in reply.files)
            on.clock.advance(2 * GRACE_SECONDS)
            assert on.part_store.collect() >= len(dropped)
            on.journal.add_parts(dropped, run, ANNA, on.clock.now())
        return answer(name, reply, *more)

    on.journal.answer = late  # type: ignore[method-assign]
    assert on.handle(order).verdict == "accepted"  # type: ignore[union-attr]
    assert dropped and all(on.parts.has(digest) for digest in dropped)
    assert on.play(run).status is Status.COMPLETED


class SlowParts(MemoryParts):
    """Parts in a store that needs a second for each that it puts aside, and a database that waits for ten."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock, self.sizes = clock, list[int]()

    def aside(self) -> MemoryAside:
        return SlowAside(self)


class SlowAside(MemoryAside):
    """What it puts aside."""

    def __init__(self, parts: SlowParts) -> None:
        super().__init__(parts)
        self._slow = parts

    def take(self, digests: Collection[Digest]) -> None:
        self._slow.sizes.append(len(digests))
        self._slow.clock.advance(len(digests))
        if len(digests) > 10:
            raise Unreachable("The transaction was ended")
        super().take(digests)


def test_where_a_store_is_slow_fewer_are_taken_at_once() -> None:
    """So that a collection comes to its end; as many as ever where it is quick again."""
    shed = Shed(0.0)
    shed.part_store.parts = slow = SlowParts(shed.clock)
    litter = [slow.put([b"%d" % at]) for at in range(200)]
    shed.part_store.journal.add_parts(litter, RUN, ANNA, 0.0)
    for _ in range(3):
        shed.part_store.tidy()
    assert list(slow.digests()) == [] and slow.sizes[:5] == [64, 16, 4, 1, 2]
    shed.part_store.parts = shed.parts
    for _ in range(7):
        assert shed.tidied()
    assert shed.part_store._most == MOST_DROPPED
