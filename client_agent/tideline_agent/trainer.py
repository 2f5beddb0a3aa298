"""The trainer: a program of its own that runs steps for one run. Started by exec; reads and writes files; sends nothing anywhere.

python -m tideline_agent.trainer VAULT DATA METHODS DEVICE CACHE WORKERS NETWORK...

DATA is a folder, or python:MODULE:NAME: a function of the site's owner, which runs in this process alone. CACHE is the size that
decoded rows may take in the home: 20GB, half, 0.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tideline.core.algorithm import Methods, load_methods
from tideline.core.asked.world import World
from tideline.core.run import Role
from tideline.core.settings import Plain, plain
from tideline.core.step import no_tick
from tideline.engine.compute.private.metering import able
from tideline.engine.compute.step_runner import StepRunner, owners_code
from tideline.engine.model.orders import hashed
from tideline.engine.ports.site import OpenSiteData, SiteData
from tideline.engine.process.measuring import measuring
from tideline.engine.process.pipe import Tick, job_in, serve
from tideline.learning.cache.folder import ROWS, Folder, limit_in
from tideline.learning.cache.opening import RowsCache
from tideline.learning.formats.folder import read_folder
from tideline.learning.sites.module import function_at, read_python
from tideline.learning.sites.named import files_of_module, place_in
from tideline.nets import registry
from tideline.nets.computing.devices import chosen, limit_memory, present
from tideline_agent.home.features import FEATURES
from tideline_agent.pool import ABLE, AUTO, CHECK, SILENT
from tideline_agent.vault import FolderVault

Files = tuple[tuple[str, int, int], ...]
DEPTH = 2  # a domain's folder, and those of its classes


def opener_of(data: str, cache: RowsCache | None = None) -> OpenSiteData:
    """How the data at a place are opened: a folder, or python:MODULE:NAME. cache: where decoded rows of a folder are written."""
    place = place_in(data)

    def open_site_data(world: World, role: Role) -> SiteData:
        return read_folder(Path(data), world, role, cache=cache) if place is None else read_python(place, world, role)

    return open_site_data


class Follower:
    """Hands on how far the opening of data is, as the tick of the step that waits for it. The step itself may tick or not."""

    def __init__(self) -> None:
        self.tick: Tick = no_tick

    def __call__(self, share: float) -> None:
        self.tick(share if share < 1.0 else SILENT)


def main() -> None:
    """Answer jobs until the agent closes the pipe."""
    import torch

    torch.set_num_threads(1)  # outside a step there are only checks; a second thread would spin for longer than it helps
    vault, data, methods, device, limit, workers, *networks = sys.argv[1:]
    log_progress()

    follower = Follower()
    cache = RowsCache(Folder(Path(vault).parent / ROWS, limit_in(limit)), progress=follower)
    place, open_site_data = place_in(data), opener_of(data, cache)
    parts_of, where = FolderVault(Path(vault)).parts, chosen(device)
    features = Path(vault).parent / FEATURES

    @lru_cache(maxsize=1)
    def loaded() -> Methods:
        """At the first call, so that what is wrong with methods or networks is an answer. Raises ConfigRefused."""
        registry.use(networks)
        return load_methods(methods)

    @lru_cache(maxsize=1)
    def step_runner(files: Files) -> StepRunner:
        with owners_code():
            known = loaded()
        return StepRunner(
            methods=known,
            parts_of=parts_of,
            open_site_data=open_site_data,
            device=where,
            features=features,
            workers=None if workers == AUTO else int(workers),
            seen=hashed("data", files),
        )

    def handle(name: str, payload: Mapping[str, Plain], tick: Tick) -> Mapping[str, Plain]:
        if name == CHECK:
            if place is not None:
                function_at(place)
            return {"methods": len(loaded())}
        if name == ABLE:
            return {ABLE: list[Plain](able(loaded()))}
        present(where)
        follower.tick = tick
        limit_memory(where)
        with measuring(where) as spent:
            done = step_runner(files_of(data)).run(job_in(payload), tick)
            return plain(replace(done, spent=spent()))

    serve(handle)


def log_progress() -> None:
    """What is written of decoded rows goes to the agent's own log, beside warnings."""
    wanted, handler = logging.getLogger("tideline.learning.cache"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    wanted.addHandler(handler)
    wanted.setLevel(logging.INFO)
    wanted.propagate = False


def files_of(data: Path | str) -> Files:
    """What tells whether the data has changed: each file's place, size and time. A site's owner may mend it between two runs.

    Of a function the file of its module alone: what it reads is its own affair.
    """
    place = place_in(data)
    return tuple(sorted(entries_of(str(data), "", DEPTH))) if place is None else tuple(files_of_module(place))


def entries_of(folder: str, above: str, depth: int) -> Iterator[tuple[str, int, int]]:
    """What a folder and, down to a depth, those inside it hold. What cannot be looked at is told by its name."""
    try:
        entries = os.scandir(folder)
    except OSError:
        return
    with entries:
        for entry in entries:
            name = f"{above}{entry.name}"
            try:
                seen = entry.stat()
            except OSError:
                yield name, -1, -1
                continue
            yield name, seen.st_size, seen.st_mtime_ns
            if depth and stat.S_ISDIR(seen.st_mode) and not entry.name.startswith("."):
                yield from entries_of(entry.path, f"{name}/", depth - 1)


if __name__ == "__main__":
    main()
