"""The journal's audit log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tideline.engine.audit.log import ALL, About, AuditEvent, Entry, Tip


class AuditLog(Protocol):
    """The audit log. What a method of the other ports does is recorded in the same transaction."""

    def record(self, events: Iterable[AuditEvent]) -> None:
        """Write into the audit log what changes nothing else."""
        ...

    def audit(self, after: int = 0, limit: int | None = None, about: About = ALL) -> tuple[Entry, ...]:
        """Entries of the audit log with a higher number, in order, at most so many."""
        ...

    def audit_tip(self) -> Tip:
        """The last entry of the audit log."""
        ...
