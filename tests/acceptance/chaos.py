"""Processes killed at random moments: whatever dies, the run ends in the undisturbed simulation's bytes.

python -m tests.acceptance.chaos --seeds 10 [--first 0]

One line a seed. Two to four times, with kill -9: the coordinator, an agent, a trainer or the numeric worker.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tests.acceptance import gated
from tests.acceptance.conftest import SITES, WORLD, write_blobs
from tests.acceptance.harness import Net, net
from tideline.algorithms import METHODS
from tideline.core.errors import FederationError
from tideline.engine.simulate import SimSite, simulate
from tideline.learning.folder import read_folder

REGISTRY = "tests.acceptance.chaos:EVERY"
EVERY = (*METHODS, *gated.METHODS)
LONGEST_PAUSE = 1.0  # seconds between two kills
VICTIMS = ("coordinator", "worker", *SITES, *(f"trainer of {site}" for site in SITES))


def experiment(seed: int) -> dict[str, Any]:
    """Six rounds, by turns of a method that counts its steps in memory and of one that trains."""
    method = ("gated", "fedavg")[seed % 2]
    preset = {"method": method, "preset": "tiny", "config": {"rounds": 6}}
    return {**preset, "world": WORLD, "roster": SITES, "seed": seed, "reference": None}


def undisturbed(data: dict[str, Path], given: dict[str, Any]) -> str:
    """The state digest of the same run in one process, in peace."""
    sites = {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r)) for n in SITES}
    result = simulate(EVERY, given, sites)
    assert result["status"] == "completed", result["cause"]
    return str(result["state_digest"])


def processes(federation: Net, victim: str) -> list[psutil.Process]:
    """The processes that a name means; a trainer and the worker are children, and come and go."""
    if victim in federation.running:
        return [psutil.Process(federation.running[victim].pid)]
    parent = victim.removeprefix("trainer of ") if victim != "worker" else "coordinator"
    try:
        return psutil.Process(federation.running[parent].pid).children()
    except psutil.NoSuchProcess:
        return []


def strike(federation: Net, victim: str) -> None:
    """Kill, and start again with the same command what nobody else starts again."""
    if victim in federation.running:
        federation.kill(victim)
        federation.again(victim)
        return
    for process in processes(federation, victim):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def over(federation: Net, run: str) -> bool:
    """Whether the run has ended, as far as anybody answers."""
    try:
        return federation.result(run)["status"] not in ("waiting", "running")
    except FederationError:
        return False


def disturb(federation: Net, run: str, dice: random.Random) -> list[str]:
    """Kill two to four times while the run lasts; what was killed, in order."""
    killed: list[str] = []
    for _ in range(dice.randint(2, 4)):
        victim, moment = dice.choice(VICTIMS), time.monotonic() + dice.uniform(0.0, LONGEST_PAUSE)
        federation.until(lambda moment=moment: time.monotonic() >= moment, "a moment to kill")
        federation.until(lambda victim=victim: bool(processes(federation, victim)) or over(federation, run), f"{victim} to live")
        if over(federation, run):
            break
        strike(federation, victim)
        killed.append(victim)
    return killed


def chaos(seed: int, home: Path) -> str:
    """One federation, one run, its kills. A line that tells; raises AssertionError with the logs' ends."""
    dice, given = random.Random(seed), experiment(seed)
    data = {name: write_blobs(home / "data" / name, i) for i, name in enumerate(SITES)}
    began = time.monotonic()
    with net(home, REGISTRY) as federation:
        federation.coordinator()
        for name, role in SITES.items():
            federation.agent(name, data[name], role)
        run = federation.run(given)
        killed = disturb(federation, run, dice)
        federation.until(lambda: over(federation, run), f"run {run} to end after the deaths of {killed}")
        federation.ready()
        result = federation.result(run)
    assert result["status"] == "completed", f"seed {seed}, killed {killed}: {result['status']}: {result['cause']}"
    assert result["state_digest"] == undisturbed(data, given), f"seed {seed}, killed {killed}: other bytes"
    who = ", ".join(killed) or "nobody in time"
    return f"seed {seed:3d}  {given['method']:6s}  {time.monotonic() - began:5.1f} s  killed: {who}"


def main() -> int:
    """Every seed, whatever became of those before it; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    failed = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        with tempfile.TemporaryDirectory(prefix="chaos-") as home:
            try:
                print(chaos(seed, Path(home)), flush=True)
            except AssertionError as error:
                failed += 1
                print(f"seed {seed:3d}  FAILED  {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
