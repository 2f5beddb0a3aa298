"""One case of ST-LF by real processes: a coordinator and ten agents over the loopback, each with a folder of its own.

The same folders are then read in one process, and the run is played again: state and links have to be the same, bit for bit.
Targets are scored on a tenth of their rows here, as an agent holds them out; `benchmarks/stlf.py` scores them on all.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.digit_devices import CASES, dealt, write
from benchmarks.domains import played_with
from benchmarks.measure import PeakMemory
from benchmarks.stlf_told import compared, settings, traffic
from tests.acceptance.harness import COORDINATOR, Net, net
from tideline.core.run import Role, World, plain_world
from tideline.learning.dealing import write_sites
from tideline.learning.devices import Dirichlet
from tideline.learning.folder import read_folder

POLL_SECONDS = 0.5


def over_the_network(args: Any) -> dict[str, Any]:
    """The first case with seed 0: what it came to, seconds, megabytes, peak memory of coordinator and agents in MB."""
    case = args.cases.split(",")[0]
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        folders, roles, world = laid_out(case, args, home)
        given = {"method": "stlf", "config": settings(args), "world": world, "roster": dict(roles), "seed": 0}
        with net(home) as made:
            told = played(made, given, folders, roles)
        again = in_one_process(given, folders, roles, args)
    return {"case": case, "agents": len(folders), **told, "same": told["state_digest"] == again["state_digest"]}


def laid_out(case: str, args: Any, home: Path) -> tuple[dict[str, Path], dict[str, str], dict[str, Any]]:
    """A folder and a role for each device, and the world."""
    kind, names = CASES[case]
    sets = home / "sets"
    sets.mkdir()
    write(names, args.data, sets)
    _, sites = dealt(sets, Dirichlet(case=kind, take=names, scale=args.scale))
    folders = {name: home / "devices" / name for name in sites.hands}
    write_sites(sets, {folders[name]: hands for name, hands in sites.hands.items()})
    world = World(inputs=(3 if names == ("mnistm",) else 1, 28, 28), classes=10, model="convnet")
    return folders, {name: role.value for name, role in sites.roles.items()}, plain_world(world)


def played(made: Net, given: Mapping[str, Any], folders: Mapping[str, Path], roles: Mapping[str, str]) -> dict[str, Any]:
    """The run by processes."""
    made.more["OMP_NUM_THREADS"] = "1"
    made.coordinator()
    for name, folder in folders.items():
        made.agent(name, folder, roles[name])
    begun, run = time.monotonic(), made.run(given)
    with PeakMemory({name: process.pid for name, process in made.running.items()}) as memory:
        while (result := made.result(run))["status"] in ("waiting", "running"):
            time.sleep(POLL_SECONDS)
    if result["status"] != "completed":
        sys.exit(f"{result['status']}: {result['cause']}")
    agents = [memory.peaks[name] for name in folders]
    held = {"coordinator_mb": round(memory.peaks[COORDINATOR]), "agent_mb": round(max(agents))}
    told = {**compared(result), **traffic(result), "state_digest": result["state_digest"]}
    return {**told, **held, "seconds": round(time.monotonic() - begun, 1)}


def in_one_process(
    given: Mapping[str, Any], folders: Mapping[str, Path], roles: Mapping[str, str], args: Any
) -> Mapping[str, Any]:
    """The run again, from the same folders."""
    torch.set_num_threads(1)
    world = World(**{**given["world"], "inputs": tuple(given["world"]["inputs"])})
    sites = {name: read_folder(folder, world, Role(roles[name])) for name, folder in folders.items()}
    *_, result = played_with(sites, roles, "stlf", given["config"], given["seed"], given["world"])
    return result
