"""Projects: sites, users, keys and runs belong to them, and nothing of one is seen in another.

A scope is what a caller sees: the name of one project, or nothing, which is every project.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DEFAULT = "default"  # whose everything is that names no project
ALL = "all"  # in the place of a name: every project
EVERY = ""  # the scope of who sees every project
SEVERAL = "*"  # of who works in several and has named none: it shows nothing, as no project has this name
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


@dataclass(frozen=True)
class Quota:
    """What a project may have at once, and for how long. None: as much as it likes; as long as the coordinator's rule says.

    runs     runs that are not over; references and rehearsals count with their run
    members  sites that are not revoked
    bytes    of all that its runs and its uploads have in the store of parts
    gpu_hours, cpu_hours  that its steps take in a calendar month (UTC), as its sites report them
    retain_runs_days, retain_events_days  in place of the coordinator's rules of age; 0: for ever
    """

    runs: int | None = None
    members: int | None = None
    bytes: int | None = None
    gpu_hours: float | None = None
    cpu_hours: float | None = None
    retain_runs_days: float | None = None
    retain_events_days: float | None = None


UNLIMITED = Quota()


@dataclass(frozen=True)
class Project:
    """A project. ended: when it was removed; its name is never given again, as its runs are kept."""

    name: str
    created: float = 0.0
    created_by: str = ""
    quota: Quota = UNLIMITED
    ended: float | None = None


@dataclass(frozen=True)
class Usage:
    """What a project has, as its quota counts. unreported: replies of this month that do not say what their steps took."""

    runs: int = 0
    members: int = 0
    bytes: int = 0
    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    unreported: int = 0


def within(scope: str, project: str) -> bool:
    """Whether who sees this scope sees a project."""
    return scope in (EVERY, project)


def shares(scope: str, projects: Sequence[str]) -> bool:
    """Whether who sees this scope sees a site that serves these projects."""
    return scope == EVERY or scope in projects


def with_default(stored: Iterable[Project]) -> tuple[Project, ...]:
    """Projects by name, the default one first: it is there although nobody made it."""
    known = {each.name: each for each in stored}
    default = known.pop(DEFAULT, Project(DEFAULT))
    return (default, *(known[name] for name in sorted(known)))
