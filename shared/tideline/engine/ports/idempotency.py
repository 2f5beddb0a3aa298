"""Calls that are done once, however often they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tideline.core.run import Digest
from tideline.engine.model.idempotency import Answer, IdempotencyRecord
from tideline.engine.model.orders import OrderRow
from tideline.engine.model.runs import RunRow
from tideline.engine.ports.runs import anything


class Idempotency(Protocol):
    """Calls with an idempotency key: what was asked, what was chosen, what came of it."""

    def reserve(self, idempotency_record: IdempotencyRecord, over: str = "") -> IdempotencyRecord:
        """The idempotency record that stands under a key: this one if there was none.

        If it asks for the same, and its worker is nobody or still `over`, it becomes this one's worker's.
        Idempotency records that are a day older than this one are forgotten.
        """
        ...

    def choose(self, key: str, plan: Mapping[str, int]) -> Mapping[str, int]:
        """Write what an idempotency record goes by, unless that was chosen before; what was chosen."""
        ...

    def create_once(
        self,
        key: str,
        worker: str,
        runs: Iterable[RunRow],
        orders: Iterable[OrderRow],
        by: str = "",
        here: Callable[[Digest], bool] = anything,
    ) -> None:
        """As `create`, as this worker of an idempotency record; if the first run is there already, nothing is written.

        Raises Unreachable if the idempotency record is another worker's by now: that one does it.
        """
        ...

    def conclude(self, key: str, worker: str, answer: Answer) -> Answer:
        """Write what a record came to, unless that was written before; what was written. Raises as `create_once` does."""
        ...

    def leave(self, key: str, worker: str) -> None:
        """Leave an idempotency record without an answer to whoever comes, if it is still this worker's."""
        ...
