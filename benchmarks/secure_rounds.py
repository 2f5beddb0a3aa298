"""What a round with secure sums costs beside the same round without, by real processes.

    python benchmarks/secure_rounds.py                    # 10 and 100 MB, 8 agents; some minutes
    python benchmarks/secure_rounds.py --mb 1 --n 3

One coordinator and N agents play runs with and without secure sums by turns, of a model of S MB that every agent changes each
round. A round's seconds are those of all its exchanges; the fastest of all rounds counts, and the first of each run warms up.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import cpu_seconds
from benchmarks.transport import by_part, play, start
from tideline.bench.processes import stop_all
from tideline.cli.local.demo_processes import Children

AHEAD = (" keys", " shares")


@dataclass(frozen=True)
class Row:
    """Seconds of the fastest round, and of the middle one, both ways; processor seconds of a round; bytes up with sums over those
    without.
    """

    mb: float
    n: int
    plain_s: float
    secure_s: float
    ratio: float
    plain_median_s: float
    secure_median_s: float
    exchanges_s: dict[str, float]
    plain_cpu_s: dict[str, float]
    secure_cpu_s: dict[str, float]
    up: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, help="one size only")
    parser.add_argument("--n", type=int, default=8, help="agents")
    parser.add_argument("--rounds", type=int, default=4, help="of each run")
    parser.add_argument("--runs", type=int, default=2, help="of each way, by turns")
    args = parser.parse_args()
    root = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="tideline-bench-") as home:
        children = Children(Path(home))
        try:
            client = start(children, Path(home), args.n)
            play(client, 0.01, args.n, 2)
            for mb in [args.mb] if args.mb else [10.0, 100.0]:
                roots = {name: process.pid for name, process in children.running.items()}
                sys.stdout.write(json.dumps(asdict(measured(client, mb, args, roots))) + "\n")
                sys.stdout.flush()
        finally:
            stop_all(children.running.values())
    return 0


def measured(client: Any, mb: float, args: argparse.Namespace, roots: dict[str, int]) -> Row:
    plain, secure = list[dict[str, Any]](), list[dict[str, Any]]()
    for _ in range(args.runs):
        used = [cpu_seconds(roots)]
        plain.append(play(client, mb, args.n, args.rounds))
        used.append(cpu_seconds(roots))
        secure.append(play(client, mb, args.n, args.rounds, secure_sums=True))
        used.append(cpu_seconds(roots))
    before = sorted(seconds for result in plain for seconds in rounds_of(result)[1:])
    shared = ahead(secure)
    after = sorted(seconds + shared for result in secure for seconds in rounds_of(result)[1:])
    return Row(
        mb=mb,
        n=args.n,
        plain_s=round(before[0], 3),
        secure_s=round(after[0], 3),
        ratio=round(after[0] / before[0], 2),
        plain_median_s=round(statistics.median(before), 3),
        secure_median_s=round(statistics.median(after), 3),
        exchanges_s=exchanges(secure[-1]),
        plain_cpu_s=by_part(used[0], used[1], args.rounds),
        secure_cpu_s=by_part(used[1], used[2], args.rounds),
        up=round(sum(map(sent, secure)) / sum(map(sent, plain)), 4),
    )


def rounds_of(result: dict[str, Any]) -> list[float]:
    """Seconds of each round, over its values, survivors and shares."""
    taken = defaultdict[int, float](float)
    for phase in result["phases"]:
        if phase["name"].startswith("echo") and not phase["name"].endswith(AHEAD):
            taken[phase["round"]] += phase["seconds"]
    return [taken[each] for each in sorted(taken)]


def ahead(results: list[dict[str, Any]]) -> float:
    """What the exchanges of keys and shares are for one of the rounds that they are for."""
    each = [sum(p["seconds"] for p in result["phases"] if p["name"].endswith(AHEAD)) for result in results]
    return min(each) / len(rounds_of(results[0]))


def exchanges(result: dict[str, Any]) -> dict[str, float]:
    """The least seconds of each exchange."""
    found = defaultdict[str, list[float]](list)
    for phase in result["phases"]:
        found[phase["name"]].append(phase["seconds"])
    return {name: round(min(seconds), 3) for name, seconds in found.items() if name.startswith("echo")}


def sent(result: dict[str, Any]) -> float:
    return float(sum(each["bytes_up"] for each in result["clients"]))


if __name__ == "__main__":
    sys.exit(main())
