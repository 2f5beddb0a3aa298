"""One run of `benchmarks/alignment.py` by real processes: a coordinator and an agent for each domain, over the loopback.

The same folders are then read in one process, and the run is played again: the state has to be the same, bit for bit.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alignment_report import PEERS_SEE, POLICY, domains, experiment, gathered, scored
from benchmarks.processes import in_one_process, played
from tideline.learning.formats.holdings import Holdings


def over_the_network(args: Any) -> dict[str, Any]:
    """The first target and method with seed 0: accuracy, megabytes, seconds, peak memory of coordinator and agents in MB."""
    all_of = domains(args)
    at, method = (args.targets or next(iter(all_of))).split(",")[0], args.methods.split(",")[0]
    sites = gathered(all_of, at, args)
    given, roles = experiment(sites, at, method, args)
    given = {**given, "roster": roles, "seed": 0}
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        folders = {name: written(home / "sites" / name, name, own) for name, own in sites.items()}
        result, held = played(home, given, folders, POLICY)
        again = in_one_process(given, folders, PEERS_SEE)
    report = {"target": at, "method": method, "agents": len(folders), **scored(result, at), **held}
    return {**report, "same": result["state_digest"] == again["state_digest"]}


def written(folder: Path, name: str, own: Holdings) -> Path:
    """A site's rows as a data folder: those to train on first, then those held out."""
    folder.mkdir(parents=True)
    x = np.concatenate([own.train.x.all().numpy(), own.held_out.x.all().numpy()])
    y = np.concatenate([side.y.numpy() for side in (own.train, own.held_out) if side.y is not None])
    channels_last = x.transpose(0, 2, 3, 1) if x.ndim > 2 else x
    np.savez(folder / f"{name}.npz", x=channels_last, y=y, test_idx=np.arange(len(own.train), len(y)))
    return folder
