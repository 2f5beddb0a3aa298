"""The part store: whose parts these are, and what a sweep finds, leaves and drops."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.engine.toys import METHODS, ROSTER, experiment, sites
from tideline.archive.folder import FolderParts
from tideline.archive.parts import MemoryParts
from tideline.core.errors import ConfigRefused, Unreachable
from tideline.core.run import Digest
from tideline.engine.audit.log import About
from tideline.engine.coordinator.part_store import PartStore, Swept
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
