"""One case of ST-LF by real processes: a coordinator and ten agents over the loopback, each with a folder of its own.

The same folders are then read in one process, and the run is played again: state and links have to be the same, bit for bit.
Targets are scored on a tenth of their rows here, as an agent holds them out; `benchmarks/stlf.py` scores them on all.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.digit_devices import CASES, dealt, write
from benchmarks.processes import in_one_process, played
from benchmarks.stlf_report import compared, settings, traffic
from tideline.core.asked.world import World, plain_world
from tideline.learning.partition.dirichlet import Dirichlet
from tideline.learning.partition.folders import write_sites


def over_the_network(args: Any) -> dict[str, Any]:
    """The first case with seed 0: what it came to, seconds, megabytes, peak memory of coordinator and agents in MB."""
    case = args.cases.split(",")[0]
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        folders, roles, world = laid_out(case, args, home)
        given = {"method": "stlf", "config": settings(args), "world": world, "roster": dict(roles), "seed": 0}
        result, held = played(home, given, folders)
        again = in_one_process(given, folders)
    report = {**compared(result), **traffic(result), "state_digest": result["state_digest"], **held}
    return {"case": case, "agents": len(folders), **report, "same": result["state_digest"] == again["state_digest"]}


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
