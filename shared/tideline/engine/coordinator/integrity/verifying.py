"""Reads the coordinator's parts, whether anybody needs them now or not: damage is found before a run stumbles over it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from tideline.archive.errors import PartDamaged, PartMissing
from tideline.archive.parts import damaged
from tideline.archive.sums import SUMS
from tideline.core.errors import FederationError, PartLost
from tideline.core.run import Digest, RunId
from tideline.engine.audit import entries
from tideline.engine.coordinator.integrity.mending import Mender
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.model.runs import FINAL, Status
from tideline.engine.ports.clock import Clock

CALL_SECONDS = 5.0  # that one look reads for
DAY = 86400.0
COUNT_SECONDS = 300.0  # between two counts of what was put aside, each of which reads a folder or lists a bucket


@dataclass(frozen=True)
class Verified:
    """What a look at some parts found. aside: the damaged parts that are not here now, those of earlier looks among them.

    after: the last that was read; empty: all were. cleared: parts that no run needs, of which what lay aside was destroyed.
    lost: what nobody here makes again, with words on what to do.
    """

    checked: int
    bytes: int
    damaged: tuple[Digest, ...]
    aside: tuple[Digest, ...]
    mended: tuple[Digest, ...]
    cleared: tuple[Digest, ...]
    lost: tuple[str, ...]
    after: str


class Verifier:
    """Looks at parts, by name. mender: makes again what runs need."""

    def __init__(self, part_store: PartStore, mender: Mender) -> None:
        self.part_store, self.mender = part_store, mender

    def verify(self, after: str = "", repair: bool = False, by: str = "", seconds: float = CALL_SECONDS) -> Verified:
        """Read the parts that follow a name, for so many seconds. by: who asked, as the audit log tells."""
        began, checked, nbytes, found = time.monotonic(), 0, 0, list[Digest]()
        last = ""
        names = (digest for digest in sorted(self.part_store.parts.digests()) if digest > after)
        for digest in names:
            size = self.read(digest)
            checked, nbytes, found = checked + 1, nbytes + (size or 0), found + ([digest] if size is None else [])
            if time.monotonic() - began > seconds:
                last = digest
                break
        self.note(found, by)
        aside = self.aside()
        mended, lost = self.repaired(aside) if repair and not last else ((), ())
        cleared = self.clear_unneeded(aside) if repair and not last else ()
        return Verified(
            checked=checked,
            bytes=nbytes,
            damaged=tuple(found),
            aside=tuple(digest for digest in aside if digest not in (*mended, *cleared)),
            mended=mended,
            cleared=cleared,
            lost=lost,
            after=last,
        )

    def read(self, digest: Digest) -> int | None:
        """A part's bytes; None where they are damaged, 0 of one that has just been dropped.

        The marker of the store is not looked at: nobody ever reads it, and nobody could make it again.
        """
        if digest == self.part_store.journal.marker():
            return 0
        SUMS.forget(digest)
        try:
            return len(self.part_store.parts.view(digest))
        except PartDamaged:
            return None
        except PartMissing:
            return 0

    def aside(self) -> tuple[Digest, ...]:
        """The damaged parts that nobody has written again."""
        parts = self.part_store.parts
        return tuple(sorted(digest for digest in set(parts.damaged()) if not parts.has(digest)))

    def repaired(self, aside: tuple[Digest, ...]) -> tuple[tuple[Digest, ...], tuple[str, ...]]:
        """Make damaged parts again that a run needs: those that are here then, and of the others what they are and what to do.

        A run that is open needs what it goes on from; one that has completed its last state, and that of its best round.
        """
        lost = dict[Digest, str]()
        runs = self.needing() if aside else []
        for digest in aside:
            whose = [run for run in runs if self.mender.role(run, digest)]
            for run in whose:
                try:
                    self.mender.mend(run, damaged(digest))
                    break
                except PartLost as error:
                    lost[digest] = str(error)
        here = tuple(digest for digest in aside if self.part_store.parts.has(digest))
        return here, tuple(words for digest, words in lost.items() if digest not in here)

    def clear_unneeded(self, aside: tuple[Digest, ...]) -> tuple[Digest, ...]:
        """Destroy what lies of damaged parts that no run needs, and that are not here again: nothing is lost with them."""
        runs = self.needing() if aside else []
        gone = [digest for digest in aside if not self.part_store.parts.has(digest)]
        unneeded = tuple(digest for digest in gone if not any(self.mender.role(run, digest) for run in runs))
        for digest in unneeded:
            self.part_store.parts.clear_damaged(digest)
        return unneeded

    def needing(self) -> list[RunId]:
        """The runs that parts may be needed for: those that can still go on come first."""
        journal = self.part_store.journal
        rows = [row for row in map(journal.run, journal.run_ids()) if row is not None]
        open_still = [row.id for row in rows if row.status not in FINAL]
        return open_still + [row.id for row in rows if row.status is Status.COMPLETED]

    def note(self, found: list[Digest], by: str) -> None:
        """Write into the audit log what was found."""
        if found:
            self.part_store.journal.record([entries.parts_verified(found, by, self.part_store.clock.now())])


class Scrubber:
    """Reads all parts once within so many days, a little at a time and in an order of its own. days: 0: never.

    `step` is called every few seconds. It reads as much as keeps pace, so that a large store is not read at once; after a restart
    it begins anew, in another order.
    """

    def __init__(self, verifier: Verifier, clock: Clock, days: float, report: Callable[[str], None] = lambda part: None) -> None:
        self.verifier, self.clock, self.seconds, self._report = verifier, clock, days * DAY, report
        self.damaged: int | None = None  # parts that were put aside, as of the last count
        self._left: Iterator[tuple[Digest, int]] = iter(())
        self._began, self._counted, self._total, self._done = -math.inf, -math.inf, 0, 0

    def step(self) -> None:
        """Read some. A store that is away disturbs nobody: it is read later."""
        with suppress(FederationError, OSError):
            now = self.clock.now()
            if not 0.0 <= now - self._counted < COUNT_SECONDS:
                self._counted, self.damaged = now, len(self.verifier.part_store.parts.damaged())
            if self.seconds:
                self._read(now)

    def _read(self, now: float) -> None:
        if not 0.0 <= now - self._began < self.seconds:
            self._begin(now)
        began = time.monotonic()
        while self._done <= self._total * (now - self._began) / self.seconds and time.monotonic() - began < CALL_SECONDS:
            if (following := next(self._left, None)) is None:
                return
            digest, size = following
            self._done += size
            if self.verifier.read(digest) is None:
                self._counted = -math.inf
                self._report(digest)
                self.verifier.note([digest], "")
                self.verifier.repaired((digest,))

    def _begin(self, now: float) -> None:
        sizes = [(digest, part.size) for digest, part in self.verifier.part_store.parts.inventory().items()]
        random.shuffle(sizes)
        self._left, self._total, self._done, self._began = iter(sizes), sum(size for _, size in sizes), 0, now
