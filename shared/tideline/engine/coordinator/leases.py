"""Which runs this coordinator conducts, where several watch one journal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from tideline.core.run import RunId
from tideline.engine.model.runs import Lease
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal

BEATS = 3  # signs of life within a lease's time


def silently(lease: Lease) -> None:
    """Nobody is told of a takeover."""


class Leases:
    """Keeps the leases of one holder. Any number of threads.

    No clock is compared with another's: a lease ends for an observer who has seen no sign of life for its time by a clock of
    his own. Somebody who was frozen for longer finds out by his next write, which is refused. A holder's name belongs to one
    process at a time, so that one that was killed takes its runs up again at once.
    """

    def __init__(
        self, journal: Journal, clock: Clock, holder: str, seconds: float, taken: Callable[[Lease], None] = silently
    ) -> None:
        self.journal, self.clock, self.holder, self.seconds, self.taken = journal, clock, holder, seconds, taken
        self._lock = threading.Lock()
        self._held: dict[RunId, Lease] = {}
        self.elsewhere = False  # whether others conduct open runs, as of the last look
        self._seen: dict[RunId, tuple[Lease, float]] = {}  # of others, and since when it has been as it is

    def look(self) -> frozenset[RunId]:
        """Give a sign of life for what is held, take what is free; every run that is held now. Call it every `pause` seconds."""
        with self._lock:
            self._held = by_run(self.journal.renew(self._held.values()))
            found = self.journal.leases()
            self._held = {lease.run: self._held[lease.run] for lease in found if lease.run in self._held}
            self._claim(found)
            self._seen = {lease.run: self._seen[lease.run] for lease in found if lease.run in self._seen}
            self.elsewhere = any(lease.run not in self._held for lease in found)
            return frozenset(self._held)

    def take(self, run: RunId) -> int | None:
        """The token of a run's lease, taken now if it is free; None while another holds it, or if the run is not open."""
        known = self._held.get(run)  # without the lock, which is held for as long as all leases are looked at
        if known is not None:
            return known.token
        with self._lock:
            if run not in self._held:
                self._claim(self.journal.leases(run))
            return self._held[run].token if run in self._held else None

    def lose(self, run: RunId) -> None:
        """Another holds the run's lease now."""
        with self._lock:
            self._held.pop(run, None)

    def close(self) -> None:
        """Leave every run to the others, who need not wait."""
        with self._lock:
            self.journal.release(self._held.values())
            self._held = {}

    @property
    def pause(self) -> float:
        """Seconds between two looks."""
        return self.seconds / BEATS

    def _claim(self, found: Iterable[Lease]) -> None:
        free = [lease for lease in found if lease.run not in self._held and self._free(lease)]
        if free:
            claimed = by_run(self.journal.claim(free, self.holder, self.seconds))
            self._held |= claimed
            for lease in free:
                if lease.run in claimed and lease.holder not in ("", self.holder):
                    self.taken(lease)

    def _free(self, lease: Lease) -> bool:
        """Nobody's, our own from before, or one whose holder has been silent for its time."""
        if lease.holder in ("", self.holder):
            return True
        now = self.clock.now()
        known, since = self._seen.get(lease.run, (None, now))
        if known != lease:
            since = now
        self._seen[lease.run] = (lease, since)
        return now - since > lease.seconds


def by_run(leases: Iterable[Lease]) -> dict[RunId, Lease]:
    """Leases under their runs' names."""
    return {lease.run: lease for lease in leases}
