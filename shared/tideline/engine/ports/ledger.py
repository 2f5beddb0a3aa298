"""Where a site writes what it let happen, and what its owner has said. The agent's home holds it as a file, chained by hashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tideline.core.run import Digest, RunId
from tideline.core.settings import Plain
from tideline.engine.audit.log import Tip
from tideline.engine.epsilon.budget import Decide


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

    def word(self, run: RunId, intent: Digest) -> bool | None:
        """What the owner has said of a run: it may run, as far as it asks for this; it may not; None: nothing yet."""

    def approved(self, intent: Digest) -> bool:
        """Whether a run that asks for the same was approved before, and none has been declined since."""

    def stands(self, method: str, intent: Digest) -> bool | None:
        """What the owner decided once for all such runs: always (for the same intent), never (for the method); None: nothing."""

    def paused(self) -> bool:
        """Whether the owner has the agent begin nothing."""

    def began(self, run: RunId) -> bool:
        """Whether the run has begun here."""

    def spent(self, since: float) -> Spent:
        """What was spent from a time on, in seconds since 1970."""

    def account(self, run: RunId, decide: Decide) -> None:
        """Write the entries about a run that follow from all that stands there on private runs: no other writer comes between.

        Raises what `decide` raises, and then no more is written; BudgetExceeded where entries are known to be missing.
        """

    def charges(self) -> int:
        """How often a budget was charged."""

    def open_accounts(self) -> tuple[RunId, ...]:
        """Private runs that were charged or may be, and are not over as far as the ledger knows."""

    def release(self, run: RunId) -> None:
        """A run is over: what it reserved and was not charged is free again."""


class NoLedger:
    """Of a site whose owner asks for none, such as one that is simulated: nobody is asked, and nothing is counted."""

    def record(self, kind: str, **facts: Plain) -> None: ...

    def tip(self) -> Tip:
        return Tip()

    def word(self, run: RunId, intent: Digest) -> bool | None:
        return True

    def approved(self, intent: Digest) -> bool:
        return True

    def stands(self, method: str, intent: Digest) -> bool | None:
        return None

    def paused(self) -> bool:
        return False

    def began(self, run: RunId) -> bool:
        return True

    def spent(self, since: float) -> Spent:
        return Spent()

    def account(self, run: RunId, decide: Decide) -> None: ...

    def charges(self) -> int:
        return 0

    def open_accounts(self) -> tuple[RunId, ...]:
        return ()

    def release(self, run: RunId) -> None: ...


NO_LEDGER = NoLedger()
