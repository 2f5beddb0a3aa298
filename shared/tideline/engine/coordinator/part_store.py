"""Parts and the journal's knowledge of them, kept in step."""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tideline.archive.parts import Parts, Upload
from tideline.core.errors import ConfigRefused, FederationError, Unreachable
from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.audit import entries
from tideline.engine.model.access.projects import DEFAULT
from tideline.engine.model.experiment import uploader
from tideline.engine.model.orders import Files
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import MOST_DROPPED, Journal

MARKER_BYTES = 32
SLOW_SECONDS = 2.0  # a collection that takes longer is followed by a smaller one
GRACE_SECONDS = 3600.0  # how long a part that nothing refers to yet may wait for the report that names it


class PartStore:
    """The coordinator's parts, which other coordinators may keep and collect too.

    Keeping writes bytes and then the row; collecting puts bytes aside while it holds the row, and destroys them once the row
    is gone for good. So a part may be gone where both meet, but not unknown to the journal: who refers to one that was dropped
    lately looks for it within his own transaction. A client's is then missing at the report that names it, and is sent again;
    a scheduler's round is closed again.

    pause  seconds between two collections of `tidy`
    report is called with the reason of a collection that failed
    """

    def __init__(
        self, parts: Parts, journal: Journal, clock: Clock, pause: float = 0.0, report: Callable[[str], None] | None = None
    ) -> None:
        self.parts, self.journal, self.clock = parts, journal, clock
        self.pause, self._report = pause, report
        self._lock = threading.Lock()
        self._tidied = -math.inf
        self._failure = ""
        self._most = MOST_DROPPED

    def commit(self, uploads: Sequence[Upload], run: RunId, client: ClientId) -> Sequence[Digest]:
        """Commit finished uploads and note them, all of a message at once; gives their names."""
        digests = [upload.commit() for upload in uploads]
        self.parts.sync(digests)
        self.journal.add_parts(digests, run, client, self.clock.now())
        return digests

    def missing(self, files: Files, run: RunId, client: ClientId) -> tuple[tuple[Digest, int], ...]:
        """Those of the files that this client must send first, in order, with the offset from which an upload would go on."""
        here = self.journal.held(files, run, client, self.clock.now())
        lacking = [(d, size) for d, size in files if d not in here or not self.parts.has(d)]
        return tuple((digest, self.offset(digest, size, run, client)) for digest, size in lacking)

    def upload(self, digest: Digest, size: int, run: RunId, client: ClientId) -> Upload:
        """Take in a part from a client. Its bytes lie apart from those of another that sends the same part."""
        return self.parts.upload(digest, size, sender(run, client))

    def offset(self, digest: Digest, size: int, run: RunId, client: ClientId) -> int:
        return min(self.parts.arrived(digest, sender(run, client)), size)

    def upload_initial_weights(self, digest: Digest, size: int) -> Upload:
        """Take in weights that a user gives. Two that send the same do not meet: each has a place of its own."""
        return self.parts.upload(digest, size, f"-weights-{secrets.token_hex(8)}")

    def has_initial_weights(self, digest: Digest, project: str = DEFAULT) -> bool:
        """Whether weights of a project's users are here; their collection is put off, so that a run may name them."""
        return not self.missing(((digest, 0),), *uploader(project))

    def probe(self, data: bytes) -> tuple[bytes, float]:
        """Write a part, read it and drop it: its bytes as they came back, and the seconds that it took. Raises StorageFull.

        Random bytes before the data make a part that nobody else can have, so nothing is dropped that somebody needs.
        """
        before, apart = time.monotonic(), secrets.token_bytes(32)
        digest = self.parts.put([apart, data])
        try:
            back = bytes(self.parts.view(digest))[len(apart) :]
        finally:
            self.parts.drop(digest)
        return back, time.monotonic() - before

    def own(self, where: str) -> None:
        """See that these are the journal's own parts: a marker lies among them. A new journal gets one.

        Raises ConfigRefused if they are another's: runs would miss what they need, and a collection would not find it.
        """
        known = self.journal.marker()
        if known is None:
            ours = self.parts.put([secrets.token_bytes(MARKER_BYTES)])
            known = self.journal.marker(ours)
            if known != ours:
                self.parts.drop(ours)
        if known is None or not self.parts.has(known):
            raise ConfigRefused(
                f"The parts in {where} are not those of this database",
                "Give --parts the place that its other coordinators have, or bring the parts there; or begin with a new database",
                path="parts",
            )

    def check_here(self) -> None:
        """Raises Unreachable where the parts as a whole are away, such as a disk that is not mounted: no run is to blame."""
        marker = self.journal.marker()
        if marker is not None and not self.parts.has(marker):
            raise Unreachable("The coordinator's parts are away", "Bring them back; the round is closed again by itself")

    def sweep(self, by: str = "") -> Swept:
        """Find parts that no row names, such as a process leaves that was killed before it wrote one; then collect.

        What has lain aside for a while was left by a process that died: it is brought back, and then treated as any other.
        What went stands in the audit log, also if the sweep failed behind it. `by`: who asked, as the log tells.
        """
        self.parts.recover(self.clock.now() - GRACE_SECONDS)
        inventory, marker = self.parts.inventory(), self.journal.marker()
        found = self.journal.adopt({digest: part.written for digest, part in inventory.items() if digest != marker})
        gone = set[Digest]()
        try:
            self._collect_into(gone)
        finally:
            swept = left({digest: part.size for digest, part in inventory.items()}, gone, found)
            if swept.dropped:
                self.journal.record([entries.parts_swept(swept.dropped, swept.freed, by, self.clock.now())])
        return swept

    def collect(self) -> int:
        gone = set[Digest]()
        self._collect_into(gone)
        return len(gone)

    def _collect_into(self, gone: set[Digest]) -> None:
        """Forget some after some, so that others have their turn at the journal between; `gone` gets those that are gone."""
        while some := self._collect_some():
            gone.update(some)

    def _collect_some(self) -> frozenset[Digest]:
        """One transaction. What it put aside is destroyed if it succeeds, and brought back if not: if the process dies in
        between it lies aside, where whoever asks for it finds it.
        """
        aside, tried, laid = self.parts.aside(), set[Digest](), set[Digest]()

        def drop(digests: Collection[Digest]) -> None:
            aside.back()  # what a try took that the database has undone
            laid.clear()
            laid.update(digests)
            tried.update(digests)
            aside.take(digests)

        gone: frozenset[Digest] = frozenset()
        began = self.clock.now()
        try:
            gone = frozenset(self.journal.collect(began - GRACE_SECONDS, drop, self._most))
        except Exception:
            with suppress(FederationError, OSError):  # it lies aside, then
                aside.back()
            raise
        finally:
            self._pace(bool(gone or not tried) and self.clock.now() - began <= SLOW_SECONDS)
            self._note(tried - gone)
        if laid <= gone:
            aside.destroy()
        else:
            aside.back()  # the database undid a try, and the next one dropped nothing
        return gone

    def _pace(self, well: bool) -> None:
        """Take fewer at once where it fails or takes long: a database ends a transaction that waits for a slow store."""
        self._most = min(2 * self._most, MOST_DROPPED) if well else max(self._most // 4, 1)

    def _note(self, back: Collection[Digest]) -> None:
        """See that what was brought back has rows: of a commit that failed nobody knows whether it was done."""
        with suppress(FederationError):
            if back:
                self.journal.adopt(dict.fromkeys(back, self.clock.now()))

    def tidy(self, at_once: bool = False) -> None:
        """Collect if `pause` seconds have passed since the last time, or at once. A store that fails disturbs nobody.

        A reason is reported once, until there is another or it works again; the next call tries again, a pause later.
        """
        if not self._due(at_once):
            return
        why = ""
        try:
            self.collect()
        except (FederationError, OSError) as error:
            why = str(error)
        with self._lock:
            before, self._failure = self._failure, why
        if why and why != before and self._report:
            self._report(why)

    def _due(self, at_once: bool) -> bool:
        """Whether it is time to collect; then it has just been done. A clock that was set back makes nobody wait."""
        with self._lock:
            now = self.clock.now()
            due = at_once or not 0.0 <= now - self._tidied < self.pause
            self._tidied = now if due else self._tidied
            return due


@dataclass(frozen=True)
class Swept:
    """What a sweep left and found: parts kept and their bytes, parts that nobody knew, parts dropped and their bytes."""

    kept: int
    bytes: int
    found: int
    dropped: int
    freed: int


def left(inventory: Mapping[Digest, int], gone: Collection[Digest], found: int) -> Swept:
    kept = [size for digest, size in inventory.items() if digest not in gone]
    return Swept(
        kept=len(kept),
        bytes=sum(kept),
        found=found,
        dropped=len(inventory) - len(kept),
        freed=sum(inventory.values()) - sum(kept),
    )


def sender(run: RunId, client: ClientId) -> str:
    return f"-{run}-{client}"
