"""Projects: whose the sites, keys and runs are."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query

from tideline.core.settings import parse, setting
from tideline.engine.model.access.projects import Project, Quota, Usage
from tideline.engine.model.access.spending import day_name, shown
from tideline_server.api.openapi import body_of
from tideline_server.api.project_models import HoursOfDay, HoursOfSite, ProjectHours, ProjectLine
from tideline_server.api.requests.access import Asking, Known
from tideline_server.api.services import Name, Named

Month = Annotated[str, Query(description="such as 2026-11, in UTC; without it, this one")]
router = APIRouter(prefix="/projects", tags=["projects"])
MOST = 2**31 - 1  # as far as databases count
MOST_DAYS = 36500
MOST_HOURS = 1e9


@dataclass(frozen=True)
class Limits:
    """What a project may have at once, and for how long."""

    runs: int | None = setting(None, low=0, high=MOST, doc="runs that are not over; null: as many as it likes")
    members: int | None = setting(None, low=0, high=MOST, doc="sites that are not revoked; null: as many as it likes")
    bytes: int | None = setting(None, low=0, high=2**62, doc="bytes in the store of parts; null: as many as it likes")

    gpu_hours: float | None = setting(
        None, low=0, high=MOST_HOURS, doc="hours of accelerators in a calendar month; null: as many as it likes"
    )
    cpu_hours: float | None = setting(
        None, low=0, high=MOST_HOURS, doc="hours of processors in a calendar month; null: as many as it likes"
    )
    retain_runs_days: float | None = setting(
        None, low=0, high=MOST_DAYS, doc="days after its end that a run is kept; 0: for ever; null: as the coordinator says"
    )
    retain_events_days: float | None = setting(
        None, low=0, high=MOST_DAYS, doc="days after a run's end that its events are kept; 0: for ever; null: as it says"
    )

    @property
    def quota(self) -> Quota:
        return Quota(**{each.name: getattr(self, each.name) for each in fields(Quota)})


@dataclass(frozen=True)
class ProjectAsked(Limits):
    """A new project."""

    name: str = setting("", doc="its name: small letters, digits and dashes")


NEW = {"limited": {"summary": "With a quota", "value": {"name": "cardio", "runs": 5, "members": 20, "bytes": 10**12}}}
OTHER = {"more": {"summary": "More runs", "value": {"runs": 10}}}


@router.get("", summary="List the projects")
def list_projects(projects: Known, asking: Asking) -> list[ProjectLine]:
    """The one that your key opens; of a key of all projects, every one, also those that were removed."""
    seen = projects.every(asking)
    used = projects.usages([each.name for each in seen])
    return [line(each, used[each.name]) for each in seen]


@router.get("/{name}/hours", summary="What a project's steps took in a month")
def project_hours(projects: Known, asking: Asking, name: Name, month: Month = "") -> ProjectHours:
    """Hours of accelerators and of processors, as its sites report them, by site and by day, those of deleted runs as well."""
    used = projects.hours(asking, name, month)
    quota = used.project.quota
    return ProjectHours(
        **shown(used.whole),
        project=name,
        month=used.month.name,
        frees=used.month.ends,
        most_gpu_hours=quota.gpu_hours,
        most_cpu_hours=quota.cpu_hours,
        clients=[HoursOfSite(name=site, **shown(each)) for site, each in used.sites.items()],
        days=[HoursOfDay(day=day_name(day), **shown(each)) for day, each in used.days.items()],
    )


@router.post("", status_code=201, summary="Make a project", openapi_extra=body_of(ProjectAsked, NEW))
def add_project(projects: Known, identity: Named, body: Annotated[dict[str, Any], Body()]) -> ProjectLine:
    """Make keys in it, and invite its sites with one of them. A name is given once: 409 also after its project was removed."""
    asked = parse(ProjectAsked, body)
    made = projects.add(asked.name, asked.quota, identity)
    return line(made, projects.usage(made.name))


@router.post("/{name}/limit", summary="Give a project another quota", openapi_extra=body_of(Limits, OTHER))
def limit_project(projects: Known, identity: Named, name: Name, body: Annotated[dict[str, Any], Body()]) -> ProjectLine:
    """What is left out is unlimited from now on, or as the coordinator's rules of age say.

    What the project has above its new quota stays, and nothing is added to it.
    """
    limited = projects.limit(name, parse(Limits, body).quota, identity.by)
    return line(limited, projects.usage(name))


@router.delete("/{name}", summary="Remove a project")
def remove_project(projects: Known, identity: Named, name: Name) -> ProjectLine:
    """Its runs are kept, and only keys of all projects see them. 409 while it has open runs, good keys or sites."""
    return line(projects.remove(name, identity.by), projects.usage(name))


def line(row: Project, usage: Usage) -> ProjectLine:
    limits = {name if name.startswith("retain") else f"most_{name}": most for name, most in vars(row.quota).items()}
    facts = {name: value for name, value in vars(row).items() if name != "quota"}
    return ProjectLine(**facts, **vars(usage), **limits)
