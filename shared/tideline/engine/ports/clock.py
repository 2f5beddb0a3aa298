"""Time, and the hint that something moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tideline.core.run import ClientId
from tideline.core.settings import EMPTY
from tideline.engine.model.runs import RoundRow, RunRow


class Clock(Protocol):
    """Seconds since the epoch."""

    def now(self) -> float: ...


class Bell(Protocol):
    """A hint that something moved; may be lost. Topics: `client:NAME`, `run:ID`."""

    def ring(self, topic: str) -> None: ...


class Meter:
    """Hears what happens, on any thread. This one forgets it."""

    def closed(self, run: RunRow, closed: RoundRow, epsilon: Mapping[ClientId, float] = EMPTY, over: bool = False) -> None:
        """A round of a run was closed. epsilon: what each site of a private run has spent by then. over: the run is."""

    def replied(self, run: RunRow, cursor: int, verdict: str) -> None:
        """A client reported, and got this verdict. `missing` is no answer yet."""

    def sent(self, nbytes: int) -> None:
        """Bytes of parts went down to a client."""

    def received(self, nbytes: int) -> None:
        """Bytes of parts came up from a client, and are kept."""


SILENT = Meter()
