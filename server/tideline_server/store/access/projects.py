"""Projects. A writer who counts what a quota limits locks the project's row first, so that two take turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select, update

from tideline.core.run import ClientId, Digest
from tideline.engine.model.access.projects import DEFAULT, Project, Quota, Usage, with_default
from tideline.engine.model.access.quotas import check_hours, check_members, check_runs
from tideline.engine.model.access.spending import month_of
from tideline.engine.model.accounts import Standing
from tideline.engine.model.experiment import uploader
from tideline.engine.model.runs import FINAL, RunRow
from tideline_server.store.access import spending
from tideline_server.store.database.dialect import added, upsert
from tideline_server.store.database.prepared import prepared
from tideline_server.store.listings import Library
from tideline_server.store.notices import targets
from tideline_server.store.schema import clients, parts, projects, pushed, refs, runs

LOCKED = prepared(select(projects).where(projects.c.name == bindparam("of")).with_for_update())
OPEN_RUNS = (
    select(func.count())
    .select_from(runs)
    .where(runs.c.project == bindparam("of"), runs.c.parent.is_(None), runs.c.status.not_in([status.value for status in FINAL]))
)
SERVING = select(clients.c.projects).where(clients.c.standing != Standing.REVOKED)
# Of several projects at once: who lists them has as many as there are. A listing is read once, however many orders name it.
SOME = runs.c.project.in_(bindparam("of", expanding=True))
OPEN_IN = (
    select(runs.c.project, func.count().label("many"))
    .where(SOME, runs.c.parent.is_(None), runs.c.status.not_in([status.value for status in FINAL]))
    .group_by(runs.c.project)
)
OWN = select(runs.c.project, refs.c.listing).join(refs, refs.c.run == runs.c.id).where(SOME).distinct()
UPLOADED = (
    select(pushed.c.digest)
    .join(parts, parts.c.digest == pushed.c.digest)
    .where(pushed.c.run == bindparam("of"), pushed.c.client == bindparam("by"))
    .order_by(pushed.c.digest)
)


def project_of(row: Row[Any]) -> Project:
    quota = Quota(
        runs=row.most_runs,
        members=row.most_members,
        bytes=row.most_bytes,
        gpu_hours=row.most_gpu_hours,
        cpu_hours=row.most_cpu_hours,
        retain_runs_days=row.retain_runs_days,
        retain_events_days=row.retain_events_days,
    )
    return Project(row.name, row.created, row.created_by, quota=quota, ended=row.ended)


def columns_of(project: Project) -> dict[str, Any]:
    return {name: value for name, value in vars(project).items() if name != "quota"} | limits_of(project.quota)


def limits_of(quota: Quota) -> dict[str, Any]:
    most = {"most_runs": quota.runs, "most_members": quota.members, "most_bytes": quota.bytes}
    hours = {"most_gpu_hours": quota.gpu_hours, "most_cpu_hours": quota.cpu_hours}
    return most | hours | {"retain_runs_days": quota.retain_runs_days, "retain_events_days": quota.retain_events_days}


def every(connection: Connection) -> tuple[Project, ...]:
    return with_default(map(project_of, connection.execute(select(projects))))


def add(connection: Connection, project: Project) -> bool:
    """Write a project. False if its name was given before."""
    return project.name != DEFAULT and added(connection, projects, columns_of(project))


def limit(connection: Connection, name: str, quota: Quota) -> bool:
    """Give a project a quota. False if there is none, or none any more."""
    if name == DEFAULT:
        upsert(connection, projects, [columns_of(Project(DEFAULT))])
    good = (projects.c.name == name) & projects.c.ended.is_(None)
    return connection.execute(update(projects).where(good).values(**limits_of(quota))).rowcount == 1


def end(connection: Connection, name: str, now: float) -> bool:
    """Note that a project is removed. False if there is none, or none any more."""
    good = (projects.c.name == name) & (projects.c.name != DEFAULT) & projects.c.ended.is_(None)
    ended = connection.execute(update(projects).where(good).values(ended=now)).rowcount == 1
    if ended:
        targets.remove_of(connection, name)
    return ended


def usage(connection: Connection, library: Library, of: Collection[str]) -> Mapping[str, Usage]:
    asked = {"of": list(of)}
    if not of:
        return {}
    open_runs = {row.project: int(row.many) for row in connection.execute(OPEN_IN, asked)}
    serving = Counter(project for serves in connection.scalars(SERVING) for project in set(serves))
    own = [(row.project, row.listing) for row in connection.execute(OWN, asked)]
    files = library.files(connection, {listing for _, listing in own})
    sizes: dict[str, dict[Digest, int]] = {project: {} for project in of}
    for project, listing in own:
        sizes[project].update(files.get(listing, ()))
    return {each: Usage(open_runs.get(each, 0), serving[each], sum(sizes[each].values())) for each in of}


def uploaded(connection: Connection, project: str) -> tuple[Digest, ...]:
    run, client = uploader(project)
    return tuple(map(Digest, connection.scalars(UPLOADED, {"of": run, "by": client})))


def members(connection: Connection, project: str) -> int:
    return sum(project in serves for serves in connection.scalars(SERVING))


def admit_members(connection: Connection, names: Iterable[str]) -> None:
    """Raises Refused where one of these projects has as many sites as it may."""
    for name in sorted(names):
        if (known := locked(connection, name)) is not None and known.quota.members is not None:
            check_members(known, members(connection, name))


def admit_runs(connection: Connection, new: Sequence[RunRow]) -> None:
    """Raises Refused where the project of a new run has as many open ones as it may, or has used the hours of its month."""
    for name, now in sorted({row.project: row.created for row in new if row.parent is None}.items()):
        if (known := locked(connection, name)) is None:
            continue
        if known.quota.runs is not None:
            check_runs(known, connection.scalar(OPEN_RUNS, {"of": name}) or 0)
        if known.quota.gpu_hours is not None or known.quota.cpu_hours is not None:
            month = month_of(now)
            check_hours(known, spending.in_month(connection, [name], month)[name], month)


def locked(connection: Connection, name: str) -> Project | None:
    row = connection.execute(LOCKED, {"of": name}).one_or_none()
    return project_of(row) if row else None


def assign(connection: Connection, name: ClientId, serves: tuple[str, ...]) -> tuple[str, ...] | None:
    """Have a client serve these projects. Gives those from before; None if there is no such client."""
    before = connection.scalar(select(clients.c.projects).where(clients.c.name == name).with_for_update())
    if before is None:
        return None
    admit_members(connection, set(serves) - set(before))
    connection.execute(update(clients).where(clients.c.name == name).values(projects=serves))
    return tuple(before)
