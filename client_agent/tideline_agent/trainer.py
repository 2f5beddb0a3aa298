"""The trainer: a program of its own that runs steps for one run. Started by exec; reads and writes files; sends nothing anywhere.

python -m tideline_agent.trainer VAULT DATA METHODS DEVICE
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tideline.core.registry import load_methods
from tideline.core.run import ClientId, Digest, Role, RunId, World
from tideline.engine.pipe import Tick, serve
from tideline.engine.ports import Job, Shelf
from tideline.engine.stepper import Stepper
from tideline.learning.folder import read_folder
from tideline_agent.vault import FolderVault

Files = tuple[tuple[str, int, int], ...]


def main() -> None:
    """Answer jobs until the agent closes the pipe."""
    import torch

    torch.set_num_threads(1)  # outside a step there are only checks; a second thread would spin for longer than it helps
    vault, data, methods, device = sys.argv[1:]

    def open_shelf(world: World, role: Role) -> Shelf:
        return read_folder(Path(data), world, role)

    registry, parts_of, where = load_methods(methods), FolderVault(Path(vault)).parts, chosen(device)

    @lru_cache(maxsize=1)
    def stepper(files: Files) -> Stepper:
        return Stepper(registry, parts_of, open_shelf, where)

    def handle(name: str, payload: Mapping[str, Any], tick: Tick) -> Mapping[str, Any]:
        done = stepper(files_of(Path(data))).run(job_in(payload), tick)
        return {"message": done.message, "memory": done.memory, "metrics": dict(done.metrics), "facts": dict(done.facts)}

    serve(handle)


def files_of(folder: Path) -> Files:
    """What tells whether the data has changed: each file's name, size and time. A site's owner may mend it between two runs."""
    try:
        return tuple(sorted((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in folder.iterdir()))
    except OSError:
        return ()


def job_in(raw: Mapping[str, Any]) -> Job:
    """A job from plain data."""
    message, memory = (None if raw[k] is None else Digest(raw[k]) for k in ("message", "memory"))
    place = (RunId(raw["run"]), ClientId(raw["client"]), raw["cursor"], raw["round"])
    return Job(*place, raw["brief"], raw["seed"], message, memory)


def chosen(device: str) -> str:
    """`auto` takes a GPU where there is one."""
    import torch

    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    main()
