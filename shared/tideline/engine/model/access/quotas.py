"""What a project's quota refuses. Its numbers are counted within the transaction that would exceed them."""

from __future__ import annotations

from tideline.core.errors import Refused
from tideline.engine.model.access.projects import Project
from tideline.engine.model.access.spending import Month, Spending


def check_runs(project: Project, open_runs: int) -> None:
    """Raises Refused where a project has as many open runs as it may."""
    most = project.quota.runs
    if most is not None and open_runs >= most:
        refuse(project, "open runs", open_runs, most, "Wait until one is over, or cancel one")


def check_members(project: Project, members: int) -> None:
    """Raises Refused where a project has as many sites as it may."""
    most = project.quota.members
    if most is not None and members >= most:
        refuse(project, "sites", members, most, "Revoke one that has left")


def check_bytes(project: Project, nbytes: int, more: int = 0) -> None:
    """Raises Refused where a project has as many bytes as it may, or would have more with those that come."""
    most = project.quota.bytes
    if most is not None and (nbytes >= most or nbytes + more > most):
        refuse(project, "bytes", nbytes, most, "Wait until its runs are over, whose last states alone are kept")


def check_hours(project: Project, spent: Spending, month: Month) -> None:
    """Raises Refused where a project's steps have taken as many hours in a month as they may."""
    quota = project.quota
    for kind, used, most in (("GPU", spent.gpu_hours, quota.gpu_hours), ("CPU", spent.cpu_hours, quota.cpu_hours)):
        if most is not None and used >= most:
            raise Refused(
                f"Project {project.name} has used {used:.2f} {kind} hours in {month.name}, and its quota is {most:g}",
                f"Wait until {month.over}, or ask an admin for more: tideline projects limit {project.name}",
                quota=f"{kind} hours",
                limit=most,
                used=used,
                frees=month.ends,
            )


def refuse(project: Project, what: str, known: int, most: int, todo: str) -> None:
    raise Refused(
        f"Project {project.name} has {known} {what}, and its quota is {most}",
        f"{todo}, or ask an admin for more: tideline projects limit {project.name}",
        quota=what,
        limit=most,
    )
