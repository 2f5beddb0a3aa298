"""What a look at a large run costs the coordinator: GET /runs/ID over HTTP, from a database.

    python benchmarks/looking.py [--quick] [--members 1000 --rounds 20] [--database URL] [--limit open.cpu=50]

The server runs in this process with the journal of a deployment, and nothing else works. The first looks load what is
remembered; of the others the quickest counts.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
import uvicorn

from benchmarks.crowd import Crowd, answer, fill
from benchmarks.limits import check_keys, emit, limit, table
from benchmarks.staging import own_schema
from tideline.algorithms import METHODS
from tideline.engine.model.accounts import Client, Invite
from tideline.engine.model.runs import OPEN, Status
from tideline.engine.simulation.federation import Federation
from tideline_server.api import Services, create_app
from tideline_server.api.server import bounded
from tideline_server.store import SqlJournal

Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    """One measurement: of each kind of look the processor time `cpu` and the wall time `wall` in ms, and the answer's `kb`."""

    members: int
    rounds: int
    database: str
    open: Figures
    event: Figures
    events: Figures
    ended: Figures


def main() -> int:
    """Measure once; 1 if a limit is exceeded."""
    args = arguments()
    check_keys(Row, args.limit)
    row = measure(args)
    return emit(row, lines(row), args.limit, args.json)


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1000, help="members of the run")
    parser.add_argument("--rounds", type=int, default=20, help="rounds that are closed, every other one a scoring")
    parser.add_argument("--looks", type=int, default=15, help="looks, of which the quickest counts")
    parser.add_argument("--database", help="URL of a Postgres; a schema of its own is made in it. Without: SQLite")
    parser.add_argument("--limit", type=limit, action="append", default=[], metavar="KEY=NUMBER", help="exit 1 above it")
    parser.add_argument("--quick", action="store_true", help="20 members, 4 rounds, 3 looks")
    parser.add_argument("--json", action="store_true", help="a JSON line")
    args = parser.parse_args()
    if args.quick:
        args.members, args.rounds, args.looks = 20, 4, 3
    return args


def measure(args: Any) -> Row:
    """A run with an open round, in which half of the members have answered; and the same once it has ended."""
    with ExitStack() as stack:
        folder, url = stack.enter_context(tempfile.TemporaryDirectory()), stack.enter_context(own_schema(args.database))
        journal = SqlJournal(url or Path(folder) / "journal.db")
        stack.callback(journal.close)
        crowd = Crowd(args.members, args.rounds + 1)
        enrol(journal, crowd)
        fill(journal, crowd)
        for order, reply in list(crowd.answers(args.rounds))[: args.members // 2]:
            answer(journal, order, reply)
        url = stack.enter_context(served(journal))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=60.0))
        path, seen = f"/runs/{crowd.run}", journal.events(crowd.run)[-1].seq - 1
        log = f"{path}/events?follow=false"
        looks = [looked(client, at, args.looks) for at in (path, f"{log}&after={seen}", log)]
        journal.set_status(crowd.run, OPEN, Status.CANCELLED, "", 9.0)
        looks.append(looked(client, path, args.looks))
        return Row(args.members, args.rounds, "postgres" if args.database else "sqlite", *looks)


def enrol(journal: SqlJournal, crowd: Crowd) -> None:
    """Every member is enrolled."""
    for name in crowd.names:
        journal.add_invite(Invite(token_hash=name, name=name, labels={}, expires=9.0, used_by=""))
        keys = {"sign_key": "aa", "receive_key": "bb"}
        journal.enrol(name, Client(name=name, roles=("source", "target"), labels={}, version="1", enrolled=1.0, seen=1.0, **keys))


async def moved(topic: str, seconds: float) -> bool:
    """Nothing moves here."""
    return False


@contextmanager
def served(journal: SqlJournal) -> Iterator[str]:
    """The HTTP server over this journal; its address."""
    f = Federation(METHODS, {})
    f.run_service.journal = journal
    services = Services(f.run_service, journal, f.part_store, f.compute, f.clock, moved, "1", None, lambda: {"replicas": 1})
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(services), http=bounded(0), log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def looked(client: httpx.Client, path: str, looks: int) -> Figures:
    """The quickest of so many looks. The client's own work, which is little, counts as well."""
    found, size = [], len(client.get(path).content)
    for _ in range(looks):
        began, cpu = time.perf_counter(), time.process_time()
        client.get(path).raise_for_status()
        found.append((time.process_time() - cpu, time.perf_counter() - began))
    cpu, wall = map(min, zip(*found, strict=True))
    return {"cpu": round(1000 * cpu, 1), "wall": round(1000 * wall, 1), "kb": round(size / 1000, 1)}


def lines(row: Row) -> list[str]:
    """A row for people."""
    looks = {"an open run": row.open, "its last event": row.event, "all events": row.events, "the run that has ended": row.ended}
    cells = [(name, *figures.values()) for name, figures in looks.items()]
    return [f"{row.members} members, {row.rounds} rounds, {row.database}", *table(("a look at", "CPU ms", "ms", "kB"), cells)]


if __name__ == "__main__":
    sys.exit(main())
