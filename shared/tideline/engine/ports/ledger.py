"""Where a site writes what it let happen, and what its owner has said. The agent's home holds it as a file, chained by hashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tideline.core.run import Digest, RunId
from tideline.core.settings import Plain
from tideline.engine.audit.log import Tip


@dataclass(frozen=True)
class Spent:
    """Of a day: runs that began, replies, and their bytes."""

    runs: int = 0
    replies: int = 0
    bytes: int = 0


class Ledger(Protocol):
    """Append-only. What `record` was given is on the disk when it returns."""

    def record(self, kind: str, **facts: Plain) -> None: ...

    def tip(self) -> Tip:
        """The last entry; the beginning of what has none."""

    def word(self, run: RunId) -> bool | None:
        """What the owner has said of a run: it may run, it may not; None: nothing yet."""

    def approved(self, intent: Digest) -> bool:
        """Whether a run that asks for the same was approved before, and none has been declined since."""

    def began(self, run: RunId) -> bool:
        """Whether the run has begun here."""

    def spent(self, since: float) -> Spent:
        """What was spent from a time on, in seconds since 1970."""


class NoLedger:
    """Of a site whose owner asks for none, such as one that is simulated: nobody is asked, and nothing is counted."""

    def record(self, kind: str, **facts: Plain) -> None: ...

    def tip(self) -> Tip:
        return Tip()

    def word(self, run: RunId) -> bool | None:
        return True

    def approved(self, intent: Digest) -> bool:
        return True

    def began(self, run: RunId) -> bool:
        return True

    def spent(self, since: float) -> Spent:
        return Spent()


NO_LEDGER = NoLedger()
