"""Commands about projects, which admins make, limit and remove."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote

import typer

from tideline.cli.guard import group_of, output, print_json
from tideline.cli.options import Connect, Json, remote
from tideline.client.answers import ProjectHours, ProjectLine, SpentData
from tideline.client.output import clean, day
from tideline.core.errors import ConfigRefused

app = group_of("Make projects, whose sites, keys and runs others do not see, and limit or remove them.")
ProjectName = Annotated[str, typer.Argument(metavar="NAME", help="The project's name, see `tideline projects list`.")]
MostRuns = Annotated[int | None, typer.Option(help="Runs that may be open at once. [default: any number]")]
MostMembers = Annotated[int | None, typer.Option(help="Sites that may serve it. [default: any number]")]
MostBytes = Annotated[
    str | None, typer.Option(help="Bytes of its runs and uploads, such as 500GB. [default: any number]", metavar="SIZE")
]
MostGpuHours = Annotated[
    float | None, typer.Option(help="Hours of GPUs that its steps may take in a calendar month. [default: any number]")
]
MostCpuHours = Annotated[float | None, typer.Option(help="The same of processors' cores. [default: any number]")]
MonthAsked = Annotated[str, typer.Option(help="Such as 2026-11, in UTC. [default: this month]", metavar="YYYY-MM")]
RunsDays = Annotated[
    float | None,
    typer.Option("--retain-runs-days", help="Days after its end that a run is kept; 0: for ever. [default: the coordinator's]"),
]
EventsDays = Annotated[
    float | None, typer.Option("--retain-events-days", help="The same of the events of runs. [default: the coordinator's]")
]
SIZES = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?(kB|MB|GB|TB)?")


@app.command("add")
@remote
def add(
    connect: Connect,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and dashes.")],
    most_runs: MostRuns = None,
    most_members: MostMembers = None,
    most_bytes: MostBytes = None,
    most_gpu_hours: MostGpuHours = None,
    most_cpu_hours: MostCpuHours = None,
    retain_runs: RunsDays = None,
    retain_events: EventsDays = None,
    as_json: Json = False,
) -> None:
    """Make a project. Its users get keys with `tideline keys add --project NAME`, its sites invitations in the same way."""
    limits = quota(most_runs, most_members, most_bytes) | hours(most_gpu_hours, most_cpu_hours)
    body = {"name": name, **limits, **ages(retain_runs, retain_events)}
    with connect() as client:
        row: ProjectLine = client.post("/projects", body)
    output(row, as_json, f"The project {row['name']} is there; keys for it: tideline keys add --project {row['name']}")


@app.command("limit")
@remote
def limit(
    connect: Connect,
    name: ProjectName,
    most_runs: MostRuns = None,
    most_members: MostMembers = None,
    most_bytes: MostBytes = None,
    most_gpu_hours: MostGpuHours = None,
    most_cpu_hours: MostCpuHours = None,
    retain_runs: RunsDays = None,
    retain_events: EventsDays = None,
    as_json: Json = False,
) -> None:
    """Give a project another quota and other rules of age. What you leave out is unlimited from then on, or the coordinator's."""
    limits = quota(most_runs, most_members, most_bytes) | hours(most_gpu_hours, most_cpu_hours)
    body = limits | ages(retain_runs, retain_events)
    with connect() as client:
        row: ProjectLine = client.post(f"/projects/{quote(name, safe='')}/limit", body)
    output(row, as_json, f"{row['name']}: {', '.join(cells(row)[1:6])}; runs kept: {cells(row)[6]}")


@app.command("list")
@remote
def list_projects(connect: Connect, as_json: Json = False) -> None:
    """List the projects that you see, what each has, and what it may have."""
    with connect() as client:
        rows: list[ProjectLine] = client.get("/projects")
    if as_json:
        print_json(rows)
        return
    from tideline.cli.tables import show, table

    show(
        table("", ["name", "open runs", "sites", "bytes", "GPU h", "CPU h", "runs kept", "made", "by", "state"], map(cells, rows))
    )


@app.command("show")
@remote
def show_project(connect: Connect, name: ProjectName, month: MonthAsked = "", as_json: Json = False) -> None:
    """Show what a project's steps took in a month, by site and by day, as its sites report it."""
    with connect() as client:
        asked = f"?month={quote(month, safe='')}" if month else ""
        used: ProjectHours = client.get(f"/projects/{quote(name, safe='')}/hours{asked}")
    if as_json:
        print_json(used)
        return
    from tideline.cli.tables import show, table

    head, sites, days = ["GPU h", "CPU h", "replies", "that do not say"], used["clients"], used["days"]
    heading = f"{used['project']} in {used['month']}; a quota begins anew on {day(used['frees'])}"
    whole = spent(used, used["most_gpu_hours"], used["most_cpu_hours"])
    rows = [["in all", *whole], *([each["name"], *spent(each)] for each in sites)]
    show(table(heading, ["site", *head], rows, right=range(1, 5)))
    if days:
        show(table("By day, in UTC", ["day", *head], [[each["day"], *spent(each)] for each in days], right=range(1, 5)))


@app.command("remove")
@remote
def remove(connect: Connect, name: ProjectName, as_json: Json = False) -> None:
    """Remove a project that has no open runs, good keys or sites. Its runs are kept; its name is not given again."""
    with connect() as client:
        row: ProjectLine = client.delete(f"/projects/{quote(name, safe='')}")
    output(row, as_json, f"The project {row['name']} is removed; its runs are kept, and admins see them")


def ages(runs: float | None, events: float | None) -> dict[str, float | None]:
    """Rules of age as the API takes them."""
    return {"retain_runs_days": runs, "retain_events_days": events}


def hours(gpu: float | None, cpu: float | None) -> dict[str, float | None]:
    """Quotas of a month's hours as the API takes them."""
    return {"gpu_hours": gpu, "cpu_hours": cpu}


def spent(of: SpentData, most_gpu: float | None = None, most_cpu: float | None = None) -> list[str]:
    """What steps took, with the quota of it, and how many replies say so."""
    used = [f"{of['gpu_hours']:.2f}{most(most_gpu)}", f"{of['cpu_hours']:.2f}{most(most_cpu)}"]
    return [*used, f"{of['reported'] + of['unreported']:,}", f"{of['unreported']:,}"]


def quota(runs: int | None, members: int | None, size: str | None) -> dict[str, float | None]:
    """A quota as the API takes it."""
    return {"runs": runs, "members": members, "bytes": None if size is None else bytes_in(size)}


def bytes_in(size: str) -> int:
    """Bytes of a size such as 500GB. Raises ConfigRefused."""
    found = SIZE.fullmatch(size)
    if found is None:
        todo = "Write bytes, or a number of kB, MB, GB or TB, such as 500GB"
        raise ConfigRefused(f"--most-bytes is {size[:40]!r}, which is no size", todo, path="bytes")
    return int(float(found[1]) * SIZES[found[2] or ""])


def cells(row: ProjectLine) -> list[str]:
    has = [
        f"{row['runs']:,}{most(row['most_runs'])}",
        f"{row['members']:,}{most(row['most_members'])}",
        f"{row['bytes']:,}{most(row['most_bytes'])}",
        f"{row.get('gpu_hours', 0.0):.2f}{most(row.get('most_gpu_hours'))}",
        f"{row.get('cpu_hours', 0.0):.2f}{most(row.get('most_cpu_hours'))}",
    ]
    made = day(row["created"]) if row["created"] else "-"
    state = f"removed {day(row['ended'])}" if row["ended"] else "there"
    return [row["name"], *has, kept(row), made, clean(row["created_by"]) or "-", state]


def kept(row: ProjectLine) -> str:
    """How long a project's runs and their events are kept."""
    runs, events = (
        "as all" if days is None else f"{days:g} d" if days else "for ever"
        for days in (row["retain_runs_days"], row["retain_events_days"])
    )
    return runs if row["retain_events_days"] is None else f"{runs}, events {events}"


def most(limit: float | None) -> str:
    return "" if limit is None else f" of {limit:,}" if isinstance(limit, int) else f" of {limit:,g}"
