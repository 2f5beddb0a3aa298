"""A grid: methods x left-out domains x d x seeds, read from a file and laid out as cells, each an experiment of its own.

It loads no torch; tideline.bench.checks checks a grid against its methods and data.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from tideline.core.errors import ConfigRefused
from tideline.core.run import EMPTY, World, plain_world
from tideline.core.settings import Plain, nearest, parse, plain, setting
from tideline.experiments.files import ExperimentText
from tideline.experiments.yaml_lines import write_yaml

# What `base` may say of every cell's experiment; the rest of an experiment is the grid's own.
BASE = ("config", "waiting", "sample", "reference", "checkpoint_every", "threads")
MOST_SEEDS = 1000
LONGEST = 60  # characters of a label
DIGITS = 12  # of a digest in a name


@dataclass(frozen=True)
class GridMethod:
    """One method of a grid, in one setting."""

    method: str = setting(doc="the method's name, see `tideline methods`")
    label: str = setting("", doc="its name in tables and files; default the method's name")
    preset: str | None = setting(None, doc="one of the method's presets; `config` overrides it")
    config: Mapping[str, Plain] = setting(EMPTY, doc="the method's settings, over those of base")

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.label or self.method


@dataclass(frozen=True)
class Grid:
    """What to compare, and on which data."""

    folder: str = setting(doc="a data folder with all domains, each labelled; seen from the grid's file")
    methods: tuple[GridMethod, ...] = setting(doc="names, or {label, method, preset, config}")
    world: World = field(default_factory=World, metadata={"doc": "what all members agree on"})
    leave_out: tuple[str, ...] = setting((), doc="the domains to leave out, one after the other; default all")
    domains: tuple[int, ...] = setting((1,), low=1, doc="source domains of each client, d")
    clients: int | None = setting(None, low=2, doc="number of clients, N; default the number of source domains")
    seeds: tuple[int, ...] = setting((0, 1, 2), low=0, high=2**62, doc="seeds of deal and run; or how many, counted from 0")
    share: float = setting(0.1, low=0.001, high=0.999, doc="of each client's rows that are held out")
    shots: int = setting(0, low=0, doc="rows of the left-out domain that join each client's training rows")
    base: Mapping[str, Plain] = setting(EMPTY, doc=f"of every experiment: {', '.join(BASE)}")


@dataclass(frozen=True)
class Cell:
    """One run of a grid. `text`: its experiment file; `digest`: SHA-256 of that; `key`: the name of its folder."""

    label: str
    method: str
    leave_out: str
    domains: int
    seed: int
    text: str
    digest: str
    key: str

    def words(self) -> str:
        return f"{self.label}, {self.leave_out} left out, d = {self.domains}, seed {self.seed}"


def read_grid(text: ExperimentText) -> Grid:
    """A grid from a file. Raises ConfigRefused with the line of what is wrong."""
    with text.located():
        grid = parse(Grid, unfolded(text.value))
        check_methods(grid)
        for name in ("leave_out", "domains", "seeds"):
            check_once(name, getattr(grid, name))
        check_base(grid.base)
    return grid


def unfolded(given: Mapping[str, Plain]) -> dict[str, Plain]:
    """With the short forms written out: methods by name alone, one value for a list of one, a number of seeds."""
    made = dict(given)
    methods = made.get("methods")
    if isinstance(methods, list):
        made["methods"] = [{"method": each} if isinstance(each, str) else each for each in methods]
    for key in ("leave_out", "domains"):
        value = made.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            made[key] = [value]
    seeds = made.get("seeds")
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= MOST_SEEDS:
            what = f"seeds is {seeds}; a number of seeds is between 1 and {MOST_SEEDS}"
            raise ConfigRefused(what, "Give how many there are, or list them", path="seeds")
        made["seeds"] = list(range(seeds))
    return made


def check_methods(grid: Grid) -> None:
    """Raises ConfigRefused unless there are methods, each under a label of its own that can name files."""
    if not grid.methods:
        raise ConfigRefused("methods is empty", "Name at least one, see `tideline methods`", path="methods")
    for i, each in enumerate(grid.methods):
        if len(each.name) > LONGEST or not each.name.isprintable() or not slug(each.name):
            what = f"methods[{i}]: the label {each.name[:LONGEST]!r} cannot name a row and a folder"
            raise ConfigRefused(what, f"Write up to {LONGEST} letters and digits", path=f"methods[{i}].label")
    slugs = [slug(each.name).lower() for each in grid.methods]
    for i, each in enumerate(grid.methods):
        if slugs.count(slugs[i]) > 1:
            what = f"methods[{i}]: there are two rows of the label {each.name}"
            raise ConfigRefused(what, "Give each a label of its own: {label: ..., method: ...}", path=f"methods[{i}]")


def check_base(base: Mapping[str, Plain]) -> None:
    """Raises ConfigRefused for a key that cannot be in every cell's experiment."""
    for key in base:
        if key not in BASE:
            todo = f"Use one of: {', '.join(BASE)}{nearest(key, BASE)}; the rest is the grid's own, or a method's"
            raise ConfigRefused(f"base.{key} cannot be set for all cells", todo, path=f"base.{key}")
    if not isinstance(base.get("config", {}), Mapping):
        todo = "Write settings that all methods have, such as base: {config: {rounds: 5}}"
        raise ConfigRefused("base.config should be a mapping of settings", todo, path="base.config")


def check_once(name: str, values: Sequence[object]) -> None:
    """Raises ConfigRefused for a list without a value, or with one twice."""
    if not values and name != "leave_out":
        raise ConfigRefused(f"{name} is empty", "List at least one", path=name)
    twice = [i for i, value in enumerate(values) if value in values[:i]]
    if twice:
        raise ConfigRefused(f"{name} has {values[twice[0]]} twice", "Name each once", path=f"{name}[{twice[0]}]")


def clients(grid: Grid, sizes: Mapping[str, int]) -> int:
    """The number of clients; default the number of source domains."""
    return len(sizes) - 1 if grid.clients is None else grid.clients


def cells(grid: Grid, sizes: Mapping[str, int], data: str) -> Iterator[Cell]:
    """Every cell, seed by seed, so that what is done first can be compared. `data`: how an experiment finds the folder."""
    n = clients(grid, sizes)
    for seed, d, domain, method in itertools.product(grid.seeds, grid.domains, grid.leave_out or tuple(sizes), grid.methods):
        place: dict[str, Plain] = {"folder": data, "leave_out": domain, "clients": n, "domains": d, "seed": seed}
        text = write_yaml(experiment_of(grid, method, {**place, "share": grid.share, "shots": grid.shots}))
        digest = hashlib.sha256(text.encode()).hexdigest()
        # The digest of its experiment, so that no result can be taken for another's.
        key = f"{slug(method.name)}-{slug(domain)[:LONGEST]}-d{d}-s{seed}-{digest[:DIGITS]}"
        yield Cell(
            label=method.name, method=method.method, leave_out=domain, domains=d, seed=seed, text=text, digest=digest, key=key
        )


def experiment_of(grid: Grid, method: GridMethod, deal: Mapping[str, Plain]) -> dict[str, Plain]:
    """A cell's experiment, as plain data. One thread, unless the base says otherwise: cells run side by side."""
    base = {"threads": 1, **{key: value for key, value in grid.base.items() if key != "config"}}
    return {
        "name": method.name,
        "method": method.method,
        **({"preset": method.preset} if method.preset else {}),
        "config": config_of(grid, method),
        "world": plain_world(grid.world),
        "deal": deal,
        "seed": deal["seed"],
        **plain(base),
    }


def config_of(grid: Grid, method: GridMethod) -> dict[str, Plain]:
    """A method's settings: its own over those of all methods."""
    return plain({**base_config(grid), **method.config})


def base_config(grid: Grid) -> Mapping[str, Plain]:
    return cast(Mapping[str, Plain], grid.base.get("config", {}))


def slug(text: str) -> str:
    """A text as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")
