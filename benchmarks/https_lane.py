"""What a round costs over one HTTPS port, beside the same round over gRPC and over the bulk lane, all of them with TLS.

    python benchmarks/https_lane.py [--mb 50] [--n 2] [--rounds 5] [--ways bulk,http,nginx,proxy] [--json]

A coordinator and N agents, real processes, and a model of S MB that every agent changes each round. `http` is the coordinator's
own port, `nginx` the shipped configuration before it, `proxy` a CONNECT proxy with a password before that. `of_bulk` is the
throughput of the fastest round relative to that over the bulk lane, in the same call. `cpu_s` is processor seconds of a round,
without those of nginx.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.measure import cpu_seconds
from benchmarks.transport import METHODS, by_part, play
from tests.acceptance.firewall.nginx import NGINX, nginx
from tests.acceptance.firewall.proxy import connecting
from tideline.bench.processes import stop_all
from tideline.cli.local.demo_processes import Children, wait_for
from tideline.client.certificates import issue_coordinator
from tideline.client.http import Client, Endpoint

WAYS = ("grpc", "bulk", "http", "nginx", "proxy")


@dataclass(frozen=True)
class Row:
    """One way. Seconds of the fastest round, and processor seconds of one by part."""

    way: str
    mb: float
    n: int
    round_s: float
    of_bulk: float | None
    cpu_s: dict[str, float]


def main() -> int:
    """A line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=50.0, help="MB of the model")
    parser.add_argument("--n", type=int, default=2, help="agents")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the fastest counts")
    parser.add_argument("--ways", default=",".join(WAYS), help="which, with commas")
    parser.add_argument("--json", action="store_true", help="a JSON object for each way")
    args = parser.parse_args()
    if NGINX is None and set(args.ways.split(",")) & {"nginx", "proxy"}:
        sys.exit("nginx is not installed: leave nginx and proxy out of --ways")
    bulk: float | None = None
    for way in args.ways.split(","):
        seconds, cpu = measured(way, args.mb, args.n, args.rounds)
        bulk = seconds if way == "bulk" else bulk
        row = Row(way, args.mb, args.n, round(seconds, 3), None if bulk is None else round(bulk / seconds, 2), cpu)
        sys.stdout.write((json.dumps(asdict(row)) if args.json else line(row)) + "\n")
        sys.stdout.flush()
    return 0


def line(row: Row) -> str:
    """A row for people."""
    of = "" if row.of_bulk is None else f"  {row.of_bulk:.2f} of the bulk lane"
    parts = ", ".join(f"{part} {seconds:.2f}" for part, seconds in row.cpu_s.items())
    return (
        f"{row.mb:7.1f} MB  n={row.n}  {row.way:<6} round {row.round_s:7.3f} s{of}  cpu {sum(row.cpu_s.values()):.2f} s: {parts}"
    )


def measured(way: str, mb: float, n: int, rounds: int) -> tuple[float, dict[str, float]]:
    """Seconds of the fastest round over a way, and processor seconds of one."""
    here = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="tideline-https-") as name, federation(Path(name), way, n) as (client, children):
        play(client, 0.01, n, 2)
        roots = {name: process.pid for name, process in children.running.items()}
        used = cpu_seconds(roots)
        result = play(client, mb, n, rounds)
        cpu = by_part(used, cpu_seconds(roots), rounds)
    return min(phase["seconds"] for phase in result["phases"] if phase["name"] == "echo"), cpu


@contextmanager
def federation(home: Path, way: str, n: int) -> Iterator[tuple[Client, Children]]:
    """A coordinator, what stands before it, and agents."""
    issue_coordinator(home / "tls", ["localhost", "127.0.0.1"])
    children, folder = Children(home), home / "coordinator"
    own = way not in ("nginx", "proxy")
    tls = ("--tls-cert", str(home / "tls" / "coordinator.pem"), "--tls-key", str(home / "tls" / "coordinator.key")) if own else ()
    more = {"grpc": (), "bulk": ("--bulk", "0")}.get(way, ("--agents-over-http", "--trusted-proxies", "127.0.0.1"))
    place = ("--home", str(folder), "--grpc-port", "0", "--http-port", "0", "--methods", METHODS)
    with ExitStack() as stack:
        stack.callback(lambda: stop_all(children.running.values()))
        children.start("coordinator", "coordinator", *place, *tls, *more)
        wait_for(children, folder / "coordinator.json")
        client = Client.of(Endpoint(home=folder, ca=home / "tls" / "ca.pem" if own else None))
        said = json.loads((folder / "coordinator.json").read_text())
        address, options = said["grpc"] if way in ("grpc", "bulk") else said["http"], ()
        if not own:
            port = stack.enter_context(nginx(home, int(said["http"].rpartition(":")[2])))
            address = f"https://localhost:{port}"
        if way == "proxy":
            options = ("--proxy", stack.enter_context(connecting()).url)
        agents(children, client, home, n, ("--coordinator", address, "--ca", str(home / "tls" / "ca.pem"), *options))
        yield client, children


def agents(children: Children, client: Client, home: Path, n: int, line: tuple[Any, ...]) -> None:
    """Agents that call over a way."""
    data = home / "data"
    data.mkdir()
    np.savez(data / "a.npz", x=np.zeros((40, 2), np.float32), y=np.arange(40) % 2)
    for i in range(n):
        token = client.post("/invites", {"name": f"agent-{i}", "ttl_seconds": 600})["token"]
        place = ("--data", str(data), "--home", str(home / f"agent-{i}"), "--device", "cpu", "--trainer-idle", "3600")
        who = ("--token", token, "--name", f"agent-{i}", "--role", "source", "--methods", METHODS)
        children.start(f"agent-{i}", "agent", *line, *who, *place)


if __name__ == "__main__":
    sys.exit(main())
