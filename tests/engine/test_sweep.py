"""The part store: whose parts these are, and what a sweep finds, leaves and drops."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.crowd import Crowd
from tests.engine.toys import METHODS, ROSTER, start, until
from tests.laws.stage import Stage
from tests.synthetic import NAMES, experiment, sites
from tideline.archive.errors import TooLarge, Undeclared
from tideline.archive.folder import FolderParts
from tideline.archive.parts import MemoryAside, MemoryParts
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, StorageFull, TooMany, Unreachable
from tideline.core.privacy import TO_COORDINATOR, Clause, Exposure
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.engine.audit.log import About
from tideline.engine.coordinator.part_store import GRACE_SECONDS, PartStore, Swept
from tideline.engine.coordinator.unreported import SLACK_BYTES, TIMES, Allowance, Unreported, most_bytes
from tideline.engine.model.orders import Arrivals, OrderStatus, Reply
from tideline.engine.model.runs import Status
from tideline.engine.ports.journal import MOST_DROPPED
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.federation import Federation
from tideline.engine.simulation.journal import MemoryJournal

HOUR = 3600.0


def test_a_database_knows_its_parts() -> None:
    """The first coordinator marks them; the next finds the mark, and other parts are refused with their place."""
    journal, parts, clock = MemoryJournal(), MemoryParts(), ManualClock()
    for _ in range(3):
        PartStore(parts, journal, clock).own("here")
        assert [journal.marker()] == list(parts.digests())
    with pytest.raises(ConfigRefused, match="The parts in there are not those of this database") as told:
        PartStore(MemoryParts(), journal, clock).own("there")
    assert "--parts" in told.value.todo


def test_of_two_that_mark_at_once_one_mark_stands() -> None:
    """The other's is dropped again."""

    class Raced(MemoryJournal):
        """A journal in which somebody else is first, a moment after one looked."""

        def marker(self, ours: object = None) -> object:  # type: ignore[override]
            if ours is not None and not self._marker:
                super().marker(shared.put([b"the first"]))
            return super().marker(ours)  # type: ignore[arg-type]

    shared = MemoryParts()
    journal = Raced()
    PartStore(shared, journal, ManualClock()).own("here")
    assert [journal.marker()] == list(shared.digests())


def test_a_sweep_takes_what_nobody_needs_and_nothing_else(tmp_path: Path) -> None:
    """In mid-run: what was left behind long ago goes, what is young stays, and the run ends as if nothing had been."""
    federation, peaceful = (Federation(METHODS, sites(), tmp_path / name) for name in ("swept", "peaceful"))
    expected = peaceful.run(peaceful.start(experiment("toy", ROSTER, config={"rounds": 4})))["state_digest"]
    room, parts = federation.part_store, federation.parts
    assert isinstance(parts, FolderParts)
    room.own("here")
    swept: list[Swept] = []

    def sweep(_: object) -> None:
        old, young = parts.put([os.urandom(100)]), parts.put([os.urandom(50)])
        os.utime(parts.path(old), (-1e6, -1e6))
        os.utime(parts.path(young), (1e10, 1e10))
        swept.append(room.sweep())
        assert not parts.has(old) and parts.has(young)
        parts.drop(young)

    result = federation.run(federation.start(experiment("toy", ROSTER, config={"rounds": 4})), sweep)
    assert (result["status"], result["state_digest"]) == ("completed", expected)
    assert len(swept) > 4 * len(ROSTER)
    assert all(each.found == 2 and each.dropped >= 1 and each.freed >= 100 for each in swept[:1])
    parts.aside().take([expected, left_over := parts.put([b"left aside"])])
    federation.clock.advance(2e10)
    left = room.sweep()
    assert not parts.has(left_over)
    assert left.kept == 2 and set(parts.inventory()) == {federation.journal.marker(), expected}
    assert left.bytes == sum(told.size for told in parts.inventory().values())


def test_what_a_person_had_destroyed_is_told() -> None:
    """How much, and who asked; what goes by itself is not, nor a sweep that found nothing."""
    journal, parts, clock = MemoryJournal(), MemoryParts(), ManualClock(1e6)
    room = PartStore(parts, journal, clock)
    parts.put([b"by itself"])
    journal.adopt(dict.fromkeys(parts.digests(), 0.0))
    assert room.collect() == 1
    parts.put([b"1234"])
    parts.put([b"12"])
    assert room.sweep("alice") == Swept(kept=0, bytes=0, found=2, dropped=2, freed=6)
    room.sweep("alice")
    [_, told] = journal.audit()
    assert (told.kind, told.by, told.at, told.details) == ("parts_swept", "alice", 1e6, {"dropped": 2, "freed": 6})


def test_a_sweep_that_fails_amid_tells_what_went() -> None:
    """The rest is told by the next."""

    class Failing(MemoryJournal):
        """A journal that is away at every second collection."""

        turns = 0

        def collect(self, *given: Any) -> tuple[Digest, ...]:
            self.turns += 1
            if self.turns == 2:
                raise Unreachable("The store is away")
            return super().collect(*given)

    journal, parts = Failing(), MemoryParts()
    room = PartStore(parts, journal, ManualClock(1e6))
    for at in range(MOST_DROPPED + 1):
        parts.put([b"%03d" % at])
    with pytest.raises(Unreachable):
        room.sweep("alice")
    assert room.sweep("bob").dropped == 1
    told = [(e.by, e.details) for e in journal.audit(about=About(kind="parts_swept"))]
    assert told == [("alice", {"dropped": MOST_DROPPED, "freed": 3 * MOST_DROPPED}), ("bob", {"dropped": 1, "freed": 3})]


# How often the part store is tidied, and whom it disturbs if that fails.
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
    assert not shed.tidied() and shed.told == [str(trouble), "another"]
    shed.parts.trouble = None
    shed.clock.advance(2.0)
    assert shed.tidied()
    shed.parts.trouble = trouble
    shed.clock.advance(2.0)
    assert not shed.tidied() and shed.told == [str(trouble), "another", str(trouble)]


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
    assert len(list(on.parts.digests())) > early and [on.play(run).state_digest] == list(on.parts.digests())


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


# What a reply may bring, and a client in all, before it is reported.
CROWD = Crowd(2, 2)
CROWDED = CROWD.row()
JOIN_ORDER, ORDER = CROWD.orders(-1)[0], CROWD.orders(0)[0]
ELSE = 5000


def clause(dims: str, field: str = "model", exposure: Exposure = Exposure.WEIGHTS) -> Clause:
    return Clause("train", "train", field, dims, exposure, TO_COORDINATOR)


@pytest.mark.parametrize(
    ("clauses", "most"),
    [
        ((clause("like model"),), TIMES * sum(size for _, size in ORDER.files) + SLACK_BYTES),
        ((clause("d 3"), clause("", "rows", Exposure.COUNT)), TIMES * 8 * (7 * 3 + 1) + SLACK_BYTES),
        ((clause("like model"), clause("n"),), ELSE),
        ((clause("d", "each.*.mean"),), ELSE),
        ((clause(""),), ELSE),
        ((clause("", "metrics.loss", Exposure.METRIC),), SLACK_BYTES),
        ((replace(clause("n"), phase="other"),), SLACK_BYTES),
    ],
)  # fmt: skip
def test_what_a_contract_bounds(clauses: tuple[Clause, ...], most: int) -> None:
    """Weights like those that were sent, sizes that the world names, numbers; where one is unknown, nothing is bounded."""
    run = replace(CROWDED, contract=clauses, spec=replace(CROWDED.spec, world=World((4,), 2, sizes={"d": 7})))
    assert most_bytes(run, ORDER, ELSE) == most


def parts(first: int, count: int, size: int) -> Arrivals:
    return tuple((Digest(f"{at:064x}"), size, 0) for at in range(first, first + count))


def test_a_join_has_no_bytes() -> None:
    """None at all."""
    with pytest.raises(Undeclared, match="brings no files"):
        Unreported(Allowance()).announce(CROWDED, JOIN_ORDER, parts(0, 1, 1))


def test_an_order_has_so_many() -> None:
    """The same part again counts once; others come on top, however small each push is."""
    book, open_ended = Unreported(Allowance(reply=100)), replace(CROWDED, contract=(clause("n"),))
    for _ in range(3):
        book.announce(open_ended, ORDER, parts(0, 1, 60))
    book.announce(open_ended, ORDER, parts(1, 1, 40))
    with pytest.raises(TooLarge, match="101 bytes in 3 parts"):
        book.announce(open_ended, ORDER, parts(2, 1, 1))


def test_a_client_has_so_many() -> None:
    """Over all its orders, until they are over; another client's do not count."""
    book, open_ended = Unreported(Allowance(reply=100, client=150)), replace(CROWDED, contract=(clause("n"),))
    other, elses = replace(ORDER, id=OrderId("other")), CROWD.orders(0)[1]
    book.announce(open_ended, ORDER, parts(0, 1, 100))
    book.announce(open_ended, elses, parts(0, 1, 100))
    with pytest.raises(TooMany, match="has pushed 100 bytes"):
        book.announce(open_ended, other, parts(1, 1, 51))
    assert set(book.orders(1000.0)) == {ORDER.id, elses.id} and not book.overdue(1001.0) and book.overdue(1006.0)
    assert book.over(ORDER.id) is not None and book.over(ORDER.id) is None
    book.announce(open_ended, other, parts(1, 1, 51))
