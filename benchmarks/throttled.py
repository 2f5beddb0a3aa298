"""A large update over a bad line.

    python benchmarks/throttled.py [--quick] [--mb 1000 --rate 64 --seconds 60] [--limit resent=0.05]

A real agent sends an update that cannot be compressed through a proxy that is narrow at first, is opened later, and is cut (TCP
reset) while it is narrow and again when half of the bytes have come. Meanwhile other agents play small runs past the proxy. The
same update is sent first over the open line, undisturbed. Ends with 1 if a limit is exceeded, the run does not complete or
does not end in the bytes of the undisturbed one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.limits import check_keys, emit, limit, table
from benchmarks.measure import PeakMemory, spread
from benchmarks.slow_line import Line, line_to
from benchmarks.staging import METHODS, Repeated, Stage, staged

SLOW, OTHERS = "slow", ["other-0", "other-1"]
UNDER_WAY = 100_000  # bytes after which the upload has begun: more than all calls before it
Span = tuple[float, float]
Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    """One measurement. `resent` is a share of the update's size; memory is in MB over what the idle processes hold."""

    mb: float
    seconds: dict[str, float]
    bytes: int
    sent: int
    resent: float
    connections: int
    cuts: int
    away: int
    over_idle: Figures
    round_ms: dict[str, Figures]
    ratio: Figures
    beat_ms: dict[str, Figures]
    completed: bool
    same: bool


def main() -> int:
    """Measure once; 1 if a limit is exceeded or the run went wrong."""
    args = arguments()
    check_keys(Row, args.limit)
    row = measure(args)
    return emit(row, lines(row), args.limit, args.json) or int(not (row.completed and row.same))


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=1000.0, help="size of the update, in 10^6 bytes")
    parser.add_argument("--rate", type=float, default=64.0, help="of the narrow line, in 10^3 bytes a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the line is narrow")
    parser.add_argument("--cuts", type=int, default=1, help="resets while it is narrow")
    parser.add_argument("--limit", type=limit, action="append", default=[], metavar="KEY=NUMBER", help="exit 1 above it")
    parser.add_argument("--quick", action="store_true", help="8 MB, narrow for 4 s at 256 kB/s")
    parser.add_argument("--json", action="store_true", help="a JSON line")
    args = parser.parse_args()
    if args.quick:
        args.mb, args.rate, args.seconds = 8.0, 256.0, 4.0
    return args


def measure(args: Any) -> Row:
    """One row: the open line, the small runs alone, then everything at once."""
    with staged() as stage, line_to(stage.address) as line:
        slow_agent(stage, line)
        stage.crew(OTHERS, works=True)
        stage.gathered(len(OTHERS))
        update(stage, 0.01, 1)
        whole = update(stage, args.mb, 2)
        with beside(stage) as rounds:
            alone = waited(args.seconds / 3)
            bad = Bad(stage, line, args)
            result = bad.played()
        return row_of(args, stage, bad, (whole, result), rounds, alone)


def slow_agent(stage: Stage, line: Line) -> None:
    """A real agent that calls through the line."""
    data = stage.home / "data"
    data.mkdir()
    np.savez(data / "a.npz", x=np.zeros((8, 2), np.float32), y=np.arange(8) % 2)
    place = ("--data", str(data), "--home", str(stage.home / SLOW), "--device", "cpu", "--trainer-idle", "3600")
    who = ("--coordinator", line.address, "--token", stage.token(SLOW), "--name", SLOW, "--role", "source")
    stage.children.start(SLOW, "agent", *who, *place, "--methods", METHODS)


def update(stage: Stage, mb: float, seed: int) -> dict[str, Any]:
    """One run of one round of the slow agent, to its end."""
    return stage.ended(stage.start([SLOW], seed, rounds=1, mb=mb, tensors=8))


def waited(seconds: float) -> Span:
    """Let time pass."""
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


@contextmanager
def beside(stage: Stage) -> Iterator[list[tuple[float, float]]]:
    """Small runs of other agents, one after the other: when each round closed, and the seconds that it took."""
    rounds: list[tuple[float, float]] = []

    def one_more() -> None:
        run = stage.start(OTHERS, 3, rounds=10)
        stage.ended(run)
        closed = [event for event in stage.client.events(run) if event["kind"] == "closed" and event["data"]["phase"] != "join"]
        rounds.extend((event["at"], event["data"]["seconds"]) for event in closed)

    with Repeated(one_more):
        yield rounds


class Bad:
    """The update over the bad line: what happened when."""

    def __init__(self, stage: Stage, line: Line, args: Any) -> None:
        self.stage, self.line, self.args = stage, line, args
        self.cuts = 0
        self.narrow: Span = (0.0, 0.0)
        self.ended = 0.0

    def played(self) -> dict[str, Any]:
        """The run's result."""
        self.line.narrow(1000 * self.args.rate)
        self.before, self.connections = self.line.up.passed, self.line.connections
        roots = {name: self.stage.children.running[name].pid for name in ("coordinator", SLOW)}
        with PeakMemory(roots) as self.memory:
            self.idle = self.memory.now()
            run = self.stage.start([SLOW], 2, rounds=1, mb=self.args.mb, tensors=8)
            self.pass_bytes(UNDER_WAY)
            began = time.time()
            for _ in range(self.args.cuts):
                time.sleep(self.args.seconds / (self.args.cuts + 1))
                self.cut()
            time.sleep(max(began + self.args.seconds - time.time(), 0.0))
            self.narrow = (began, time.time())
            self.line.widen()
            self.pass_bytes(int(self.args.mb * 5e5))
            self.cut()
            result = self.stage.ended(run)
        self.ended = time.time()
        self.sent = self.line.up.passed - self.before
        return result

    def cut(self) -> None:
        """Cut the line."""
        self.cuts += 1
        self.line.cut()

    def pass_bytes(self, nbytes: int) -> None:
        """Wait until so many bytes have gone up."""
        self.stage.until(lambda: self.line.up.passed - self.before >= nbytes, f"{nbytes} bytes", 0.002)


def row_of(args: Any, stage: Stage, bad: Bad, results: tuple[Any, Any], rounds: list[tuple[float, float]], alone: Span) -> Row:
    """The figures."""
    whole, result = results
    spans = {"alone": alone, "narrow": bad.narrow, "open": (bad.narrow[1], bad.ended)}
    round_ms = {name: spread(s for at, s in rounds if began <= at <= ended) for name, (began, ended) in spans.items()}
    beats = stage.said("beat")
    size = sum(client["bytes_up"] for client in whole["clients"])
    return Row(
        args.mb,
        {"undisturbed": round(whole["seconds"], 1), "disturbed": round(result["seconds"], 1)},
        size,
        bad.sent,
        round(bad.sent / size - 1, 4),
        bad.line.connections - bad.connections,
        bad.cuts,
        (stage.home / f"{SLOW}.log").read_text().count("coordinator_away"),
        {name: round(bad.memory.peaks[name] - bad.idle[name], 1) for name in bad.idle},
        round_ms,
        {name: round(round_ms[name]["p50"] / round_ms["alone"]["p50"], 2) for name in ("narrow", "open")},
        {name: spread(s for _, at, _, s in beats if began <= at <= ended) for name, (began, ended) in spans.items()},
        result["status"] == "completed",
        result["state_digest"] == whole["state_digest"],
    )


def lines(row: Row) -> list[str]:
    """A row for people."""
    columns = ("p50", "p99", "max")
    report = [
        (name, *(ms[c] for c in columns), row.ratio.get(name, 1.0), *(row.beat_ms[name][c] for c in columns))
        for name, ms in row.round_ms.items()
    ]
    end = "completed" if row.completed else "NOT completed"
    return [
        f"{row.mb:g} MB: {row.seconds['undisturbed']:g} s over the open line, {row.seconds['disturbed']:g} s over the bad one",
        f"{end}, {'the same bytes' if row.same else 'OTHER BYTES'}; {row.cuts} cuts",
        f"{row.connections} connections more, {row.away} times the agent found the coordinator away",
        f"{row.sent} bytes went up for {row.bytes}: {100 * row.resent:.2f} % more",
        *(f"{name}: {mb:g} MB over idle" for name, mb in row.over_idle.items()),
        *table(("beside, ms", *(f"round {c}" for c in columns), "ratio", *(f"beat {c}" for c in columns)), report),
    ]


if __name__ == "__main__":
    sys.exit(main())
