"""What a round costs beside a bare stream of the same bytes.

    python benchmarks/transport.py [--quick] [--huge] [--mb 100 --n 2] [--rounds 6] [--json]

A coordinator and N agents, real processes, a model of S MB that every agent changes each round; digests checked, acknowledged
parts on disk, averaging included. `ratio` is the fastest round over the fastest of as many rounds of the bare stream.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.measure import PeakMemory, loopback_bytes
from benchmarks.raw_stream import raw_rounds
from tideline.bench.processes import stop_all
from tideline.cli.local.demo_processes import Children, ended, wait_for
from tideline.client.http import Client, Endpoint

GRID = ((0.1, 2), (10.0, 8), (100.0, 2), (100.0, 4), (100.0, 8), (500.0, 2))
QUICK = ((0.1, 2), (10.0, 2), (100.0, 2))
LIMITS = {10.0: 2.5, 100.0: 2.5, 500.0: 3.0}
METHODS = "benchmarks.echo:METHODS"
BULK: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One measurement. Memory is anonymous and shared, at its peak and over what the idle processes hold, in MB."""

    mb: float
    n: int
    round_s: float
    raw_s: float
    ratio: float
    limit: float | None
    bytes: int
    ideal_bytes: int
    rss_mb: dict[str, float]
    over_idle: dict[str, float]


def main() -> int:
    """Measure the grid; a line a row."""
    args = arguments()
    rows = [measure(mb, n, args.rounds, not args.huge) for mb, n in grid(args)]
    for row in rows:
        sys.stdout.write((json.dumps(asdict(row)) if args.json else line(row)) + "\n")
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, help="one size only")
    parser.add_argument("--n", type=int, default=2, help="agents, with --mb")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of each measurement; the first warms up")
    parser.add_argument("--quick", action="store_true", help="a small grid")
    parser.add_argument("--huge", action="store_true", help="one round of a 5 GB model with 2 agents")
    parser.add_argument("--json", action="store_true", help="a JSON line a row")
    return parser.parse_args()


def grid(args: Any) -> tuple[tuple[float, int], ...]:
    """What to measure."""
    if args.huge:
        room()
        args.rounds = 1
        return ((5000.0, 2),)
    if args.mb:
        return ((args.mb, args.n),)
    return QUICK if args.quick else GRID


def room() -> None:
    """A 5 GB model needs room; say so before hours are lost."""
    free = shutil.disk_usage(tempfile.gettempdir()).free / 1e9
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    if free < 60 or memory < 20:
        sys.exit(f"--huge needs 60 GB of disk and 20 GB of memory; here are {free:.0f} and {memory:.0f}")


def measure(mb: float, n: int, rounds: int, with_raw: bool) -> Row:
    """One row: the federation, then the bare stream."""
    with tempfile.TemporaryDirectory(prefix="tideline-bench-") as home:
        round_s, moved, idle, peaks = federation(Path(home), mb, n, rounds)
    size = int(mb * 1e6)
    raw_s = min(raw_rounds(size, n, rounds)) if with_raw else float("nan")
    over = {name: round((peaks[name] - idle[name]) / mb, 3) for name in peaks}
    peaks = {name: round(value, 1) for name, value in peaks.items()}
    return Row(mb, n, round_s, raw_s, round_s / raw_s, LIMITS.get(mb), moved, 2 * n * size, peaks, over)


def federation(home: Path, mb: float, n: int, rounds: int) -> tuple[float, int, dict[str, float], dict[str, float]]:
    """Seconds of the fastest round, bytes a round on the loopback, idle and peak memory."""
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
    children = Children(home)
    try:
        client = start(children, home, n)
        play(client, 0.01, n, 2)
        roots = {name: process.pid for name, process in children.running.items()}
        with PeakMemory(roots) as memory:
            idle = memory.now()
            before = loopback_bytes()
            result = play(client, mb, n, rounds)
            moved = (loopback_bytes() - before) // rounds
        closed = [phase["seconds"] for phase in result["phases"] if phase["name"] == "echo"]
        return min(closed), moved, idle, memory.peaks
    finally:
        stop_all(children.running.values())


def start(children: Children, home: Path, n: int) -> Client:
    """A coordinator and n agents that know the echo."""
    folder = home / "coordinator"
    common = ("--methods", METHODS)
    children.start("coordinator", "coordinator", "--home", str(folder), "--grpc-port", "0", "--http-port", "0", *BULK, *common)
    wait_for(children, folder / "coordinator.json")
    client = Client.of(Endpoint(home=folder))
    address = json.loads((folder / "coordinator.json").read_text())["grpc"]
    data = home / "data"
    data.mkdir()
    np.savez(data / "a.npz", x=np.zeros((40, 2), np.float32), y=np.arange(40) % 2)
    for i in range(n):
        token = client.post("/invites", {"name": f"agent-{i}", "ttl_seconds": 600})["token"]
        place = ("--data", str(data), "--home", str(home / f"agent-{i}"), "--device", "cpu", "--trainer-idle", "3600")
        who = ("--coordinator", address, "--token", token, "--name", f"agent-{i}", "--role", "source")
        children.start(f"agent-{i}", "agent", *who, *place, *common)
    return client


def play(client: Client, mb: float, n: int, rounds: int) -> dict[str, Any]:
    """One run of the echo, to its end."""
    experiment = {
        "method": "echo",
        "config": {"rounds": rounds, "mb": mb},
        "world": {"inputs": [2], "classes": 2, "model": "linear", "normalise": "none"},
        "roster": {f"agent-{i}": "source" for i in range(n)},
    }
    run = client.post("/runs", experiment)["run"]
    while not ended(result := client.get(f"/runs/{run}")):
        time.sleep(1.0)
    if result["status"] != "completed":
        sys.exit(f"The run {result['status']}: {result['cause']}")
    return dict(result)


def line(row: Row) -> str:
    """A row for people."""
    limit = "" if row.limit is None else f" (limit {row.limit})"
    agent = max(v for k, v in row.over_idle.items() if k != "coordinator")
    return (
        f"{row.mb:7.1f} MB  n={row.n}  round {row.round_s:7.3f} s  raw {row.raw_s:7.3f} s  ratio {row.ratio:5.2f}{limit}"
        f"  bytes/ideal {row.bytes / row.ideal_bytes:6.3f}  over idle: coordinator {row.over_idle['coordinator']:.2f} S,"
        f" agent+trainer {agent:.2f} S"
    )


if __name__ == "__main__":
    sys.exit(main())
