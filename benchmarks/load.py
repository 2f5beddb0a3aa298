"""How one coordinator bears many agents and many runs.

    python benchmarks/load.py [--quick] [--agents 500 --runs 50] [--database URL] [--redis URL] [--limit beat_ms.load.p99=50]
    python benchmarks/load.py --members 500 [--mb 0.1 --rounds 5]

Hundreds of agents enrol, listen and beat, each over a connection of its own; first nothing else happens, then some of them
answer many runs at once. Ends with 1 if a limit is exceeded, a run does not complete, or ends in other bytes than its seed's.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.limits import check_keys, emit, limit, table
from benchmarks.measure import Readings, spread
from benchmarks.staging import Repeated, Stage, expected, staged

LISTENING, WORKING = 150, 60  # agents of a process
Span = tuple[float, float]
Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    """One measurement. Latencies are in ms, memory in MB (anonymous and shared), processor time in percent of one core.

    round_s: seconds of a round, from its first order to its closing, without joins.
    """

    agents: int
    runs: int
    rounds: int
    database: str
    redis: bool
    beat_ms: dict[str, Figures]
    get_ms: dict[str, Figures]
    order_ms: Figures
    round_s: Figures
    cpu: dict[str, Figures]
    rss_mb: dict[str, Figures]
    files: Figures
    runs_per_minute: float
    at_once: int
    completed: int
    wrong: int
    cuts: int


def main() -> int:
    """Measure once; 1 if a limit is exceeded or a run went wrong."""
    args = arguments()
    check_keys(Row, args.limit)
    row = measure(args)
    code = emit(row, lines(row), args.limit, args.json)
    return code or int(row.completed < row.runs or row.wrong > 0)


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=500, help="agents, each with a connection of its own")
    parser.add_argument("--runs", type=int, default=50, help="runs at once, of two or three agents each")
    parser.add_argument("--members", type=int, help="one run of so many agents instead, its replies of 0.1 MB")
    parser.add_argument("--rounds", type=int, help="rounds of each run [default: 10; of one run of many, 5]")
    parser.add_argument("--mb", type=float, help="size of a reply, in 10^6 bytes [default: 0.01; of one run of many, 0.1]")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long nothing but listening and beating is measured")
    parser.add_argument("--database", help="URL of a Postgres; a schema of its own is made in it. Without: SQLite")
    parser.add_argument("--redis", help="redis://HOST:PORT for the coordinator's bell")
    parser.add_argument("--limit", type=limit, action="append", default=[], metavar="KEY=NUMBER", help="exit 1 above it")
    parser.add_argument("--quick", action="store_true", help="20 agents, 4 runs of 2 rounds, 4 s")
    parser.add_argument("--json", action="store_true", help="a JSON line")
    args = parser.parse_args()
    if args.quick:
        args.agents, args.runs, args.rounds, args.seconds = 20, 4, 2, 4.0
    if args.members:
        args.agents, args.runs = args.members, 1
    args.rounds = args.rounds or (5 if args.members else 10)
    args.mb = args.mb or (0.1 if args.members else 0.01)
    if args.agents < 3:
        parser.error("--agents: a run asks up to three agents")
    return args


def measure(args: Any) -> Row:
    """One row: the idle span, then the runs."""
    with staged(args.database, args.redis) as stage:
        names = [f"agent-{i}" for i in range(args.agents)]
        asked = [names] if args.members else rosters(names, args.runs)
        man(stage, names, {name for roster in asked for name in roster})
        first = warmed(stage, asked[0][:3])
        with Readings(stage.pids()) as readings:
            with watched(stage, [first]) as idle_gets:
                idle = waited(args.seconds)
            with watched(stage, [first]) as busy_gets:
                results, busy = played(stage, args, asked)
            time.sleep(1.0)
        return row_of(args, stage, readings, (idle, busy), (idle_gets, busy_gets), results)


def rosters(names: list[str], runs: int) -> list[list[str]]:
    """Two agents for every other run, three for the rest; they begin again when there are too few."""
    sizes, found, at = [2 + i % 2 for i in range(runs)], [], 0
    for size in sizes:
        found.append([names[(at + k) % len(names)] for k in range(size)])
        at += size
    return found


def man(stage: Stage, names: list[str], busy: set[str]) -> None:
    """Start the agents: those that will be asked in processes that hold torch, the others in processes that do not."""
    for works, size in ((True, WORKING), (False, LISTENING)):
        chosen = [name for name in names if (name in busy) is works]
        for at in range(0, len(chosen), size):
            stage.crew(chosen[at : at + size], works)
    stage.gathered(len(names))


def warmed(stage: Stage, roster: list[str]) -> str:
    """A first run, for whatever is loaded or opened only once. People go on looking at it."""
    run = stage.start(roster, 0, rounds=1)
    stage.ended(run)
    time.sleep(3.0)
    return run


def waited(seconds: float) -> Span:
    """Let time pass."""
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


@contextmanager
def watched(stage: Stage, runs: list[str]) -> Iterator[list[float]]:
    """Somebody looks at runs ten times a second; the seconds that each look took. More runs may be added to the list."""
    seconds: list[float] = []

    def look() -> None:
        began = time.perf_counter()
        stage.client.get(f"/runs/{random.choice(runs)}")
        seconds.append(time.perf_counter() - began)

    with Repeated(look, 0.1):
        yield seconds


def played(stage: Stage, args: Any, asked: list[list[str]]) -> tuple[list[dict[str, Any]], Span]:
    """All runs at once, to their ends; a run's line in the list, with its roster and seed, and the span of them all."""
    began = time.time()
    settings = {"rounds": args.rounds, "mb": args.mb}
    made = {stage.start(roster, 1 + i, **settings): (roster, 1 + i) for i, roster in enumerate(asked)}

    def open_ones() -> list[dict[str, Any]]:
        return [run for run in stage.client.get("/runs") if run["status"] in ("waiting", "running")]

    stage.until(lambda: not open_ones(), "the runs to end", 1.0)
    ended = [run | {"asked": made[run["id"]]} for run in stage.client.get("/runs") if run["id"] in made]
    sys.stderr.writelines(f"{run['id']} {run['status']}: {run['cause']}\n" for run in ended if run["status"] != "completed")
    return ended, (began, max(run["ended"] or time.time() for run in ended))


def row_of(
    args: Any, stage: Stage, readings: Readings, spans: tuple[Span, Span], gets: tuple[list[float], list[float]], runs: list[Any]
) -> Row:
    """The figures."""
    by = dict(zip(("idle", "load"), spans, strict=True))
    busy = {name for run in runs for name in run["asked"][0]}
    beats = stage.said("beat")
    beats = [beat for beat in beats if beat[2] not in busy] or beats  # where steps run, an answer may lie about for a while
    seconds = spans[1][1] - spans[1][0]
    names = [run["id"] for run in runs]
    return Row(
        agents=args.agents,
        runs=args.runs,
        rounds=args.rounds,
        database="postgres" if args.database else "sqlite",
        redis=args.redis is not None,
        beat_ms={name: spread(s for _, at, _, s in beats if span[0] <= at <= span[1]) for name, span in by.items()},
        get_ms={name: spread(each) for name, each in zip(by, gets, strict=True)},
        order_ms=spread(deliveries(stage, names)),
        round_s={name: round(ms / 1000, 2) for name, ms in spread(rounds(stage, names)).items()},
        cpu={who: {name: round(readings.cpu_percent(who, *span), 1) for name, span in by.items()} for who in readings.of},
        rss_mb={
            who: {name: round(max(r.mb for r in readings.between(who, *span)), 1) for name, span in by.items()}
            for who in readings.of
        },
        files={who: float(max(r.files for r in each)) for who, each in readings.of.items()},
        runs_per_minute=round(60 * len(runs) / seconds, 1),
        at_once=most_at_once(runs),
        completed=sum(run["status"] == "completed" for run in runs),
        wrong=sum(digest_of(stage, run) != expected(*run["asked"], rounds=args.rounds, mb=args.mb) for run in runs),
        cuts=len(stage.said("cut")) + len(stage.said("left")),
    )


def rounds(stage: Stage, runs: list[str]) -> Iterator[float]:
    """Seconds of each closed round but the joins."""
    for run in runs:
        for event in stage.client.events(run):
            if event["kind"] == "closed" and event["data"]["phase"] != "join":
                yield event["data"]["seconds"]


def deliveries(stage: Stage, runs: list[str]) -> Iterator[float]:
    """Seconds from a round's closing to each order that it led to, at its agent."""
    heard: dict[tuple[str, int], list[float]] = {}
    for _, at, _, run, cursor in stage.said("order"):
        heard.setdefault((run, cursor), []).append(at)
    for run in runs:
        for event in stage.client.events(run):
            if event["kind"] == "closed":
                yield from (at - event["at"] for at in heard.get((run, event["data"]["cursor"]), ()))


def most_at_once(runs: list[dict[str, Any]]) -> int:
    """How many of the runs were open together at the most."""
    spans = [(run["created"], run["ended"] or float("inf")) for run in runs]
    return max((sum(began <= at < ended for began, ended in spans) for at, _ in spans), default=0)


def digest_of(stage: Stage, run: Any) -> str:
    """The digest that a run ended in."""
    return str(stage.client.get(f"/runs/{run['id']}")["state_digest"])


def lines(row: Row) -> list[str]:
    """A row for people."""
    columns = ("p50", "p99", "max")
    report = [
        ("beat, idle", *(row.beat_ms["idle"][c] for c in columns)),
        ("beat, with the runs", *(row.beat_ms["load"][c] for c in columns)),
        ("GET /runs/ID, idle", *(row.get_ms["idle"][c] for c in columns)),
        ("GET /runs/ID, with the runs", *(row.get_ms["load"][c] for c in columns)),
        ("round closed to order heard", *(row.order_ms[c] for c in columns)),
        ("round, in s", *(row.round_s[c] for c in columns)),
    ]
    used = [(who, *row.cpu[who].values(), *row.rss_mb[who].values(), row.files[who]) for who in row.cpu]
    store = row.database + (" and redis" if row.redis else "")
    return [
        f"{row.agents} agents, {row.runs} runs of {row.rounds} rounds ({row.at_once} at once), {store}",
        f"{row.completed} completed, {row.wrong} with a wrong digest, {row.runs_per_minute:g} runs a minute, {row.cuts} cuts",
        *table(("ms", *columns), report),
        *table(("", "CPU % idle", "with runs", "MB idle", "with runs", "files"), used),
    ]


if __name__ == "__main__":
    sys.exit(main())
