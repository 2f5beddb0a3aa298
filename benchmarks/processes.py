"""An experiment by real processes over the loopback, an agent for each folder; and again in one process from the same folders."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.domains import played_with
from benchmarks.measure import PeakMemory
from tests.acceptance.harness import COORDINATOR, net
from tideline.core.asked.world import World
from tideline.core.privacy import DEFAULT_POLICY, Policy
from tideline.core.run import Role
from tideline.learning.formats.folder import read_folder

POLL_SECONDS = 0.5


def played(
    home: Path, given: Mapping[str, Any], folders: Mapping[str, Path], policy: str = ""
) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The result of a run by a coordinator and agents, and seconds and peak memory of both. policy: of every site, TOML."""
    with net(home) as made:
        made.more["OMP_NUM_THREADS"] = "1"
        made.coordinator()
        for name, folder in folders.items():
            made.agent(name, folder, given["roster"][name], *policy_of(home, policy))
        begun, run = time.monotonic(), made.run(given)
        with PeakMemory({name: process.pid for name, process in made.running.items()}) as memory:
            while (result := made.result(run))["status"] in ("waiting", "running"):
                time.sleep(POLL_SECONDS)
    if result["status"] != "completed":
        sys.exit(f"{result['status']}: {result['cause']}")
    held = {"coordinator_mb": round(memory.peaks[COORDINATOR]), "agent_mb": round(max(memory.peaks[name] for name in folders))}
    return result, {**held, "seconds": round(time.monotonic() - begun, 1)}


def policy_of(home: Path, policy: str) -> tuple[str, ...]:
    """The option of an agent."""
    if not policy:
        return ()
    (home / "policy.toml").write_text(policy)
    return "--policy", str(home / "policy.toml")


def in_one_process(given: Mapping[str, Any], folders: Mapping[str, Path], policy: Policy = DEFAULT_POLICY) -> Mapping[str, Any]:
    """The run again, from the same folders."""
    torch.set_num_threads(1)
    world = World(**{**given["world"], "inputs": tuple(given["world"]["inputs"])})
    sites = {name: read_folder(folder, world, Role(given["roster"][name])) for name, folder in folders.items()}
    *_, result = played_with(
        sites, given["roster"], given["method"], given["config"], given["seed"], given["world"], policy=policy
    )
    return result
