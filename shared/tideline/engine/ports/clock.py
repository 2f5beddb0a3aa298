"""Time, and the hint that something moved."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Seconds since the epoch."""

    def now(self) -> float: ...


class Bell(Protocol):
    """A hint that something moved; may be lost. Topics: `client:NAME`, `run:ID`."""

    def ring(self, topic: str) -> None: ...
