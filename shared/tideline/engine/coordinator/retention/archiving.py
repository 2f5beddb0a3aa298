"""Old entries of the audit log go into files, and only then out of the database.

A file is whole and on the disk before its entries are taken out, in one transaction that also says so. Whatever a kill leaves is
a file that the next step finds, reads again, and goes on with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Protocol

from tideline.core.errors import ChainBroken, FederationError, Unreachable
from tideline.engine.audit.archived import Span, archived, content_of, entries_in
from tideline.engine.audit.log import Entry, Tip, follow
from tideline.engine.coordinator.retention.keeping import CALL_SECONDS, DAY, PAUSE_SECONDS
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import AuditLog

MOST_ENTRIES = 5000  # of a file; one with fewer is written once a day


class Archive(Protocol):
    """Where the files lie. Nothing in it is ever written over by other content, or deleted. Raises OSError, StorageFull."""

    def spans(self) -> Sequence[Span]:
        """The files that are there."""

    def read(self, span: Span) -> bytes: ...

    def write(self, span: Span, content: bytes) -> None:
        """Write a file, whole or not at all, safe from a power cut when this returns."""


class Archiving:
    """Applies the rule for the audit log. `step` is called every few seconds, by each coordinator.

    days    the age at which entries go
    report  is called with each file that was written and whose entries went
    failed  is called with what is in the way, when that is another thing than before; with nothing when it is over
    """

    def __init__(
        self,
        journal: AuditLog,
        archive: Archive,
        clock: Clock,
        days: float,
        report: Callable[[Span], None] = lambda span: None,
        failed: Callable[[str], None] = lambda why: None,
        most: int = MOST_ENTRIES,
    ) -> None:
        self._journal, self._archive, self._clock, self._most = journal, archive, clock, most
        self.days, self._report, self._failed = days, report, failed
        self._looked, self._more = -math.inf, False
        self.trouble = ""  # why entries that are due are still in the database

    def step(self) -> None:
        """Archive some of what is due. What is in the way is told once, and tried again at the next look."""
        now = self._clock.now()
        if not self._more and 0.0 <= now - self._looked < PAUSE_SECONDS:
            return
        self._looked, self._more, trouble = now, False, self.trouble
        try:
            began = time.monotonic()
            while (more := self._some(now)) and time.monotonic() - began < CALL_SECONDS:
                pass
            self._more, self.trouble = more, ""
        except Unreachable:
            pass  # a database that is away is told of elsewhere
        except (FederationError, OSError) as error:
            self.trouble = str(error)
        if self.trouble != trouble:
            self._failed(self.trouble)

    def due(self, now: float) -> int:
        """How many entries go into the next file."""
        return len(self._batch(self._journal.audit_base(), now))

    def _some(self, now: float) -> bool:
        """One file's worth. False if nothing is due."""
        base = self._journal.audit_base()
        span = self._left_behind(base) or self._written(base, now)
        if span is None:
            return False
        content = self._archive.read(span)
        last = follow(base, entries_in(span, content, base))
        event = archived(span, last, content, f"--retain-audit-days {self.days:g}", now)
        if self._journal.trim_audit(base, last, event):
            self._report(span)
        elif self._journal.audit_base() == base:
            what = f"The archive's file {span.name} has other entries than the database"
            todo = "If the database was restored from a backup, move that file and later ones to another folder"
            raise ChainBroken(what, todo, entry=span.last, file=span.name)
        return True

    def _left_behind(self, base: Tip) -> Span | None:
        """The file behind a base that somebody wrote and did not come to take out of the database."""
        return max((span for span in self._archive.spans() if span.first <= base.seq + 1 <= span.last), default=None)

    def _written(self, base: Tip, now: float) -> Span | None:
        """A new file with what is due. Raises ChainBroken for a log that was changed: then all of it stays, as evidence."""
        batch = self._batch(base, now)
        if not batch:
            return None
        follow(base, batch)
        span = Span(batch[0].seq, batch[-1].seq)
        self._archive.write(span, content_of(batch))
        return span

    def _batch(self, base: Tip, now: float) -> list[Entry]:
        """The entries of the next file: as many as it may have, or all that are due if the first was due a day ago."""
        before = now - DAY * self.days
        found = self._journal.audit(base.seq, self._most + 1)
        old = list(takewhile(lambda entry: entry.at < before, found[: self._most]))
        if len(old) == len(found):
            old = old[:-1]  # the last entry stays: the next one is chained to it
        full = len(old) == self._most
        return old if full or (old and old[0].at < before - DAY) else []
