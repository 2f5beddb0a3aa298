"""The operator's rules of age, kept beside all else: a little at a time, and whatever a kill leaves is done at the next step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tideline.core.errors import FederationError, Refused
from tideline.core.run import RunId
from tideline.engine.coordinator.retention.deleting import Deleting
from tideline.engine.model.access.projects import Project
from tideline.engine.model.deletion import NEVER, Cutoffs, Tombstone
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

    def of(self, project: Project) -> Rules:
        """Those of a project, which may have its own."""
        own = project.quota
        return Rules(
            self.runs_days if own.retain_runs_days is None else own.retain_runs_days,
            self.events_days if own.retain_events_days is None else own.retain_events_days,
        )


@dataclass(frozen=True)
class AllRules:
    """The coordinator's rules, and those of the projects that have others."""

    others: Rules
    projects: Mapping[str, Rules]

    def runs_before(self, now: float) -> Cutoffs:
        return Cutoffs(moment(now, self.others.runs_days), {n: moment(now, r.runs_days) for n, r in self.projects.items()})

    def events_before(self, now: float) -> Cutoffs:
        return Cutoffs(moment(now, self.others.events_days), {n: moment(now, r.events_days) for n, r in self.projects.items()})


def moment(now: float, days: float) -> float:
    """The moment so many days ago; 0 days: for ever."""
    return now - DAY * days if days else NEVER


class Aging(Protocol):
    """What a journal can thin out that is old."""

    def drop_events(self, before: Cutoffs, most: int) -> int:
        """Delete some events of runs that were over before their project's moment, all but the last of each run; how many.

        The last one says how the run ended, and later ones are numbered after it. One transaction.
        """

    def old_events(self, before: Cutoffs) -> int:
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
        self._events_before = Cutoffs()

    def step(self) -> None:
        """Delete some of what is due. A store that is away disturbs nobody: it is done later."""
        with suppress(FederationError, OSError):
            now = self.deleting.clock.now()
            if not 0.0 <= now - self._searched < PAUSE_SECONDS:
                self._find(now)
            began = time.monotonic()
            while self._some() and time.monotonic() - began < CALL_SECONDS:
                pass

    def _find(self, now: float) -> None:
        rules = self.all_rules()
        self._due = list(reversed(self.due(rules.runs_before(now))))
        self._events_before = rules.events_before(now)
        self._searched = now

    def all_rules(self) -> AllRules:
        """The rules as they are now."""
        projects = {each.name: self.rules.of(each) for each in self.deleting.journal.projects()}
        return AllRules(self.rules, {name: own for name, own in projects.items() if own != self.rules})

    def _some(self) -> bool:
        """One transaction's worth. False if nothing is left."""
        if self._due:
            self._delete(self._due[-1])
            self._due.pop()
            return True
        if self._events_before.any and not self.aging.drop_events(self._events_before, MOST_EVENTS):
            self._events_before = Cutoffs()
        return self._events_before.any

    def _delete(self, run: RunId) -> None:
        with suppress(Refused):  # one that belongs to it is not over, or it is gone already
            row = self.deleting.runs.find(run)
            own = self.all_rules().projects.get(row.project)
            days = self.rules.runs_days if own is None else own.runs_days
            whose = "" if own is None else f" of the project {row.project}"
            self._report(self.deleting.delete(run, rule=f"--retain-runs-days {days:g}{whose}"))

    def due(self, before: Cutoffs) -> list[RunId]:
        """The runs that go now, in order; with each go those that belong to it, once all are old enough."""
        if not before.any:
            return []
        families = ((run, self._family(run)) for run in self.deleting.journal.due_runs(before))
        return [run for run, family in families if family and all(over(row, before.of(row.project)) for row in family)]

    def _family(self, run: RunId) -> list[RunRow]:
        with suppress(Refused):
            return self.deleting.family(run)
        return []


def over(row: RunRow, before: float) -> bool:
    return row.ended is not None and row.ended < before


@dataclass(frozen=True)
class Outlook:
    """What the rules would delete at the next look: runs, and how many events in all."""

    rules: AllRules
    runs: tuple[RunRow, ...]
    events: int


def outlook(retention: Retention) -> Outlook:
    now, rules, journal = retention.deleting.clock.now(), retention.all_rules(), retention.deleting.journal
    rows = [journal.run(run) for run in retention.due(rules.runs_before(now))]
    before = rules.events_before(now)
    events = retention.aging.old_events(before) if before.any else 0
    return Outlook(rules, tuple(row for row in rows if row is not None), events)
