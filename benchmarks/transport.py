"""What a round costs beside a bare stream of the same bytes.

    python benchmarks/transport.py [--quick] [--huge] [--mb 100 --n 2] [--rounds 6] [--lane bulk] [--tls] [--json]

A coordinator and N agents, real processes, a model of S MB that every agent changes each round; digests checked, acknowledged
parts on disk, averaging included. `ratio` is the fastest round over the fastest of as many rounds of the bare stream. Each row is
measured with the parts over gRPC and over the bulk lane, and the bare stream between them. `cpu_s` is processor seconds a round.
With --tls the coordinator shows a certificate, and the bare stream is under TLS, too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.measure import PeakMemory, cpu_seconds, loopback_bytes
from benchmarks.raw_stream import raw_rounds
from tideline.bench.processes import stop_all
from tideline.cli.local.demo_processes import Children, ended, wait_for
from tideline.client.certificates import issue_coordinator
from tideline.client.http import Client, Endpoint

GRID = ((0.1, 2), (10.0, 8), (100.0, 2), (100.0, 4), (100.0, 8), (500.0, 2))
QUICK = ((0.1, 2), (10.0, 2), (100.0, 2))
LIMITS = {10.0: 3.0, 100.0: 2.0, 500.0: 2.2}
METHODS = "benchmarks.echo:METHODS"
LANES = ("grpc", "bulk")


@dataclass(frozen=True)
class Row:
    """One measurement. Memory is anonymous and shared, at its peak and over what the idle processes hold, in MB."""

    mb: float
    n: int
    lane: str
    tls: bool
    round_s: float
    median_s: float
    raw_s: float
    ratio: float
    limit: float | None
    bytes: int
    ideal_bytes: int
    rss_mb: dict[str, float]
    over_idle: dict[str, float]
    cpu_s: dict[str, float]
    raw_cpu_s: float


@dataclass(frozen=True)
class Measured:
    """What a federation took: seconds of each round, bytes a round on the loopback, memory in MB, processor seconds a round."""

    seconds: list[float]
    moved: int
    idle: dict[str, float]
    peaks: dict[str, float]
    cpu: dict[str, float]


def main() -> int:
    """Measure the grid; a line a row."""
    args = arguments()
    lanes = LANES if args.lane == "both" else (args.lane,)
    for mb, n in grid(args):
        for row in measure(mb, n, args.rounds, lanes, bare=not args.huge, tls=args.tls):
            sys.stdout.write((json.dumps(asdict(row)) if args.json else line(row)) + "\n")
            sys.stdout.flush()
    return 0


def arguments() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, help="one size only")
    parser.add_argument("--n", type=int, default=2, help="agents, with --mb")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of each measurement; the first warms up")
    parser.add_argument("--quick", action="store_true", help="a small grid")
    parser.add_argument("--huge", action="store_true", help="one round of a 5 GB model with 2 agents")
    parser.add_argument("--lane", choices=("both", *LANES), default="both", help="what parts travel over")
    parser.add_argument("--tls", action="store_true", help="everything under TLS, the bare stream as well")
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


def measure(mb: float, n: int, rounds: int, lanes: tuple[str, ...], bare: bool = True, tls: bool = False) -> list[Row]:
    """The rows of a size: federations, and the bare stream behind the first of them."""
    size, raw, raw_cpu, found = int(mb * 1e6), [float("nan")], float("nan"), {}
    for lane in lanes:
        with tempfile.TemporaryDirectory(prefix="tideline-bench-") as home:
            found[lane] = federation(Path(home), mb, n, rounds, lane, tls)
        if bare and len(found) == 1:
            with tempfile.TemporaryDirectory(prefix="tideline-bench-") as home:
                before, shown = os.times(), certificate(Path(home) / "tls") if tls else None
                raw, after = raw_rounds(size, n, rounds, shown), os.times()
            used = after.children_user + after.children_system - before.children_user - before.children_system
            raw_cpu = round(used / rounds, 3)
    return [row(mb, n, (lane, tls), each, (min(raw), raw_cpu)) for lane, each in found.items()]


def certificate(folder: Path) -> Path:
    """A folder with a certificate for this machine."""
    issue_coordinator(folder, ["127.0.0.1"])
    return folder


def row(mb: float, n: int, line: tuple[str, bool], found: Measured, raw: tuple[float, float]) -> Row:
    """line: a lane, and whether under TLS. raw: seconds of the bare stream's fastest round, and processor seconds of one."""
    return Row(
        mb=mb,
        n=n,
        lane=line[0],
        tls=line[1],
        round_s=min(found.seconds),
        median_s=statistics.median(found.seconds),
        raw_s=raw[0],
        raw_cpu_s=raw[1],
        ratio=min(found.seconds) / raw[0],
        limit=LIMITS.get(mb),
        bytes=found.moved,
        ideal_bytes=2 * n * int(mb * 1e6),
        rss_mb={name: round(value, 1) for name, value in found.peaks.items()},
        over_idle={name: round((found.peaks[name] - found.idle[name]) / mb, 3) for name in found.peaks},
        cpu_s=found.cpu,
    )


def federation(home: Path, mb: float, n: int, rounds: int, lane: str, tls: bool = False) -> Measured:
    """A run of the echo over a line of its own."""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH")))
    )
    children = Children(home)
    try:
        client = start(children, home, n, lane, tls)
        play(client, 0.01, n, 2)
        roots = {name: process.pid for name, process in children.running.items()}
        with PeakMemory(roots) as memory:
            idle, used = memory.now(), cpu_seconds(roots)
            before = loopback_bytes()
            result = play(client, mb, n, rounds)
            moved = (loopback_bytes() - before) // rounds
            cpu = by_part(used, cpu_seconds(roots), rounds)
        closed = [phase["seconds"] for phase in result["phases"] if phase["name"] == "echo"]
        return Measured(closed, moved, idle, memory.peaks, cpu)
    finally:
        stop_all(children.running.values())


def by_part(before: dict[str, float], after: dict[str, float], rounds: int) -> dict[str, float]:
    """Processor seconds a round of the coordinator, its worker, all agents and all trainers."""
    used = dict.fromkeys(("coordinator", "worker", "agents", "trainers"), 0.0)
    for name, seconds in after.items():
        theirs, of_child = name.startswith("agent"), name.endswith(" child")
        part = ("trainers" if of_child else "agents") if theirs else ("worker" if of_child else "coordinator")
        used[part] += (seconds - before.get(name, 0.0)) / rounds
    return {part: round(seconds, 3) for part, seconds in used.items()}


def start(children: Children, home: Path, n: int, lane: str = "grpc", tls: bool = False) -> Client:
    """A coordinator and n agents that know the echo."""
    folder, line = home / "coordinator", ["--bulk", "0"] if lane == "bulk" else []
    shown = certificate(home / "tls") if tls else None
    if shown is not None:
        line += ["--tls-cert", str(shown / "coordinator.pem"), "--tls-key", str(shown / "coordinator.key")]
    common = ("--methods", METHODS)
    children.start("coordinator", "coordinator", "--home", str(folder), "--grpc-port", "0", "--http-port", "0", *line, *common)
    wait_for(children, folder / "coordinator.json")
    client = Client.of(Endpoint(home=folder, ca=None if shown is None else shown / "ca.pem"))
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


def play(client: Client, mb: float, n: int, rounds: int, **more: Any) -> dict[str, Any]:
    """One run of the echo, to its end. more: what else the experiment says."""
    experiment = {
        "method": "echo",
        "config": {"rounds": rounds, "mb": mb},
        "world": {"inputs": [2], "classes": 2, "model": "linear", "normalise": "none"},
        "roster": {f"agent-{i}": "source" for i in range(n)},
        **more,
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
    agent, lane = max(v for k, v in row.over_idle.items() if k != "coordinator"), f"{row.lane}{' TLS' if row.tls else ''}"
    return (
        f"{row.mb:7.1f} MB  n={row.n}  {lane}  round {row.round_s:7.3f} s (median {row.median_s:.3f})"
        f"  raw {row.raw_s:7.3f} s  ratio {row.ratio:5.2f}{limit}"
        f"  bytes/ideal {row.bytes / row.ideal_bytes:6.3f}  over idle: coordinator {row.over_idle['coordinator']:.2f} S,"
        f" agent+trainer {agent:.2f} S  cpu {sum(row.cpu_s.values()):.2f} s (raw {row.raw_cpu_s:.2f}):"
        f" {', '.join(f'{part} {seconds:.2f}' for part, seconds in row.cpu_s.items())}"
    )


if __name__ == "__main__":
    sys.exit(main())
