"""A journal's projects within a process, and its lists of runs, each of one project or of all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice

from tideline.archive.disk.spill import Spill
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.engine.audit import entries
from tideline.engine.model.access.projects import DEFAULT, EVERY, Project, Quota, Usage, shares, with_default, within
from tideline.engine.model.access.quotas import check_hours, check_members, check_runs
from tideline.engine.model.access.spending import Month, Spending, day_of, month_of, spending_of, summed
from tideline.engine.model.accounts import Client, Invite, Standing
from tideline.engine.model.experiment import uploader
from tideline.engine.model.orders import Files, OrderRow, Reply
from tideline.engine.model.runs import EVERYTHING, FINAL, Headline, RunRow, Sought, Status, Tally, headline
from tideline.engine.simulation.witnessed import MemoryWitness


class MemoryProjects(MemoryWitness):
    """Dictionaries of projects and of runs."""

    def __init__(self, spill: Spill | None = None) -> None:
        super().__init__(spill)
        self._projects: dict[str, Project] = {}
        self._runs: dict[RunId, RunRow] = {}
        self._open: dict[ClientId, dict[OrderId, None]] = {}
        self._parts: dict[Digest, float] = {}
        self._pushed: dict[tuple[RunId, ClientId], set[Digest]] = {}
        # What of a run refers to parts, by the client whose they are (nobody's: the run's own), what it is, and its cursor.
        self._refs: dict[RunId, dict[ClientId, dict[tuple[str, int], Files]]] = {}
        self._spent_on: dict[tuple[str, int, ClientId], Spending] = {}  # by project, day and site
        self._spent_by_run: dict[RunId, dict[ClientId, Spending]] = {}

    def projects(self) -> tuple[Project, ...]:
        with self._lock:
            return with_default(self._projects.values())

    def add_project(self, project: Project) -> bool:
        with self._lock:
            if project.name == DEFAULT or project.name in self._projects:
                return False
            self._projects[project.name] = project
            self.record([entries.project_made(project)])
            return True

    def limit_project(self, name: str, quota: Quota, now: float, by: str = "") -> bool:
        with self._lock:
            known = self._projects.get(name, Project(DEFAULT) if name == DEFAULT else None)
            if known is None or known.ended is not None:
                return False
            self._projects[name] = replace(known, quota=quota)
            self.record([entries.project_limited(name, quota, now, by)])
            return True

    def end_project(self, name: str, now: float, by: str = "") -> bool:
        with self._lock:
            known = self._projects.get(name)
            if known is None or known.ended is not None or name == DEFAULT:
                return False
            self._projects[name] = replace(known, ended=now)
            self.record([entries.project_ended(name, now, by)])
            return True

    def assign(self, name: ClientId, projects: tuple[str, ...], now: float, by: str = "") -> bool:
        with self._lock:
            known = self._clients.get(name)
            if known is None:
                return False
            if known.projects != projects:
                for project in sorted(set(projects) - set(known.projects)):
                    self._check_members(project)
                self._clients[name] = replace(known, projects=projects)
                self.record([entries.assigned(name, known.projects, projects, now, by)])
            return True

    def usage(self, projects: Collection[str]) -> Mapping[str, Usage]:
        return {project: self._usage(project) for project in projects}

    def _usage(self, project: str) -> Usage:
        with self._lock:
            mine = [row for row in self._runs.values() if row.project == project]
            files = {
                digest: size
                for row in mine
                for own in self._refs.get(row.id, {}).values()
                for named in own.values()
                for digest, size in named
            }
            open_runs = sum(row.status not in FINAL and row.parent is None for row in mine)
            return Usage(open_runs, self._members(project), sum(files.values()))

    def spent_by_run(self, run: RunId) -> Mapping[ClientId, Spending]:
        with self._lock:
            return dict(sorted(self._spent_by_run.get(run, {}).items()))

    def spent_in(self, projects: Collection[str], month: Month) -> Mapping[str, Spending]:
        return {project: summed(self.spent_by_day(project, month).values()) for project in projects}

    def spent_by_site(self, project: str, month: Month) -> Mapping[ClientId, Spending]:
        found = defaultdict[ClientId, Spending](Spending)
        for _, client, spending in self._spent(project, month):
            found[client] += spending
        return dict(sorted(found.items()))

    def spent_by_day(self, project: str, month: Month) -> Mapping[int, Spending]:
        found = defaultdict[int, Spending](Spending)
        for day, _, spending in self._spent(project, month):
            found[day] += spending
        return dict(sorted(found.items()))

    def _spent(self, project: str, month: Month) -> list[tuple[int, ClientId, Spending]]:
        with self._lock:
            own = [(day, client, each) for (of, day, client), each in self._spent_on.items() if of == project]
        return [each for each in own if month.first <= each[0] < month.end]

    def _spend(self, order: OrderRow, reply: Reply, now: float) -> None:
        """Count what a reply says of its step."""
        spending, day = spending_of(reply.spent), (self._runs[order.run].project, day_of(now), order.client)
        own = self._spent_by_run.setdefault(order.run, {})
        own[order.client] = own.get(order.client, Spending()) + spending
        self._spent_on[day] = self._spent_on.get(day, Spending()) + spending

    def uploaded(self, project: str) -> tuple[Digest, ...]:
        with self._lock:
            return tuple(sorted(self._pushed.get(uploader(project), ())))

    def enrol(self, token_hash: str, client: Client) -> bool:
        with self._lock:
            invite: Invite | None = self._invites.get(token_hash)
            known = self._clients.get(client.name)
            free = known is None or known.standing is Standing.REVOKED
            if invite is not None and not invite.used_by and free:
                for project in client.projects:
                    self._check_members(project)
            return super().enrol(token_hash, client)

    def _members(self, project: str) -> int:
        found = (c for c in self._clients.values() if c.standing is not Standing.REVOKED)
        return sum(project in c.projects for c in found)

    def _check_members(self, project: str) -> None:
        if (limited := self._projects.get(project)) is not None:
            check_members(limited, self._members(project))

    def _check_runs(self, new: Iterable[RunRow]) -> None:
        for row in new:
            if row.parent is None and (limited := self._projects.get(row.project)) is not None:
                check_runs(limited, self._usage(row.project).runs)
                month = month_of(row.created)
                check_hours(limited, self.spent_in([row.project], month)[row.project], month)

    def run(self, run: RunId) -> RunRow | None:
        return self._runs.get(run)

    def tally(self, scope: str = EVERY) -> Tally:
        with self._lock:
            runs = Counter(row.status for row in self._runs.values() if within(scope, row.project))
            clients = Counter(c.standing for c in self._clients.values() if shares(scope, c.projects))
            counts = {s.value: runs[s] for s in Status}, {s.value: clients[s] for s in Standing}
            asked = sum(within(scope, self._project_of(order)) for own in self._open.values() for order in own)
            return Tally(*counts, asked, len(self._parts), len(self._entries) + len(self._unchained))

    def _project_of(self, order: OrderId) -> str:
        raise NotImplementedError

    def run_ids(self, scope: str = EVERY) -> tuple[RunId, ...]:
        with self._lock:
            return tuple(sorted((r for r, row in self._runs.items() if within(scope, row.project)), key=self._age))

    def headlines(
        self, limit: int | None = None, after: RunId | None = None, scope: str = EVERY, sought: Sought = EVERYTHING
    ) -> tuple[Headline, ...]:
        with self._lock:
            found = self.run_ids(scope)[:: -1 if sought.newest else 1]
            if after is not None:
                found = found[found.index(after) + 1 :] if after in found else ()
            lines = (headline(self._runs[run]) for run in found)
            return tuple(islice(filter(sought.fits, lines), limit))

    def count_runs(self, scope: str = EVERY, sought: Sought = EVERYTHING) -> int:
        return len(self.headlines(scope=scope, sought=sought))

    def current(self, also: Collection[RunId] = ()) -> tuple[Headline, ...]:
        with self._lock:
            rows = (self._runs[run] for run in self.run_ids())
            return tuple(headline(row) for row in rows if row.status not in FINAL or row.id in also)

    def _age(self, run: RunId) -> tuple[float, RunId]:
        return self._runs[run].created, run
