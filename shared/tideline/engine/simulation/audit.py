"""A journal's audit log within a process."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable

from tideline.engine.audit.entries import begun
from tideline.engine.audit.log import ALL, About, AuditEvent, Entry, Tip, chained


class MemoryAudit:
    """Entries in a list. Who writes one holds the lock of what it did."""

    def __init__(self) -> None:
        super().__init__()
        self._audit_lock = threading.Lock()
        self._entries: list[Entry] = chained(Tip(), [begun(0.0, secrets.token_hex(8))])

    def record(self, events: Iterable[AuditEvent]) -> None:
        with self._audit_lock:
            last = self._entries[-1]
            self._entries += chained(Tip(last.seq, last.hash), events)

    def audit(self, after: int = 0, limit: int | None = None, about: About = ALL) -> tuple[Entry, ...]:
        with self._audit_lock:
            found = [entry for entry in self._entries if entry.seq > after and about.fits(entry)]
        return tuple(found[:limit])

    def audit_tip(self) -> Tip:
        with self._audit_lock:
            return Tip(self._entries[-1].seq, self._entries[-1].hash)
