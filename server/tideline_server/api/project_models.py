"""Shapes of answers about projects. They only describe: answers are built from our own types."""

from __future__ import annotations

from pydantic import BaseModel, Field


class ProjectLine(BaseModel):
    """A project in one line: what it has, and what it may have."""

    name: str
    created: float = Field(description="0: it was always there")
    created_by: str = Field(description="the name of the key that made it")
    ended: float | None = Field(description="when it was removed; null: it is there")
    runs: int = Field(description="runs that are not over, their references and rehearsals not counted")
    members: int = Field(description="sites that are not revoked")
    bytes: int = Field(description="of all that its runs and its uploads have in the store of parts")
    most_runs: int | None = Field(description="its quota; null: none")
    most_members: int | None = Field(description="its quota; null: none")
    most_bytes: int | None = Field(description="its quota; null: none")
    gpu_hours: float = Field(description="that its steps took in this month (UTC), as its sites report them")
    cpu_hours: float = Field(description="the same of processors")
    unreported: int = Field(description="replies of this month that do not say what their steps took")
    most_gpu_hours: float | None = Field(description="its quota; null: none")
    most_cpu_hours: float | None = Field(description="its quota; null: none")
    retain_runs_days: float | None = Field(description="its own rule of age for runs; 0: for ever; null: the coordinator's rule")
    retain_events_days: float | None = Field(description="the same for the events of runs that are over")


class Hours(BaseModel):
    """What steps took, as sites report it."""

    gpu_hours: float
    cpu_hours: float
    reported: int = Field(description="replies that say what their steps took")
    unreported: int = Field(description="replies that do not")


class HoursOfSite(Hours):
    """Of one site."""

    name: str


class HoursOfDay(Hours):
    """Of one day, on which the replies came."""

    day: str = Field(description="such as 2026-11-03, in UTC")


class ProjectHours(Hours):
    """What a project's steps took in a month."""

    project: str
    month: str = Field(description="such as 2026-11, in UTC")
    frees: float = Field(description="when it is over, and a quota begins anew")
    most_gpu_hours: float | None = Field(description="its quota of a month; null: none")
    most_cpu_hours: float | None = Field(description="its quota of a month; null: none")
    clients: list[HoursOfSite] = Field(description="by the sites that have replied")
    days: list[HoursOfDay] = Field(description="by the days on which there were replies")
