"""The operator's rules of age, kept beside all else: a little at a time, and whatever a kill leaves is done at the next step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tideline.core.errors import FederationError, Refused
from tideline.core.run import RunId
from tideline.engine.coordinator.retention.deleting import Deleting
from tideline.engine.model.deletion import Tombstone
from tideline.engine.model.runs import RunRow

DAY = 86400.0
PAUSE_SECONDS = 600.0  # between two searches for what is due
CALL_SECONDS = 1.0  # for which a step works; the rest is left to the next one
MOST_EVENTS = 1000  # of one transaction


@dataclass(frozen=True)
class Rules:
    """Days after a run's end that it, or its events, are kept. 0: for ever."""

    runs_days: float = 0.0
    events_days: float = 0.0


class Aging(Protocol):
    """What a journal can thin out that is old."""

    def drop_events(self, before: float, most: int) -> int:
        """Delete some events of runs that were over before a moment, all but the last of each run; how many.

        The last one says how the run ended, and later ones are numbered after it. One transaction.
        """

    def old_events(self, before: float) -> int:
        """How many `drop_events` would delete in all."""


class Retention:
    """Applies the rules. `step` is called every few seconds, by each coordinator: who comes second finds nothing to do.

    report is called with what remains of each run that went.
    """

    def __init__(
        self, deleting: Deleting, aging: Aging, rules: Rules, report: Callable[[Tombstone], None] = lambda gone: None
    ) -> None:
        self.deleting, self.aging, self.rules, self._report = deleting, aging, rules, report
        self._searched = -math.inf
        self._due: list[RunId] = []
        self._events_due = False

    def step(self) -> None:
        """Delete some of what is due. A store that is away disturbs nobody: it is done later."""
        with suppress(FederationError, OSError):
            now = self.deleting.clock.now()
            if not 0.0 <= now - self._searched < PAUSE_SECONDS:
                self._find(now)
            began = time.monotonic()
            while self._some(now) and time.monotonic() - began < CALL_SECONDS:
                pass

    def _find(self, now: float) -> None:
        self._due = list(reversed(self.due(now))) if self.rules.runs_days else []
        self._events_due = bool(self.rules.events_days)
        self._searched = now

    def _some(self, now: float) -> bool:
        """One transaction's worth. False if nothing is left."""
        if self._due:
            self._delete(self._due[-1])
            self._due.pop()
            return True
        if self._events_due:
            self._events_due = self.aging.drop_events(now - DAY * self.rules.events_days, MOST_EVENTS) > 0
        return self._events_due

    def _delete(self, run: RunId) -> None:
        with suppress(Refused):  # one that belongs to it is not over, or it is gone already
            self._report(self.deleting.delete(run, rule=f"--retain-runs-days {self.rules.runs_days:g}"))

    def due(self, now: float) -> list[RunId]:
        """The runs that the rule deletes now, in order; with each go those that belong to it, once all are old enough."""
        before = now - DAY * self.rules.runs_days
        families = ((run, self._family(run)) for run in self.deleting.journal.due_runs(before))
        return [run for run, family in families if family and all(over(row, before) for row in family)]

    def _family(self, run: RunId) -> list[RunRow]:
        with suppress(Refused):
            return self.deleting.family(run)
        return []


def over(row: RunRow, before: float) -> bool:
    return row.ended is not None and row.ended < before


@dataclass(frozen=True)
class Outlook:
    """What the rules would delete at the next look: runs, and how many events in all."""

    rules: Rules
    runs: tuple[RunRow, ...]
    events: int


def outlook(retention: Retention) -> Outlook:
    now, rules, journal = retention.deleting.clock.now(), retention.rules, retention.deleting.journal
    rows = [journal.run(run) for run in retention.due(now)] if rules.runs_days else []
    events = retention.aging.old_events(now - DAY * rules.events_days) if rules.events_days else 0
    return Outlook(rules, tuple(row for row in rows if row is not None), events)
