"""How long the coordinator's lists take over HTTP, with ten projects of twenty sites and fifty runs each.

    python benchmarks/lists.py [--runs 20,50,1000] [--projects 10] [--sites 20] [--looks 200] [--database URL] [--limit worst=50]

A journal is filled through its own calls: of each project a run is played, and its rows are copied for the others. Then a real
coordinator opens it, and one client asks for each list as an admin, as an operator of one project and as a viewer of it, one
after the other. `p50` and `p99` are wall time in ms, the client's share included, and `cpu` is processor time of the
coordinator for one look, which other work on the machine hardly changes. `worst` is the highest p99 of all lists that
are not of every run there is, `every` that of `GET /runs` without a page.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
import numpy as np
import psutil
from sqlalchemy import Connection, Table, insert, literal, select

from benchmarks.crowd import Crowd, fill, parts
from benchmarks.limits import check_keys, emit, limit, table
from benchmarks.staging import own_schema
from tests.acceptance.harness import COORDINATOR, Net, net
from tideline.core.run import ClientId, RunId
from tideline.engine.audit.log import AuditEvent
from tideline.engine.model.access.projects import Project, Quota
from tideline.engine.model.accounts import Client, Invite
from tideline.engine.model.runs import OPEN, RunRow, Status
from tideline_server.store import SqlJournal
from tideline_server.store.schema import (
    drafts,
    events,
    leases,
    listings,
    orders,
    refs,
    rosters,
    round_totals,
    rounds,
    runs,
    site_totals,
    spent_by_run,
)

WHOLE = "/runs"  # the list of every run that there is: as long as there are many
COPIED = (drafts, rosters, leases, rounds, orders, events, round_totals, site_totals, spent_by_run, refs)
BEGAN = 1_790_000_000.0  # when the first run was made
FILES = 12  # of a state that is kept
MOST_ENTRIES = 100_000  # of the audit log
WARM, SECONDS = 5, 10.0  # looks before those that count; that one list may take
Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    """One size. lists: by who asks and by list: p50, p99 and cpu in ms, and kb of the answer."""

    database: str
    projects: int
    sites: int
    runs: int
    worst: float
    every: float
    lists: Mapping[str, Mapping[str, Figures]]


@dataclass(frozen=True)
class Team(Crowd):
    """A project's sites and its played run."""

    project: str = ""

    @property
    def names(self) -> tuple[ClientId, ...]:
        return tuple(ClientId(f"{self.project}-{at:03d}") for at in range(self.members))

    def row(self) -> RunRow:
        return replace(super().row(), project=self.project, created=BEGAN, name="a study of many sites")


def main() -> int:
    """A table for each size; 1 if a limit is exceeded."""
    args = arguments()
    check_keys(Row, args.limit)
    os.umask(0o077)  # as a coordinator writes
    return max(emit(row, lines(row), args.limit, args.json) for row in map(measured_with(args), args.runs))


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="20,50,1000", help="runs of each project, one size after the other")
    parser.add_argument("--projects", type=int, default=10, help="projects")
    parser.add_argument("--sites", type=int, default=20, help="sites of each")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of each run, every other one a scoring")
    parser.add_argument("--looks", type=int, default=200, help="looks at each list, after some that warm it up")
    parser.add_argument("--database", help="URL of a Postgres; a schema of its own is made in it. Without: SQLite")
    parser.add_argument("--limit", type=limit, action="append", default=[], metavar="KEY=NUMBER", help="exit 1 above it")
    parser.add_argument("--quick", action="store_true", help="2 projects, 3 sites, 4 runs, 5 looks")
    parser.add_argument("--json", action="store_true", help="a JSON line for each size")
    args = parser.parse_args()
    if args.quick:
        args.projects, args.sites, args.runs, args.rounds, args.looks = 2, 3, "4", 2, 5
    args.runs = [int(many) for many in args.runs.split(",")]
    return args


def measured_with(args: Any) -> Any:
    """The measurement of one size."""

    def measure(many: int) -> Row:
        with ExitStack() as stack:
            home, url = stack.enter_context(tempfile.TemporaryDirectory()), stack.enter_context(own_schema(args.database))
            there = stack.enter_context(net(Path(home), database=url))
            there.folder.mkdir()
            teams = [Team(args.sites, args.rounds, RunId(f"{at:02d}0000000000"), f"team-{at}") for at in range(args.projects)]
            with closing(SqlJournal(url or there.folder / "coordinator.db")) as journal:
                last = filled(journal, teams, many)
            there.coordinator("--rate", "0")
            found = {who: asked(there, key, who, teams[0], last, args.looks) for who, key in keys(there, teams[0]).items()}
        some = [each["p99"] for of in found.values() for path, each in of.items() if path != WHOLE]
        every = max(of[WHOLE]["p99"] for of in found.values())
        database = "postgres" if args.database else "sqlite"
        return Row(database, args.projects, args.sites, args.projects * many, max(some), every, found)

    return measure


def filled(journal: SqlJournal, teams: list[Team], many: int) -> RunId:
    """Fill a journal; the last run of the first team."""
    for team in teams:
        journal.add_project(Project(team.project, BEGAN, "admin", Quota(runs=10**6, bytes=2**40, gpu_hours=1e6)))
        enrol(journal, team)
        fill(journal, team)
        journal.set_status(team.run, OPEN, Status.CANCELLED, "enough", BEGAN + 3600.0)
        journal._store.write(lambda connection, team=team: copy(connection, team, many))  # type: ignore[misc]
    entries = min(MOST_ENTRIES, 20 * many * len(teams))
    for begin in range(0, entries, 1000):
        journal.record(entry(teams, at) for at in range(begin, min(begin + 1000, entries)))
    return named(teams[0], many - 1)


def named(team: Team, at: int) -> RunId:
    """A team's run by its place; that which was played is the first."""
    return RunId(f"{team.run[:2]}{at:010d}")


def enrol(journal: SqlJournal, team: Team) -> None:
    """Every site of a team is enrolled."""
    for name in team.names:
        journal.add_invite(Invite(token_hash=name, name=name, labels={}, expires=9e9, used_by="", project=team.project))
        about: dict[str, Any] = {"roles": ("source", "target"), "labels": {"country": "nl", "team": team.project}, "version": "1"}
        own: dict[str, Any] = {
            "sign_key": name.encode().hex().ljust(64, "0"),
            "receive_key": "b" * 64,
            "projects": (team.project,),
        }
        journal.enrol(name, Client(name=name, enrolled=BEGAN, seen=BEGAN, **about, **own))


def entry(teams: list[Team], at: int) -> AuditEvent:
    """An entry of the audit log, as a reply leaves one."""
    team = teams[at % len(teams)]
    details = {"order": f"{at:032x}", "status": "answered", "files": [[f"b3-{at:064x}", 1000]], "metrics": {"loss": 0.25}}
    client = str(team.names[at % len(team.names)])
    return AuditEvent(kind="replied", at=BEGAN + at, by="", client=client, run=str(team.run), details=details)


def copy(connection: Connection, team: Team, many: int) -> None:
    """The rows of a team's run once more for each other run, with a state of its own."""
    played = connection.execute(select(runs).where(runs.c.id == team.run)).one()._mapping
    others = [(named(team, at), BEGAN + 600.0 * at) for at in range(1, many)]
    if not others:
        return
    connection.execute(insert(runs), [{**played, "id": run, "created": at, "name": f"a study, {run[-4:]}"} for run, at in others])
    states = [[[digest, size] for at in range(FILES // 2) for digest, size in parts(run, at)] for run, _ in others]
    rows = [{"name": state_of(run), "kept": True, "files": files} for (run, _), files in zip(others, states, strict=True)]
    connection.execute(insert(listings), rows)
    for each in COPIED:
        copied(connection, each, team)


def state_of(run: RunId) -> str:
    return f"state of {run}"


def copied(connection: Connection, of: Table, team: Team) -> None:
    """A run's rows of a table for each other run of its team. An order is named anew; a state is the run's own."""
    theirs, mark = runs.alias("theirs"), literal("state of ")
    own: dict[str, Any] = {"run": theirs.c.id}
    source = of.join(theirs, (theirs.c.project == team.project) & (theirs.c.id != team.run))
    if of is orders:
        own["id"] = theirs.c.id + literal("/") + of.c.id
    if of is refs:
        source, own["listing"] = source.join(listings, listings.c.name == mark + theirs.c.id), listings.c.id
    chosen = select(*(own.get(column.name, column) for column in of.columns)).select_from(source).where(of.c.run == team.run)
    connection.execute(insert(of).from_select([column.name for column in of.columns], chosen))


def keys(there: Net, team: Team) -> dict[str, str]:
    """A key of each role."""
    client = there.client()
    asked = {role: {"name": role, "role": role, "project": team.project} for role in ("operator", "viewer")}
    made = {role: str(client.post("/keys", body)["key"]) for role, body in asked.items()}
    for at in range(50):  # those of other users
        client.post("/keys", {"name": f"user-{at}", "role": "viewer", "project": team.project})
    return {"admin": (there.folder / "admin.key").read_text().strip(), **made}


def lists(team: Team, last: RunId, admin: bool) -> Iterator[str]:
    """The addresses of lists, and of what is shown beside them."""
    yield from (WHOLE, "/runs?limit=50", f"/runs?limit=50&after={named(team, 0)}", "/clients", "/projects", "/whoami", "/metrics")
    yield from (f"/projects/{team.project}/hours", f"/runs/{last}", f"/runs/{last}/events?follow=false", "/algorithms")
    if admin:
        yield from ("/audit?limit=100", f"/audit?limit=100&run={team.run}", f"/audit?limit=100&client={team.names[-1]}")
        yield from ("/audit?limit=100&kind=run_started", "/audit/tip", "/keys", "/sessions", "/notify", "/retention")


def asked(there: Net, key: str, who: str, team: Team, last: RunId, looks: int) -> dict[str, Figures]:
    """What each list takes."""
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{there.http}", headers=headers, timeout=120.0) as client:
        server = psutil.Process(there.running[COORDINATOR].pid)
        return {path: looked(client, server, path, looks) for path in lists(team, last, who == "admin")}


def looked(client: httpx.Client, server: psutil.Process, path: str, looks: int) -> Figures:
    """p50, p99 and cpu of so many looks, in ms, and kb of the answer. One that takes long is looked at less often."""
    began = time.perf_counter()
    first = client.get(path).raise_for_status()
    looks = max(5, min(looks, int(SECONDS / (time.perf_counter() - began))))
    found, worked = [], busy(server)
    for _ in range(looks + WARM):
        began = time.perf_counter()
        client.get(path).raise_for_status()
        found.append(1000 * (time.perf_counter() - began))
    p50, p99 = np.percentile(found[WARM:], (50, 99))
    cpu = 1000 * (busy(server) - worked) / len(found)
    return {
        "p50": round(float(p50), 1),
        "p99": round(float(p99), 1),
        "cpu": round(cpu, 1),
        "kb": round(len(first.content) / 1000, 1),
    }


def busy(server: psutil.Process) -> float:
    """Processor seconds of the coordinator so far."""
    times = server.cpu_times()
    return float(times.user + times.system)


def lines(row: Row) -> list[str]:
    """A table for people."""
    head = (f"{row.runs} runs, {row.database}: p50 / p99 / cpu, ms", *row.lists, "kB")
    paths = row.lists["admin"]
    return table(head, [(path, *(shown(of.get(path)) for of in row.lists.values()), paths[path]["kb"]) for path in paths])


def shown(of: Figures | None) -> str:
    return "-" if of is None else f"{of['p50']:g} / {of['p99']:g} / {of['cpu']:g}"


if __name__ == "__main__":
    sys.exit(main())
