"""What runs reserved and were not charged is free again once they are over: the coordinator is asked now and then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tideline.core.run import RunId
from tideline.engine.ports.ledger import Ledger

ASK_BEATS = 2  # of which one asks


@dataclass
class Releasing:
    """Asks which runs with an account are over, among the runs that are asked about anyway."""

    ledger: Ledger
    _beats: int = 0

    def asks(self, quiet: Sequence[RunId]) -> tuple[RunId, ...]:
        """The runs to ask about with the next sign of life. quiet: those that are asked about for another reason."""
        self._beats += 1
        more = self.ledger.open_accounts() if self._beats % ASK_BEATS == 0 else ()
        return tuple(dict.fromkeys((*quiet, *more)))

    def heard(self, over: Iterable[RunId]) -> None:
        """These runs are over. If that is not true, nothing is gained by it: what comes later must fit as well."""
        for run in over:
            self.ledger.release(run)
