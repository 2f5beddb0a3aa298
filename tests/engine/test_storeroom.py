"""How often the storeroom is tidied, and whom it disturbs if that fails."""

from __future__ import annotations

import pytest

from tests.engine.toys import METHODS, start, until
from tests.laws.stage import Stage
from tests.synthetic import NAMES, sites
from tideline.archive.parts import MemoryParts
from tideline.core.errors import StorageFull, Unreachable
from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.memory import ManualClock
from tideline.engine.memory_journal import MemoryJournal
from tideline.engine.rows import Status
from tideline.engine.storeroom import GRACE_SECONDS, Storeroom

RUN, ANNA = RunId("run"), ClientId("anna")
DAY = 86400.0


class StubbornParts(MemoryParts):
    """Parts that cannot be dropped while there is some trouble."""

    def __init__(self, trouble: Exception | None = None) -> None:
        super().__init__()
        self.trouble = trouble

    def drop(self, digest: Digest) -> None:
        if self.trouble is not None:
            raise self.trouble
        super().drop(digest)


class Shed:
    """A storeroom with a clock that the test sets, and what it told."""

    def __init__(self, pause: float) -> None:
        self.parts, self.clock, self.told = StubbornParts(), ManualClock(10 * DAY), list[str]()
        self.room = Storeroom(self.parts, MemoryJournal(), self.clock, pause, self.told.append)

    def litter(self, content: bytes) -> Digest:
        """A part that was pushed too long ago."""
        digest = self.parts.put([content])
        self.room.journal.add_parts([digest], RUN, ANNA, self.clock.now() - GRACE_SECONDS - 1.0)
        return digest

    def tidied(self, at_once: bool = False) -> bool:
        """Whether a call of `tidy` takes what lies about."""
        digest = self.litter(b"something")
        self.room.tidy(at_once)
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
    on.room.tidy()
    assert list(parts.digests()) == [row.state_digest]


def test_the_end_of_a_run_waits_for_no_pause() -> None:
    """Amid its rounds what they leave lies about until the pause is over; with the last one everything goes."""
    on = Stage(METHODS, sites(NAMES[:3]))
    on.room.pause = 10 * DAY
    run = start(on, rounds=5)
    until(on, run, 1)
    early = len(list(on.parts.digests()))
    until(on, run, 4)
    assert len(list(on.parts.digests())) > early
    assert [on.play(run).state_digest] == list(on.parts.digests())


def test_a_run_that_fails_is_tidied_up() -> None:
    """Its failure is an end like any other: its last state is all that stays."""
    on = Stage(METHODS, sites(NAMES[:3]))
    on.room.pause = 10 * DAY
    run = start(on, rounds=5, fault="tell", config={"when": 3})
    assert on.play(run).status is Status.FAILED
    assert list(on.parts.digests()) == [digest for digest, _ in on.journal.rounds(run)[-1].state]
