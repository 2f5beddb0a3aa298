"""The projects of a coordinator: made, limited and removed by admins; and which of them a caller means."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tideline.core.errors import ConfigRefused, NotFound, PermissionRefused, Refused, Unreachable
from tideline.core.run import ClientId
from tideline.core.settings import nearest
from tideline.engine.coordinator.api_keys import Caller
from tideline.engine.coordinator.idempotency import Identity
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.model.access.grants import highest
from tideline.engine.model.access.projects import (
    ALL,
    DEFAULT,
    EVERY,
    NAME,
    SEVERAL,
    UNLIMITED,
    Project,
    Quota,
    Usage,
    within,
)
from tideline.engine.model.access.quotas import check_bytes
from tideline.engine.model.access.spending import Month, Spending, month_in, month_of, summed
from tideline.engine.model.accounts import Client, Standing
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal

KNOWN_SECONDS = 5.0  # for so long what was read of projects is good
MOST_SERVED = 64  # projects of one site


@dataclass(frozen=True, kw_only=True)
class Hours:
    """What a project's steps took in a month: in all, by site, and by day."""

    project: Project
    month: Month
    whole: Spending
    sites: Mapping[ClientId, Spending]
    days: Mapping[int, Spending]


class Projects:
    """The projects. Any number of threads. What is changed here is seen here at once, at other replicas within seconds."""

    def __init__(self, journal: Journal, clock: Clock, part_store: PartStore) -> None:
        self._journal, self._clock, self._part_store = journal, clock, part_store
        self._lock = threading.Lock()
        self._known: tuple[Project, ...] = ()
        self._read_at: float | None = None

    def every(self, caller: Caller) -> tuple[Project, ...]:
        """Those that a caller sees, as they are in the journal."""
        known = self._journal.projects()
        if caller.scope == SEVERAL:
            return tuple(each for each in known if each.ended is None and highest(caller.grants, each.name))
        return tuple(each for each in known if within(caller.scope, each.name))

    def usage(self, project: str) -> Usage:
        return self.usages([project])[project]

    def usages(self, projects: Sequence[str]) -> Mapping[str, Usage]:
        """What each of these projects has; uploads that no run has named yet count as well."""
        found = self._journal.usage(projects)
        spent = self._journal.spent_in(projects, month_of(self._clock.now()))
        return {
            each: replace(
                found[each],
                bytes=found[each].bytes + self._waiting(each),
                gpu_hours=spent[each].gpu_hours,
                cpu_hours=spent[each].cpu_hours,
                unreported=spent[each].unreported,
            )
            for each in projects
        }

    def hours(self, caller: Caller, name: str, asked: str = "") -> Hours:
        """What a project's steps took in a month such as 2026-11; without one, in this. Raises NotFound, ConfigRefused."""
        seen = {each.name: each for each in self.every(caller)}
        if name not in seen:
            raise missing(name, caller.scope if caller.scope != SEVERAL else EVERY, list(seen))
        month = month_in(asked) if asked else month_of(self._clock.now())
        sites = self._journal.spent_by_site(name, month)
        days = self._journal.spent_by_day(name, month)
        return Hours(project=seen[name], month=month, whole=summed(sites.values()), sites=sites, days=days)

    def add(self, name: str, quota: Quota = UNLIMITED, identity: Identity | None = None) -> Project:
        """A new project. Raises ConfigRefused; Refused where the name was given before."""
        identity = identity or Identity()
        if name == ALL or not NAME.fullmatch(name):
            why = "stands for every project" if name == ALL else "cannot name a project"
            todo = "Use up to 40 small letters, digits and dashes, the first no dash"
            raise ConfigRefused(f"{name[:80]!r} {why}", todo, path="name")
        made = Project(name=name, created=self._clock.now(), created_by=identity.by, quota=quota)
        known = self._known_before(name, identity)
        if not self._journal.add_project(made):
            there = next(each for each in self._journal.projects() if each.name == name)
            if not known:  # an earlier try of the same call made it
                return there
            ended = there.ended is not None
            more = ", which was removed: its runs are kept, and a new project would see them" if ended else ""
            raise Refused(f"There is a project named {name!r} already{more}", "Choose another name")
        self.forget()
        return made

    def _known_before(self, name: str, identity: Identity) -> bool:
        """Whether the first try of a call found a project of this name."""
        found = {"known": int(any(each.name == name for each in self._journal.projects()))}
        if identity.idempotency_record:
            return bool(self._journal.choose(identity.idempotency_record, found)["known"])
        return True

    def limit(self, name: str, quota: Quota, by: str = "") -> Project:
        """Give a project another quota. What it has above it stays. Raises NotFound."""
        self._find(name)
        self._journal.limit_project(name, quota, self._clock.now(), by)
        self.forget()
        return self._find(name)

    def remove(self, name: str, by: str = "") -> Project:
        """End a project that nobody uses. Its runs are kept, for admins. Raises NotFound, Refused with all that is in the way."""
        if name == DEFAULT:
            raise Refused("The default project is always there", "Remove what is in it")
        self._find(name)
        if found := self._in_the_way(name):
            what, todo = ("; ".join(words) for words in zip(*found, strict=True))
            raise Refused(f"Project {name} is in use: {what}", todo)
        self._journal.end_project(name, self._clock.now(), by)
        self.forget()
        return next(each for each in self._journal.projects() if each.name == name)

    def _in_the_way(self, name: str) -> list[tuple[str, str]]:
        """What uses a project, each with the way to end that."""
        now, found = self._clock.now(), list[tuple[str, str]]()
        if runs := self._journal.usage([name])[name].runs:
            found.append((f"{runs} open runs", f"cancel them: tideline run list --project {name}"))
        good = [k for k in self._journal.api_keys() if k.project == name and k.revoked is None]
        if keys := [k.name for k in good if k.expires is None or k.expires > now]:
            found.append((f"keys of {', '.join(keys[:8])}", "tideline keys revoke NAME"))
        if sites := [c.name for c in self._journal.clients() if name in c.projects and c.standing is not Standing.REVOKED]:
            found.append((f"sites {', '.join(sites[:8])}", "tideline clients assign NAME with its other projects, or revoke it"))
        return found

    def assign(self, name: str, serves: Sequence[str], by: str = "") -> Client:
        """Have a site serve these projects. It stays in runs that it joined. Raises NotFound, ConfigRefused, Refused."""
        chosen = tuple(dict.fromkeys(serves))
        if not 0 < len(chosen) <= MOST_SERVED:
            what = f"{len(chosen)} projects are named, and a site serves 1 to {MOST_SERVED}"
            raise ConfigRefused(what, "Name its projects; one that is to serve none: tideline clients revoke", path="projects")
        for each in chosen:
            self._find(each)
        if not self._journal.assign(ClientId(name), chosen, self._clock.now(), by):
            raise NotFound(f"There is no client {name!r}", "See the list of clients")
        known = self._journal.client(name)
        assert known is not None, "clients are never removed"
        return known

    def narrowed(self, caller: Caller, asked: str) -> Caller:
        """Who makes a call that names a project. Raises NotFound, the same for one that is not there and one not to be seen.

        Of a user with roles in projects also ConfigRefused, where none of several is named, and PermissionRefused.
        """
        if caller.grants:
            return self._granted(caller, asked)
        if asked in ("", caller.scope) or (asked == ALL and caller.scope == EVERY):
            # Where there is only the default project, who is in it sees all there is.
            return replace(caller, whole=self.alone) if caller.scope == DEFAULT else caller
        if caller.scope != EVERY or not self._there(asked):
            raise missing(asked, caller.scope)
        return replace(caller, scope=asked)

    def _granted(self, caller: Caller, asked: str) -> Caller:
        """A user in the project that a call names, with the role there; without a name, in all, or in the only one."""
        everywhere, own = highest(caller.grants, EVERY), self._own(caller)
        if asked in ("", ALL) and everywhere is not None:
            return replace(caller, role=everywhere, scope=EVERY, whole=True)
        project = asked or self._only(caller, own)
        role = highest(caller.grants, EVERY, project)
        if role is None or not (project in own or (everywhere is not None and self._there(project))):
            raise missing(project, EVERY, own)
        return replace(caller, role=role, scope=project, whole=everywhere is not None or (project == DEFAULT and self.alone))

    def _own(self, caller: Caller) -> tuple[str, ...]:
        """The projects, of those that are there, in which a user has a role by their names."""
        there = {each.name for each in self._recent() if each.ended is None}
        return tuple(sorted({grant.project for grant in caller.grants} & there))

    def _only(self, caller: Caller, own: Sequence[str]) -> str:
        if not own:
            names = ", ".join(sorted(grant.project for grant in caller.grants)[:8])
            what = f"{caller.name} has a role in {names}, and there is no such project"
            raise PermissionRefused(what, "Ask an admin to make it: tideline projects add NAME")
        if len(own) > 1:
            what = f"{caller.name} works in several projects: {', '.join(own[:64])}"
            raise ConfigRefused(what, "Name one, with --project or the header Tideline-Project", path="project")
        return own[0]

    def _there(self, name: str) -> bool:
        if name == DEFAULT:
            return True
        return any(each.name == name for each in self._recent())

    @property
    def alone(self) -> bool:
        """Whether there is only the default project, so that who sees it sees all there is."""
        return len(self._recent()) == 1

    @property
    def fresh(self) -> bool:
        """Whether projects are known without asking the journal."""
        return self._read_at is not None and 0.0 <= self._clock.now() - self._read_at < KNOWN_SECONDS

    def _recent(self) -> tuple[Project, ...]:
        if not self.fresh:
            read_at = self._clock.now()
            try:
                found = self._journal.projects()
            except Unreachable:
                found = self._known  # while the journal is away, nothing of a project can be read anyway
                if not found:
                    raise
            with self._lock:
                self._known, self._read_at = found, read_at
        return self._known

    def check_open(self, project: str) -> None:
        """Raises NotFound for a project that was removed: nothing is added to it."""
        if any(each.name == project and each.ended is not None for each in self._recent()):
            raise missing(project, EVERY)

    def check_room(self, project: str, more: int = 0) -> None:
        """Raises Refused where a project has its quota of bytes, or would with so many more; NotFound as `check_open`."""
        self.check_open(project)
        known = next((each for each in self._recent() if each.name == project), None)
        if known is not None and known.quota.bytes is not None:
            check_bytes(known, self.usage(project).bytes, more)

    def forget(self) -> None:
        with self._lock:
            self._read_at = None

    def _waiting(self, project: str) -> int:
        parts = self._part_store.parts
        return sum(parts.size(digest) for digest in self._journal.uploaded(project) if parts.has(digest))

    def _find(self, name: str) -> Project:
        known = [each for each in self._journal.projects() if each.ended is None]
        found = next((each for each in known if each.name == name), None)
        if found is None:
            raise missing(name, EVERY, [each.name for each in known])
        return found


def missing(name: str, scope: str, known: Sequence[str] = ()) -> NotFound:
    """The refusal of a project that is not there, and of one that the caller may not see."""
    guess = nearest(name, [scope] if scope else known)
    return NotFound(f"There is no project {name[:80]!r}", f"See the list of projects{guess}", path="project")
