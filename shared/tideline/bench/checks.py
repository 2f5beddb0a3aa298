"""Check a grid before a cell runs: its data, its deals, its methods and their settings; and the digest of its data."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tideline.archive.parts import MemoryParts
from tideline.bench.grid import Grid, Variant, base_config, clients, deal_of, experiment_of, variants
from tideline.client.output import replace_file
from tideline.core.algorithm import Methods
from tideline.core.errors import ConfigRefused, Refused
from tideline.core.run import ClientId, RunId
from tideline.engine.compute.inline import InlineCompute
from tideline.engine.coordinator.rehearsals import Roles, laid_out, placed, request_of
from tideline.engine.model.experiment import Experiment, read_experiment
from tideline.engine.ports.compute import Compute
from tideline.learning.formats import images
from tideline.learning.formats.classes import CLASSES
from tideline.learning.formats.folder import TRANSFORMS, find
from tideline.learning.partition.deals import UNSEEN, Deal, deal
from tideline.learning.partition.folders import role_of, sizes_of
from tideline.written.files import ExperimentText


def check_grid(text: ExperimentText, grid: Grid, folder: Path, methods: Methods) -> dict[str, int]:
    """Rows of each domain, if every cell can begin. Raises Refused errors, with the line if there is one."""
    sizes = sizes_of(folder)
    with text.located():
        check_deals(grid, sizes)
        check_methods(grid, clients(grid, sizes), methods)
    return sizes


def check_deals(grid: Grid, sizes: Mapping[str, int]) -> None:
    """Raises ConfigRefused for a deal that is not possible."""
    n = clients(grid, sizes)
    for (i, domain), (j, d) in itertools.product(enumerate(grid.leave_out or tuple(sizes)), enumerate(grid.domains)):
        try:
            deal(sizes, Deal(**cast("Any", deal_of(grid, domain, n, d, grid.seeds[0]))))
        except ConfigRefused as error:
            path = str(error.context.get("path", ""))
            what = error.what if path == "leave_out" else f"With {domain} left out: {error.what}"
            places = {"leave_out": f"leave_out[{i}]", "domains": f"domains[{j}]"}
            raise ConfigRefused(what, error.todo, path=places.get(path, path)) from None


def check_methods(grid: Grid, n: int, methods: Methods) -> None:
    """Raises what the coordinator would raise for each method, its settings, the world and the roster."""
    if grid.world.frozen:
        what = (
            f"world.trains is {' '.join(grid.world.trains)}, and the cells of a bench begin from no weights that could be frozen"
        )
        raise ConfigRefused(what, "Write trains: all, or run each experiment with tideline simulate", path="world.trains")
    compute = InlineCompute(MemoryParts(), methods)
    roster = {ClientId(name): role_of(name) for name in (*(f"client-{i + 1}" for i in range(n)), UNSEEN)}
    for row in variants(grid):
        with located_in(grid, row):
            check_experiment(read_experiment(experiment_of(grid, row, {"folder": grid.folder, "seed": 0})), roster, compute)


def check_experiment(experiment: Experiment, roster: Roles, compute: Compute) -> None:
    """Raises what the coordinator would raise for it; of one that rehearses, for each run that belongs to it."""
    if experiment.rehearse is None:
        compute.draft(request_of(experiment, roster))
        return
    for child in laid_out(RunId("rehearsal"), experiment, roster, compute).children:
        with placed(child):
            compute.draft(request_of(child.experiment, child.roster))


@contextmanager
def located_in(grid: Grid, row: Variant) -> Iterator[None]:
    """Refusals of a cell's experiment name the place in the grid where it comes from."""
    try:
        yield
    except Refused as error:
        path = place_of(grid, row, str(error.context.get("path") or ""))
        raise type(error)(f"{row.label}: {error.what}", error.todo, **{**error.context, "path": path}) from None


def place_of(grid: Grid, row: Variant, path: str) -> str:
    """Where in the grid a dotted path of an experiment comes from."""
    head, *rest = path.split(".")
    own, method = f"methods[{row.place}]", row.method
    if head == "config" and rest and rest[0] in row.swept:
        return f"{own}.sweep.{rest[0]}[{method.sweep[rest[0]].index(row.swept[rest[0]])}]"
    if head == "config" and rest and rest[0] not in method.config and rest[0] in base_config(grid):
        return f"base.{path}"
    if head in ("method", "preset", "config", "rehearse", "roster", "") or (head == "world" and rest and rest[0] in method.world):
        return f"{own}.{path}".rstrip(".")
    return path if head in ("world", "base") else f"base.{path}"


@dataclass(frozen=True)
class FileFacts:
    """A file's size, time of its last change (ns), and the SHA-256 of its bytes."""

    size: int
    changed: int
    sha256: str


def digest_of(folder: Path, cache: Path, write_cache: bool = True) -> str:
    """SHA-256 over the names, sizes and digests of the folder's files. Raises DataRefused.

    A file whose size and time of change are those in the cache is not read again. write_cache: note what was read.
    """
    known = read_cache(cache)
    facts: dict[str, FileFacts] = {}
    for name, path in files_of(folder).items():
        stat = path.stat()
        last = known.get(f"{folder}/{name}")
        if last is None or (last.size, last.changed) != (stat.st_size, stat.st_mtime_ns):
            with path.open("rb") as file:
                last = FileFacts(stat.st_size, stat.st_mtime_ns, hashlib.file_digest(file, "sha256").hexdigest())
        facts[name] = last
    if write_cache:
        replace_file(cache, json.dumps({f"{folder}/{name}": vars(each) for name, each in facts.items()}, indent=0) + "\n")
    lines = "".join(f"{json.dumps(name)} {each.size} {each.sha256}\n" for name, each in sorted(facts.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def files_of(folder: Path) -> dict[str, Path]:
    """The files that are read of a folder, by name as seen from it."""
    files = {name: folder / name for name in (TRANSFORMS, CLASSES) if (folder / name).exists()}
    for path in find(folder).values():
        inside = [*images.listed(path).files, images.HELD_OUT] if path.is_dir() else [""]
        files |= {f"{path.name}/{name}".rstrip("/"): path / name for name in inside if (path / name).exists()}
    return files


def read_cache(cache: Path) -> Mapping[str, FileFacts]:
    """The facts of files from an earlier call; empty if they cannot be read, as they can be computed again."""
    try:
        return {name: FileFacts(**each) for name, each in json.loads(cache.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
