"""Notes of agents become events of their runs: validated, bounded, and counted where they are too many."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tideline.core.errors import IdentityRefused, NotFound
from tideline.core.notes import Level, Note
from tideline.core.run import ClientId, OrderId, RunId
from tideline.core.settings import Plain
from tideline.engine.coordinator.agent_service import AgentService
from tideline.engine.model.orders import OrderRow
from tideline.engine.model.runs import FINAL, RunRow

NOTE = "note"  # the kind of their events
PER_CLIENT, PER_RUN = 30, 120  # notes a minute that are written; of either, what is only information gets half
MINUTE = 60.0


@dataclass
class Minute:
    """A run's minute: when it began, what was written of whom, and what was left out."""

    began: float
    written: Counter[ClientId] = field(default_factory=Counter)
    left_out: Counter[ClientId] = field(default_factory=Counter)

    def admits(self, client: ClientId, level: Level) -> bool:
        """Whether one more may be written; counts it either way."""
        share = 2 if level is Level.INFO else 1
        good = self.written[client] < PER_CLIENT // share and self.written.total() < PER_RUN // share
        (self.written if good else self.left_out)[client] += 1
        return good


class Notebook:
    """Writes notes into the journal. Any number of threads; what is left out is told when the minute is over."""

    def __init__(self, agent_service: AgentService) -> None:
        self.agent_service = agent_service
        self._lock = threading.Lock()
        self._minutes: dict[RunId, Minute] = {}

    def take(self, client: ClientId, notes: Iterable[tuple[OrderId, Note]]) -> None:
        """A client's notes on its own orders; those of orders that are gone with their runs are passed over.

        Raises IdentityRefused for an order that is not its own.
        """
        self.flush()
        for order, note in notes:
            try:
                row = self.agent_service.own(client, order)
            except NotFound:
                continue
            run = self.agent_service.run(row)
            if client not in run.roster:
                raise IdentityRefused(f"{client} takes no part in run {row.run}")
            if not self._over(run) and self._admits(row, note):
                self._tell(row.run, note, {"client": row.client, "order": row.id, "cursor": row.cursor})

    def overdue(self) -> bool:
        """Whether a minute is over in which something was left out. Asks nobody."""
        now = self.agent_service.clock.now()
        return any(minute.left_out and now >= minute.began + MINUTE for minute in tuple(self._minutes.values()))

    def flush(self) -> None:
        """End the minutes that are over, and say what was left out in them."""
        now = self.agent_service.clock.now()
        with self._lock:
            over = {run: minute for run, minute in self._minutes.items() if not 0 <= now - minute.began < MINUTE}
            self._minutes = {run: minute for run, minute in self._minutes.items() if run not in over}
        for run, minute in over.items():
            if minute.left_out:
                self._tell(run, Note("left_out", {"count": minute.left_out.total()}), only(minute.left_out))

    def _over(self, run: RunRow) -> bool:
        """Whether a run has ended, and not just now: notes may come a little after the answers that ended it."""
        return run.status in FINAL and self.agent_service.clock.now() >= (run.ended or 0.0) + MINUTE

    def _admits(self, row: OrderRow, note: Note) -> bool:
        with self._lock:
            minute = self._minutes.setdefault(row.run, Minute(self.agent_service.clock.now()))
            return minute.admits(row.client, note.level)

    def _tell(self, run: RunId, note: Note, whose: dict[str, Plain]) -> None:
        told = {"note": note.kind, "level": note.level.value, "what": note.sentence}
        data = whose | told | {"numbers": dict(note.numbers), "words": dict(note.words)}
        self.agent_service.journal.event(run, NOTE, data, self.agent_service.clock.now())
        self.agent_service.bell.ring(f"run:{run}")


def only(left_out: Counter[ClientId]) -> dict[str, Plain]:
    """Whose notes were left out, where they are all of one client."""
    return {"client": next(iter(left_out))} if len(left_out) == 1 else {}
