"""What has changed since the last look: runs whose line is another one, sites, and what is in the coordinator's way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tideline.core.run import RunId
from tideline.engine.audit.log import Mention
from tideline.engine.model.access.projects import EVERY
from tideline.engine.model.accounts import Client
from tideline.engine.model.runs import FINAL, Headline
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal

SEEN_SECONDS = 10.0  # how often it is told when sites were last heard
WARNINGS_SECONDS = 5.0  # how often warnings are looked at
# What entries of the audit log say of a site's line in the list; what a site does in a run is not among them.
OF_SITES = frozenset({"enrolled", "approved", "revoked", "rotation_asked", "rotated", "roles_changed", "projects_changed"}) | {
    *("doubled", "ledger_differs", "ledger_fits", "ledger_accepted"),
}


@dataclass(frozen=True)
class ChangedRun:
    """A run that is new, or whose line has changed."""

    line: Headline


@dataclass(frozen=True)
class GoneRun:
    """A run that was deleted."""

    run: RunId
    project: str


@dataclass(frozen=True)
class ChangedSites:
    """Sites of these projects have changed: someone is new, or in another standing, or was heard."""

    projects: frozenset[str]


@dataclass(frozen=True)
class ChangedWarnings:
    """What will be in the coordinator's way is another thing than before."""

    warnings: tuple[str, ...]


Change = ChangedRun | GoneRun | ChangedSites | ChangedWarnings


def concerns(change: Change, scope: str) -> bool:
    """Whether who sees a scope hears of a change. What everybody may ask for without a key is everybody's."""
    if isinstance(change, ChangedWarnings) or scope == EVERY:
        return True
    if isinstance(change, ChangedSites):
        return scope in change.projects
    return scope == (change.line.project if isinstance(change, ChangedRun) else change.project)


class Poller:
    """Looks at the journal again and again, on one thread at a time. A look costs the same however many runs are over.

    A look that fails changes nothing: the next one finds what it would have found. Raises Unreachable.
    """

    def __init__(self, journal: Journal, clock: Clock, warnings: Callable[[], Sequence[str]] = tuple) -> None:
        self._journal, self._clock, self._warnings = journal, clock, warnings
        self._last = journal.audit_tip().seq  # before all else: what comes meanwhile is told twice, and not never
        self._runs = unended(journal.current())
        self._sites = by_name(journal.clients())
        self._warned = tuple(warnings())
        self._heard_at = self._warned_at = clock.now()

    def poll(self) -> tuple[Change, ...]:
        """What has changed since the last look."""
        now = self._clock.now()
        last, mentions = self._journal.mentions(self._last)
        asked = self._runs.keys() | {RunId(each.run) for each in mentions if each.run}
        lines = {line.id: line for line in self._journal.current(asked)}
        gone = self._gone(asked - lines.keys())
        sites, changed_sites = self._changed_sites(mentions, now)
        warned = self._read_warnings(now)
        changed = [ChangedRun(line) for line in lines.values() if line != self._runs.get(line.id)]
        others = [ChangedSites(changed_sites)] if changed_sites else []
        new = [ChangedWarnings(warned)] if warned != self._warned else []
        self._last, self._runs, self._sites, self._warned = last, unended(lines.values()), sites, warned
        return (*changed, *gone, *others, *new)

    def _gone(self, runs: Iterable[RunId]) -> list[GoneRun]:
        """Those of these runs that were deleted. Of others the log says something that was never done."""
        missing = list(runs)
        return [GoneRun(each.run, each.project) for each in (self._journal.tombstones(missing) if missing else ())]

    def _changed_sites(self, mentions: Iterable[Mention], now: float) -> tuple[dict[str, Client], frozenset[str]]:
        """The sites as they are known from now on, and the projects of those that have changed.

        Between two looks at everything, those of which the log says something; when they were heard is not looked at then.
        """
        whole = not 0.0 <= now - self._heard_at < SEEN_SECONDS
        if not whole and not any(each.kind in OF_SITES for each in mentions):
            return self._sites, frozenset()
        found, before = by_name(self._journal.clients()), self._sites
        same = {
            name
            for name in found.keys() & before.keys()
            if found[name] == (before[name] if whole else heard(before, found, name))
        }
        changed = [each for known in (before, found) for name, each in known.items() if name not in same]
        if whole:
            self._heard_at = now
        sites = {name: before[name] if name in same else each for name, each in found.items()}
        return sites, frozenset(project for each in changed for project in each.projects)

    def _read_warnings(self, now: float) -> tuple[str, ...]:
        if 0.0 <= now - self._warned_at < WARNINGS_SECONDS:
            return self._warned
        self._warned_at = now
        return tuple(self._warnings())


def unended(lines: Iterable[Headline]) -> dict[RunId, Headline]:
    return {line.id: line for line in lines if line.status not in FINAL}


def by_name(clients: Iterable[Client]) -> dict[str, Client]:
    return {client.name: client for client in clients}


def heard(before: dict[str, Client], found: dict[str, Client], name: str) -> Client:
    """A site as it was before, heard when it was heard last."""
    return replace(before[name], seen=found[name].seen)
