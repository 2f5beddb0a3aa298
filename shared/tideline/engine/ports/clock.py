"""Time, and the hint that something moved."""

from __future__ import annotations

from typing import Protocol

from tideline.engine.model.runs import RoundRow, RunRow


class Clock(Protocol):
    """Seconds since the epoch."""

    def now(self) -> float: ...


class Bell(Protocol):
    """A hint that something moved; may be lost. Topics: `client:NAME`, `run:ID`."""

    def ring(self, topic: str) -> None: ...


class Meter:
    """Hears what happens, on any thread. This one forgets it."""

    def closed(self, run: RunRow, closed: RoundRow) -> None:
        """A round of a run was closed."""

    def replied(self, run: RunRow, cursor: int, verdict: str) -> None:
        """A client reported, and got this verdict. `missing` is no answer yet."""

    def sent(self, nbytes: int) -> None:
        """Bytes of parts went down to a client."""

    def received(self, nbytes: int) -> None:
        """Bytes of parts came up from a client, and are kept."""


SILENT = Meter()
