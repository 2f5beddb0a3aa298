"""Seeded runs of six methods, and of secure sums, amid random faults: each must end in the undisturbed bytes, nothing lost or
counted twice.

make chaos                                           50 seeds
make chaos ARGS="--seeds 5 --first 20 --keep DIR"    some, and the history of all in DIR/history.jsonl
make chaos ARGS="--over-http"                        agents call the HTTP ports, and no gRPC port and no lane

A line a seed, then what the checker says. Three to five faults befall each run: kill -9, SIGTERM, freezing beyond the lease, cut
lines and a full disk, of both coordinators, the agents, their trainers, the numeric worker, Postgres and Redis.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.acceptance.chaos.check import check
from tests.acceptance.chaos.faults import EVERY, pause
from tests.acceptance.chaos.history import History, Watcher, read_history, write_end
from tests.acceptance.chaos.world import COORDINATORS, World, experiment, play_of, world
from tests.services import why_no_postgres

LONGEST_PEACE = 0.8  # seconds between two faults


def live(there: World, history: History, seed: int) -> str:
    """One run and what befell it. A line that tells."""
    dice, given, began = random.Random(seed), experiment(seed), time.monotonic()
    name = dice.choice(COORDINATORS)
    run = str(there.client(name).post("/runs", given)["run"])
    history.note("started", run=run, by=name, seed=seed)
    with Watcher(there, history, run):
        befell = disturb(there, history, run, dice)
        there.until(lambda: there.over(run), f"run {run} of seed {seed} to end after: {befell}")
    history.note("expected", run=run, digest=there.undisturbed(given))
    for name in COORDINATORS:
        there.ready(name)
    write_end(there, history, run)
    return f"seed {seed:3d}  {play_of(seed):21s}  {run}  {time.monotonic() - began:5.1f} s  {'; '.join(befell)}"


def disturb(there: World, history: History, run: str, dice: random.Random) -> list[str]:
    """Faults, one after the other, while the run lasts."""
    befell: list[str] = []
    for _ in range(dice.randint(3, 5)):
        pause(there, dice.uniform(0.0, LONGEST_PEACE))
        fault = dice.choice(EVERY)
        if there.over(run):
            break
        befell.append(fault(there, dice))
        history.note("fault", run=run, what=befell[-1])
    return befell


def chaos(home: Path, seeds: range, over_http: bool) -> list[str]:
    """One federation, a run for each seed; everything that is wrong with its history."""
    history = History(home / "history.jsonl")
    with world(home, over_http=over_http) as there:
        there.begin()
        for seed in seeds:
            print(live(there, history, seed), flush=True)
        lane = there.lane_wire.passed
    print(f"{lane / 1e6:.1f} MB over the bulk lane", flush=True)
    unused = (
        lane == 0 and len(seeds) > 1 and not over_http
    )  # a single run may have small messages, or be conducted without the lane
    return [*check(read_history(history.path)), *(("nothing went over the bulk lane",) if unused else ())]


def main() -> int:
    """Every seed; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--over-http", action="store_true")
    asked = parser.parse_args()
    if why_no_postgres():
        print(why_no_postgres())
        return 1
    seeds = range(asked.first, asked.first + asked.seeds)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        home = asked.keep or Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        wrong = chaos(home, seeds, asked.over_http)
    print("\n".join(wrong) or f"{len(seeds)} runs: every one in the undisturbed bytes, no round lost, no reply counted twice")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
