"""Three sites of photographs over the network: seconds a round, memory, and the same bytes for any number of workers.

    python benchmarks/cameras.py                   # 20 000 JPEG files of 224 x 224 a site, seen as 3 x 64 x 64
    python benchmarks/cameras.py --images 2000 --workers 0 4
    python benchmarks/cameras.py --images 100000 --sites 1 --workers 2 --rounds 1

A coordinator and three agents, real processes. For each number of workers a federation of its own trains a small network; the
first round also decodes the photographs. Memory is anonymous and shared memory of an agent, its trainer and all that they start.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.loading import CLASSES, write_images
from benchmarks.measure import PeakMemory
from tests.acceptance.harness import net
from tideline.cli.local.demo_processes import ended

SITES = ("north", "east", "south")
SIDE = 64


@dataclass(frozen=True)
class Row:
    """One federation. phases: the seconds of each; mb: the largest agent's peak, 10^6 bytes; digest: of the final state."""

    images: int
    workers: int
    phases: tuple[tuple[str, float], ...]
    mb: float
    digest: str


def main() -> int:
    """Measure and tell; 1 if digests differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000, help="photographs of a site")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 4], help="threads that read ahead at each agent")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sites", type=int, choices=(1, 2, 3), default=3)
    parser.add_argument("--quick", action="store_true", help="300 photographs a site")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    args = parser.parse_args()
    args.images = min(args.images, 300) if args.quick else args.images
    with tempfile.TemporaryDirectory(prefix="tideline-cameras-") as home:
        for site in SITES[: args.sites]:
            write_images(Path(home) / site / "camera", args.images)
        rows = [measured(Path(home), workers, args) for workers in args.workers]
    same = len({row.digest for row in rows}) == 1
    print("equal digests" if same else "DIGESTS DIFFER", file=sys.stderr)
    return int(not same)


def measured(home: Path, workers: int, args: argparse.Namespace) -> Row:
    """One federation over the photographs."""
    with tempfile.TemporaryDirectory(prefix="federation-", dir=home) as folder, net(Path(folder)) as federation:
        federation.coordinator()
        names = SITES[: args.sites]
        for site in names:
            federation.agent(site, home / site, "source", "--workers", str(workers), "--parallel", "1")
        with PeakMemory({site: federation.running[site].pid for site in names}, 0.25, later=True) as memory:
            run = federation.run(experiment(names, args.rounds))
            while not ended(result := federation.client().get(f"/runs/{run}")):
                time.sleep(0.5)
    if result["status"] != "completed":
        raise SystemExit(f"the run is {result['status']}: {result.get('cause')}")
    phases = tuple((phase["name"], round(phase["seconds"], 1)) for phase in result["phases"] if phase["seconds"] is not None)
    row = Row(args.images, workers, phases, round(max(memory.peaks.values()), 1), result["state_digest"])
    print(json.dumps(asdict(row)) if args.json else text_of(row), flush=True)
    return row


def experiment(names: Sequence[str], rounds: int) -> dict[str, Any]:
    """Images are changed at random, so that what workers draw shows in the bytes."""
    return {
        "method": "fedavg",
        "config": {"rounds": rounds, "epochs": 1, "batch": 64},
        "world": {"inputs": [3, SIDE, SIDE], "classes": CLASSES, "model": "convnet"},
        "roster": dict.fromkeys(names, "source"),
        "augment": {"flip": "horizontal"},
        "seed": 1,
        "waiting": {"deadline": 3600},
    }


def text_of(row: Row) -> str:
    times = ", ".join(f"{name} {seconds:g}" for name, seconds in row.phases)
    return f"{row.images} photographs a site, {row.workers} workers: {times} s; {row.mb:g} MB; {row.digest[:16]}"


if __name__ == "__main__":
    sys.exit(main())
