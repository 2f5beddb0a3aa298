"""Whether anything grows while runs come and go.

    python benchmarks/soak.py [--quick] [--minutes 12] [--warm 0.3] [--database URL] [--limit memory.coordinator.high=100]

Small runs are started, completed and collected without a pause, by agents that come and go and by one real agent with its
trainer. Memory, open files, threads and what lies on disk are looked at every few seconds; a line is fitted to each after a
warm-up. Ends with 1 if a limit is exceeded or a run does not complete.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.limits import check_keys, emit, limit, table
from benchmarks.measure import Reading, Readings
from benchmarks.slope import slope_of
from benchmarks.staging import METHODS, Repeated, Stage, child_of, staged

STAY_SECONDS, AWAY_SECONDS = 40.0, 5.0
WARM = 0.3
REAL = "agent-real"
Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    """One measurement. Slopes are a minute, with 95 % intervals: memory in KB (`most` in MB), disk in KB a run."""

    minutes: float
    runs: int
    completed: int
    runs_per_minute: float
    visits: int
    memory: dict[str, Figures]
    files: dict[str, Figures]
    threads: dict[str, Figures]
    disk: dict[str, Figures]
    list_ms: float
    flat: dict[str, bool]


@dataclass(frozen=True)
class Sizes:
    """What lies on disk, in KB: the database, the coordinator's parts, the real agent's home. And runs that have ended."""

    at: float
    runs: int
    database: float
    parts: float
    agent: float


def main() -> int:
    """Measure once; 1 if a limit is exceeded or a run did not complete."""
    args = arguments()
    check_keys(Row, args.limit)
    row = measure(args)
    return emit(row, lines(row), args.limit, args.json) or int(row.completed < row.runs)


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=12.0, help="how long runs are started")
    parser.add_argument("--warm", type=float, default=WARM, help="share of that time after which the lines are fitted")
    parser.add_argument("--agents", type=int, default=12, help="agents that come and go")
    parser.add_argument("--runs", type=int, default=4, help="runs that are open at once")
    parser.add_argument("--mb", type=float, default=0.05, help="size of a reply, in 10^6 bytes")
    parser.add_argument("--database", help="URL of a Postgres; a schema of its own is made in it. Without: SQLite")
    parser.add_argument("--limit", type=limit, action="append", default=[], metavar="KEY=NUMBER", help="exit 1 above it")
    parser.add_argument("--quick", action="store_true", help="6 agents, 12 s")
    parser.add_argument("--json", action="store_true", help="a JSON line")
    args = parser.parse_args()
    if args.quick:
        args.minutes, args.agents = 0.2, 6
    return args


def measure(args: Any) -> Row:
    """One row."""
    with staged(args.database) as stage:
        names = [f"agent-{i}" for i in range(args.agents)]
        stage.crew(names, works=True, stay=STAY_SECONDS, away=AWAY_SECONDS)
        real_agent(stage)
        stage.gathered(len(names))
        feed = Feed(stage, names, args)
        feed.one_of_each()
        agent = stage.children.running[REAL].pid
        pids = stage.pids() | {"agent": agent, "trainer": child_of(agent, "tideline_agent.trainer")}
        sizes: list[Sizes] = []
        pause = min(5.0, args.minutes)
        with Readings(pids, pause) as readings, Repeated(lambda: sizes.append(sizes_of(stage, feed, args)), pause):
            began = time.time()
            feed.until(began + 60 * args.minutes)
        return row_of(stage, feed, readings, sizes, began, args.warm)


def real_agent(stage: Stage) -> None:
    """An agent as people install it, with data of its own."""
    data = stage.home / "data"
    data.mkdir()
    np.savez(data / "a.npz", x=np.zeros((8, 2), np.float32), y=np.arange(8) % 2)
    place = ("--data", str(data), "--home", str(stage.home / REAL), "--device", "cpu", "--trainer-idle", "3600")
    who = ("--coordinator", stage.address, "--token", stage.token(REAL), "--name", REAL, "--role", "source")
    stage.children.start(REAL, "agent", *who, *place, "--methods", METHODS)


class Feed:
    """Starts a run whenever one has ended; every fourth asks the real agent as well."""

    def __init__(self, stage: Stage, names: list[str], args: Any) -> None:
        self.stage, self.names, self.args = stage, names, args
        self.open: set[str] = set()
        self.started, self.completed = 0, 0
        self._turns = itertools.count()

    @property
    def over(self) -> int:
        """Runs that have ended."""
        return self.started - len(self.open)

    def start(self) -> None:
        """The next run."""
        turn = next(self._turns)
        asked = [self.names[turn % len(self.names)], self.names[(turn + 1) % len(self.names)]]
        self.open.add(self.stage.start(asked + [REAL] * (turn % 4 == 0), turn, rounds=2, mb=self.args.mb))
        self.started += 1

    def one_of_each(self) -> None:
        """Four runs, for whatever is loaded or opened only once."""
        for _ in range(4):
            self.start()
        self.stage.until(self.settled, "the first runs", 0.2)

    def settled(self) -> bool:
        """Look at the open runs; whether all have ended."""
        for run in tuple(self.open):
            found = self.stage.client.get(f"/runs/{run}")
            if found["status"] not in ("waiting", "running"):
                self.open.discard(run)
                self.completed += found["status"] == "completed"
                if found["status"] != "completed":
                    sys.stderr.write(f"{run} {found['status']}: {found['cause']}\n")
        return not self.open

    def until(self, end: float) -> None:
        """Keep so many open until the time is up, then let them end."""
        while time.time() < end:
            self.settled()
            while len(self.open) < self.args.runs:
                self.start()
            self.stage.children.check()
            time.sleep(0.1)
        self.stage.until(self.settled, "the last runs", 0.2)


def sizes_of(stage: Stage, feed: Feed, args: Any) -> Sizes:
    """What lies on disk now."""
    files = sum(file.stat().st_size for file in stage.folder.glob("coordinator.db*")) / 1000
    database = relations_kb(args.database) if args.database else files
    return Sizes(time.time(), feed.over, database, folder_kb(stage.folder / "parts"), folder_kb(stage.home / REAL))


def relations_kb(url: str) -> float:
    """What the schemas of benchmarks take in a Postgres."""
    import psycopg

    asked = b"SELECT sum(pg_total_relation_size(relid)) FROM pg_statio_user_tables WHERE schemaname LIKE 'tideline_bench%'"
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(asked).fetchone()
    return float(row[0] or 0) / 1000 if row else 0.0


def folder_kb(folder: Path) -> float:
    """Bytes of the files below a folder. Files go while one looks."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total / 1000


def row_of(stage: Stage, feed: Feed, readings: Readings, sizes: list[Sizes], began: float, share: float) -> Row:
    """The figures, after the warm-up."""
    ended = time.time()
    warm = began + share * (ended - began)
    minutes = (ended - began) / 60
    settled = {who: readings.between(who, warm, ended) for who in readings.of}

    def slopes(value: Callable[[Reading], float]) -> Iterator[tuple[str, Figures]]:
        for who, found in settled.items():
            yield who, asdict(slope_of([r.at for r in found], [value(r) for r in found]))

    memory = {who: figures | {"most": figures["most"] / 1000} for who, figures in slopes(lambda r: 1000 * r.mb)}
    looked = time.perf_counter()
    stage.client.get("/runs")
    return Row(
        round(minutes, 2),
        feed.started,
        feed.completed,
        round((feed.started - 4) / minutes, 1),
        len(stage.said("here")),
        memory,
        dict(slopes(lambda r: r.files)),
        dict(slopes(lambda r: r.threads)),
        {what: per_run([s for s in sizes if s.at >= warm], what) for what in ("database", "parts", "agent")},
        round(1000 * (time.perf_counter() - looked), 1),
        {who: figures["low"] <= 0 for who, figures in memory.items()},
    )


def per_run(sizes: list[Sizes], what: str) -> Figures:
    """KB that a run leaves behind, and KB at the end."""
    values = [getattr(each, what) for each in sizes]
    runs = sizes[-1].runs - sizes[0].runs if sizes else 0
    return {
        "run_kb": round((values[-1] - values[0]) / runs, 2) if runs else float("nan"),
        "last_kb": values[-1] if values else 0.0,
    }


def lines(row: Row) -> list[str]:
    """A row for people."""
    columns = ("slope", "low", "high", "most")
    report = [
        (f"{name} of {who}", *(figures[c] for c in columns), {True: "flat", False: "grows"}[figures["low"] <= 0])
        for name, of in (("memory KB", row.memory), ("files", row.files), ("threads", row.threads))
        for who, figures in of.items()
    ]
    disk = [(what, figures["run_kb"], figures["last_kb"]) for what, figures in row.disk.items()]
    return [
        f"{row.minutes:g} minutes, {row.completed} of {row.runs} runs completed, {row.runs_per_minute:g} a minute",
        f"{row.visits} visits of agents",
        *table(("a minute", *columns, ""), report),
        *table(("disk", "KB a run", "KB at the end"), disk),
        f"GET /runs took {row.list_ms:g} ms",
    ]


if __name__ == "__main__":
    sys.exit(main())
