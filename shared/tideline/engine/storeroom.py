"""Parts and the journal's knowledge of them, kept in step."""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tideline.archive.parts import Parts, Upload
from tideline.core.errors import ConfigRefused, FederationError
from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.ports import Clock, Journal
from tideline.engine.rows import Files

MARKER_BYTES = 32
GRACE_SECONDS = 3600.0  # how long a part that nothing refers to yet may wait for the report that names it


def silent(why: str) -> None:
    """Tell nobody."""


class Storeroom:
    """The coordinator's parts, which other coordinators may keep and collect too.

    Keeping writes bytes and then the row; collecting drops bytes while it holds the row. So a row may lose its bytes where
    both meet: a client's part is then missing at the report that names it, and is sent again; a conductor's is looked for
    within the transaction that refers to it.

    pause  seconds between two collections of `tidy`
    tell   is told why a collection failed
    """

    def __init__(
        self, parts: Parts, journal: Journal, clock: Clock, pause: float = 0.0, tell: Callable[[str], None] = silent
    ) -> None:
        self.parts, self.journal, self.clock = parts, journal, clock
        self.pause, self._tell = pause, tell
        self._lock = threading.Lock()
        self._tidied = -math.inf
        self._told = ""

    def keep(self, uploads: Sequence[Upload], run: RunId, client: ClientId) -> None:
        """Commit finished uploads and note them, all of a message at once."""
        digests = [upload.commit() for upload in uploads]
        self.parts.settle(digests)
        self.journal.add_parts(digests, run, client, self.clock.now())

    def missing(self, files: Files, run: RunId, client: ClientId) -> tuple[tuple[Digest, int], ...]:
        """Those of the files that this client must send first, in order, with the offset from which an upload would go on."""
        here = self.journal.held(files, run, client, self.clock.now())
        lacking = [(d, size) for d, size in files if d not in here or not self.parts.has(d)]
        return tuple((digest, self.offset(digest, size, run, client)) for digest, size in lacking)

    def upload(self, digest: Digest, size: int, run: RunId, client: ClientId) -> Upload:
        """Take in a part from a client. Its bytes lie apart from those of another that sends the same part."""
        return self.parts.upload(digest, size, sender(run, client))

    def offset(self, digest: Digest, size: int, run: RunId, client: ClientId) -> int:
        """How much of a part an earlier, cut upload left."""
        return min(self.parts.arrived(digest, sender(run, client)), size)

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

    def sweep(self) -> Swept:
        """Find parts that no row names, such as a process leaves that was killed before it wrote one; then collect."""
        lying, marker = self.parts.lying(), self.journal.marker()
        found = self.journal.adopt({digest: told.written for digest, told in lying.items() if digest != marker})
        gone = frozenset(self.journal.collect(self.clock.now() - GRACE_SECONDS, self.parts.drop))
        kept = {digest: told.size for digest, told in lying.items() if digest not in gone}
        freed = sum(told.size for told in lying.values()) - sum(kept.values())
        return Swept(len(kept), sum(kept.values()), found, len(lying) - len(kept), freed)

    def collect(self) -> int:
        """Forget the parts that nothing refers to any more; how many."""
        return len(self.journal.collect(self.clock.now() - GRACE_SECONDS, self.parts.drop))

    def tidy(self, at_once: bool = False) -> None:
        """Collect if `pause` seconds have passed since the last time, or at once. A store that fails disturbs nobody.

        Why it fails is told once, until it fails otherwise or works again; the next call tries again, a pause later.
        """
        if not self._due(at_once):
            return
        why = ""
        try:
            self.collect()
        except (FederationError, OSError) as error:
            why = str(error)
        with self._lock:
            told, self._told = self._told, why
        if why and why != told:
            self._tell(why)

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


def sender(run: RunId, client: ClientId) -> str:
    """What tells a client's uploads in a run from others of the same part."""
    return f"-{run}-{client}"
