"""What outlives a restore of the database: revocations, used tokens and new keys, as records beside the parts.

Each is written there before it is acknowledged. A database that lacks some was restored: they are applied again. Where the
records were restored, too, agents that remember a newer tip show that some are missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NoReturn

from tideline.archive.records import MemoryRecords, Records
from tideline.core.errors import FederationError, Refused, Unreachable
from tideline.engine.audit.log import Entry, Tip, line_of
from tideline.engine.audit.witness import Mark, Seen, follows, genuine, record_in, restored, seen
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal

CONFIRM = "tideline restored --confirm"
Report = Callable[[Entry], object]


class Witness:
    """The witness of a coordinator. Any number of threads; what it knows of the journal is read with `begin` and `turn`.

    records  where the records of a chain lie
    report   is called with each restore that is found
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        records: Callable[[str], Records] = lambda chain: MemoryRecords(),
        report: Report = lambda entry: None,
    ) -> None:
        self._journal, self._clock, self._report = journal, clock, report
        self._open = records
        self._lock = threading.RLock()  # held by who compares or writes records
        self._mark: Mark | None = None
        self._records: Records = MemoryRecords()
        self._sealed = 0  # the number up to which the records are known to be there

    def begin(self) -> None:
        """Compare the database with its records, and bring the one that lacks some up to date. Raises Unreachable."""
        with self._lock:
            self._mark = self._journal.witness_mark()
            self._records, self._sealed = self._open(self._mark.chain), 0
            self._compare()

    def turn(self) -> None:
        """Read how far the database is, and write the records that are not there yet. Raises as `begin`."""
        with self._lock:
            if self._mark is None:
                return
            before, self._mark = self._mark.restored, self._journal.witness_mark()
            if self._mark.restored is not None and self._mark.restored != before:
                self._report(self._mark.restored)
            if self._sealed < self._mark.tip.seq:
                self._seal()

    def seal(self) -> None:
        """Have what was just done witnessed, before it is acknowledged. Raises Unreachable, StorageFull; then do it again."""
        try:
            self.turn()
        except FederationError as error:
            todo = f"It is done, but a restored database would forget it: repeat the command. {error.todo}"
            raise type(error)(f"The witness beside the parts cannot be written: {error.what}", todo) from None

    def shown(self, given: Seen) -> None:
        """An agent shows the newest tip that it remembers. Raises Unreachable while nobody is let in."""
        if self._news(given):
            with self._lock:
                self._mark = self._journal.witness_mark()
                if self._lacks(given):
                    self._compare()
                if self._lacks(given):
                    self._lost(given)
        self.check()

    def check(self) -> None:
        """Raises Unreachable while nobody may be let in: who was revoked is not known."""
        if self.closed:
            raise_closed()

    @property
    def behind(self) -> bool:
        """Whether a record is not known to be beside the parts yet."""
        return self._mark is not None and self._sealed < self._mark.tip.seq

    @property
    def closed(self) -> bool:
        """Whether records are lost, and no admin has confirmed that yet."""
        waiting = self.restored
        return waiting is not None and bool(waiting.details["lost"])

    @property
    def restored(self) -> Entry | None:
        """The restore that waits to be confirmed."""
        return None if self._mark is None else self._mark.restored

    @property
    def seen(self) -> Seen:
        """What agents are given to remember."""
        return Seen() if self._mark is None else seen(self._mark)

    def warnings(self) -> tuple[str, ...]:
        """What is wrong, for everybody: so without names."""
        waiting = self.restored
        return () if waiting is None else (sentence(waiting),)

    def confirm(self, by: str) -> Entry:
        """End a restore: its entry. Raises Refused where none waits."""
        waiting = self.restored
        if waiting is None or not self._journal.confirm_restore(by, self._clock.now()):
            raise Refused("No restore of the database waits to be confirmed", "Nothing is to be done")
        self.seal()
        return waiting

    def _news(self, given: Seen) -> bool:
        """Whether a tip is another one than what is known here. Asks nobody: agents show the same one all the time."""
        mark = self._mark
        return mark is not None and given.seq > mark.lost_at and given.hash != mark.tip.hash and genuine(mark, given)

    def _lacks(self, given: Seen) -> bool:
        """Whether this database has forgotten a tip that it gave away."""
        mark = self._mark
        if mark is None or given.seq <= mark.lost_at:
            return False
        there = self._journal.witness(given.seq - 1)[:1]
        return not there or (there[0].seq, there[0].hash) != (given.seq, given.hash)

    def _lost(self, given: Seen) -> None:
        assert self._mark is not None
        ours = self._mark.tip
        tip = Tip(given.seq, given.hash) if given.seq > ours.seq else ours
        found = restored((), ours.seq, given.seq, True, self._clock.now())
        self._journal.catch_up((), found, ours.seq, tip)
        self.turn()

    def _compare(self) -> None:
        """With the lock held: apply the records that the database lacks, and write those that lie beside the parts no more."""
        assert self._mark is not None
        missing, known, gap = self._missing()
        if missing or gap:
            last = gap or missing[-1].seq
            found = restored(missing, known.seq, last, bool(gap), self._clock.now())
            behind = Tip(gap, missing[-1].hash if missing else known.hash) if gap else None
            self._journal.catch_up(missing, found, known.seq, behind)
            self._sealed = last
        elif self._sealed == 0:
            self._sealed = known.seq
        self._mark = self._journal.witness_mark()
        if self._mark.restored is not None:
            self._report(self._mark.restored)
        if self._sealed < self._mark.tip.seq:
            self._seal()

    def _missing(self) -> tuple[list[Entry], Tip, int]:
        """The records that the database lacks, the last one before them that both have, and the last if one is unreadable."""
        last, ours = self._records.last(), {entry.seq: entry for entry in self._journal.witness()}
        at = min(last, max(ours, default=0))
        while at and (at not in ours or self._read(at) not in (None, ours[at])):  # one that is damaged contradicts nobody
            at -= 1
        known = Tip(at, ours[at].hash) if at else Tip()
        missing, tip, gap = list[Entry](), known, False
        for record in map(self._read, range(at + 1, last + 1)):
            if record is None:
                gap = True
                continue
            gap = not follows(tip, record) or (gap and not record.details.get("lost"))
            missing.append(record)
            tip = Tip(record.seq, record.hash)
        return missing, known, last if gap else 0

    def _read(self, number: int) -> Entry | None:
        content = self._records.read(number)
        return None if content is None else record_in(content, number)

    def _seal(self) -> None:
        """With the lock held. Another's record in the place of one of ours: this database is older than it."""
        for entry in self._journal.witness(self._sealed):
            if not self._records.write(entry.seq, line_of(entry).encode()) and any(self._missing()[::2]):
                self._compare()
                return
            self._sealed = entry.seq


def raise_closed() -> NoReturn:
    raise Unreachable(
        "The database was restored from a backup, and so was its witness: nobody knows who was revoked since",
        f"An admin of the coordinator sees to it: {CONFIRM}",
    )


def sentence(entry: Entry) -> str:
    """A restore in words, without names."""
    details = entry.details
    count = int(details["to"]) - int(details["from"])
    if details["lost"]:
        return (
            "the database and its witness are older than what agents remember: they were restored from a backup. Who was revoked "
            f"since is not known, so agents and the keys of users wait; see `tideline restored`, then `{CONFIRM}`"
        )
    return (
        f"the database is older than its witness: it was restored from a backup. {count} revocations, new keys, used tokens and "
        f"the like since then are in force again; see `tideline restored`, then `{CONFIRM}`"
    )
