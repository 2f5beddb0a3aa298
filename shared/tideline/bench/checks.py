"""What can be refused of a grid before a cell runs: its data, its deals, its methods and their settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tideline.archive.parts import MemoryParts
from tideline.bench.grid import Grid, base_config, clients, config_of, left_out
from tideline.core.algorithm import Methods
from tideline.core.errors import ConfigRefused, Refused
from tideline.core.run import ClientId, Member, Role
from tideline.core.settings import plain
from tideline.engine.compute.inline import InlineCompute
from tideline.engine.model.experiment import read_experiment
from tideline.engine.ports.compute import DraftRequest
from tideline.experiments.files import ExperimentText
from tideline.learning.partition.deal_folders import sizes_of
from tideline.learning.partition.deals import Deal, deal
from tideline.learning.partition.dealt_folder import role_of


def folder_of(text: ExperimentText, grid: Grid) -> Path:
    """The grid's data folder, seen from its file. Raises ConfigRefused."""
    path = Path(text.name).parent / Path(grid.folder).expanduser()
    if not path.is_dir():
        with text.located():
            raise ConfigRefused(f"folder: there is no folder {path}", "Correct the path", path="folder")
    return path.resolve()


def check_grid(text: ExperimentText, grid: Grid, folder: Path, methods: Methods) -> dict[str, int]:
    """Rows of each domain, if every cell could begin. Raises Refused errors, with the line where there is one."""
    sizes = sizes_of(folder)
    with text.located():
        check_deals(grid, sizes)
        check_methods(grid, clients(grid, sizes), methods)
    return sizes


def check_deals(grid: Grid, sizes: Mapping[str, int]) -> None:
    """Raises ConfigRefused for a deal that is not possible."""
    for i, domain in enumerate(left_out(grid, sizes)):
        for j, d in enumerate(grid.domains):
            rule = Deal(
                leave_out=domain, clients=clients(grid, sizes), domains=d, seed=grid.seeds[0], share=grid.share, shots=grid.shots
            )
            places = {"leave_out": f"leave_out[{i}]", "domains": f"domains[{j}]"}
            try:
                deal(sizes, rule)
            except ConfigRefused as error:
                path = str(error.context.get("path", ""))
                what = error.what if path == "leave_out" else f"With {domain} left out: {error.what}"
                raise ConfigRefused(what, error.todo, path=places.get(path, path)) from None


def check_methods(grid: Grid, n: int, methods: Methods) -> None:
    """Raises what the coordinator would raise of each method, its settings, the world and the roster."""
    compute = InlineCompute(MemoryParts(), methods)
    roles = {name: role_of(name) for name in (*(f"client-{i + 1}" for i in range(n)), "unseen")}
    roster = tuple(Member(ClientId(name), role, labelled=role is Role.SOURCE) for name, role in sorted(roles.items()))
    for i, each in enumerate(grid.methods):
        with said_of(grid, i):
            config = config_of(grid, each)
            base = {key: value for key, value in grid.base.items() if key != "config"}
            read_experiment({"method": each.method, "config": config, **plain(base)})
            compute.draft(DraftRequest(method=each.method, preset=each.preset, config=config, world=grid.world, roster=roster))


@contextmanager
def said_of(grid: Grid, i: int) -> Iterator[None]:
    """Refusals of a cell's experiment name the place in the grid that it comes from."""
    try:
        yield
    except Refused as error:
        path = place_of(grid, i, str(error.context.get("path") or ""))
        raise type(error)(f"{grid.methods[i].name}: {error.what}", error.todo, **{**error.context, "path": path}) from None


def place_of(grid: Grid, i: int, path: str) -> str:
    """Where in the grid a dotted path of an experiment was said."""
    head, _, rest = path.partition(".")
    own: Mapping[str, Any] = grid.methods[i].config
    if head == "config" and rest.partition(".")[0] not in own and rest.partition(".")[0] in base_config(grid):
        return f"base.{path}"
    if head in ("method", "preset", "config", "roster", ""):
        return f"methods[{i}].{path}".rstrip(".")
    return path if head in ("world", "base") else f"base.{path}"
