"""A grid: methods x left-out domains x d x seeds, read from a file and laid out as cells, each an experiment of its own.

A left-out domain has no rows for training (generalise), or all of its rows without their labels (adapt).

It loads no torch; tideline.bench.checks checks a grid against its methods and data.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from tideline.core.asked.scoring import Prior
from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused
from tideline.core.settings import EMPTY, Plain, nearest, parse, plain, setting
from tideline.engine.model.experiment import Rehearse
from tideline.written.files import ExperimentText
from tideline.written.yaml_lines import write_yaml

# What `base` may say of every cell's experiment; the rest of an experiment is the grid's own.
BASE = ("config", "waiting", "sample", "reference", "checkpoint_every", "threads", "augment", "wire")
OF_WORLD = ("normalise",)  # what a method may say of the world for itself
GENERALISE, ADAPT = PROTOCOLS = ("generalise", "adapt")
TARGET_SHARE = 0.2
MOST_SEEDS, MOST_SWEPT = 1000, 1000
LONGEST = 60  # characters of a label
DIGITS = 12  # of a digest in a name


@dataclass(frozen=True)
class GridMethod:
    """One method of a grid, in one setting."""

    method: str = setting(doc="the method's name, see `tideline methods`")
    label: str = setting("", doc="its name in tables and files; default the method's name")
    preset: str | None = setting(None, doc="one of the method's presets; `config` overrides it")
    config: Mapping[str, Plain] = setting(EMPTY, doc="the method's settings, over those of base")
    sweep: Mapping[str, tuple[Plain, ...]] = setting(EMPTY, doc="settings with the values to try, a row for each combination")
    world: Mapping[str, Plain] = setting(EMPTY, doc=f"over the grid's world: {', '.join(OF_WORLD)}")
    prior: Prior = setting(Prior.SOURCE, doc="at which shares of the classes targets predict: source or em")
    rehearse: Rehearse | None = setting(None, doc="adapt: choose by rehearsal, as in an experiment; the method adapts nothing")

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.label or self.method


@dataclass(frozen=True)
class Grid:
    """What to compare, and on which data."""

    folder: str = setting(doc="a data folder with all domains, each labelled; seen from the grid's file")
    methods: tuple[GridMethod, ...] = setting(doc="names, or {label, method, preset, config, sweep, world, prior, rehearse}")
    protocol: str = setting(GENERALISE, choices=PROTOCOLS, doc="whether the left-out domain has rows to adapt with")
    baselines: tuple[str, ...] = setting((), doc="adapt: labels of the rows that gains are measured from; default the first")
    target_share: float | None = setting(
        None, low=0.001, high=0.999, doc=f"adapt: share of the left-out domain's rows that score; default {TARGET_SHARE}"
    )
    world: World = field(default_factory=World, metadata={"doc": "what all members agree on"})
    leave_out: tuple[str, ...] = setting((), doc="the domains to leave out, one after the other; default all")
    domains: tuple[int, ...] = setting((1,), low=1, doc="source domains of each client, d")
    clients: int | None = setting(None, low=2, doc="number of clients, N; default the number of source domains")
    seeds: tuple[int, ...] = setting((0, 1, 2), low=0, high=2**62, doc="seeds of deal and run; or how many, counted from 0")
    share: float = setting(0.1, low=0.001, high=0.999, doc="of each client's rows that are held out")
    shots: int = setting(0, low=0, doc="rows of the left-out domain that join each client's training rows")
    base: Mapping[str, Plain] = setting(EMPTY, doc=f"of every experiment: {', '.join(BASE)}")


@dataclass(frozen=True)
class Variant:
    """A row of the tables: a method in one setting. `place`: the method's in the grid; `swept`: its values of the sweep."""

    place: int
    method: GridMethod
    swept: Mapping[str, Plain] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The method's name, and what is swept: `fedprox mu=0.1`."""
        return " ".join([self.method.name, *(f"{key}={as_word(value)}" for key, value in self.swept.items())])


@dataclass(frozen=True)
class Cell:
    """One run of a grid. `text`: its experiment file; `digest`: SHA-256 of that; `key`: the name of its folder.

    sweep: the name of the sweep that its row is of, or nothing. baseline: whether its row is one that gains are measured from.
    """

    label: str
    method: str
    leave_out: str
    domains: int
    seed: int
    text: str
    digest: str
    key: str
    sweep: str = ""
    baseline: bool = False
    adapts: bool = False

    def words(self) -> str:
        place = f"target {self.leave_out}" if self.adapts else f"{self.leave_out} left out"
        return f"{self.label}, {place}, d = {self.domains}, seed {self.seed}"


def read_grid(text: ExperimentText) -> Grid:
    """A grid from a file. Raises ConfigRefused with the line of what is wrong."""
    with text.located():
        grid = parse(Grid, unfolded(text.value))
        check_methods(grid)
        check_protocol(grid)
        for name in ("leave_out", "domains", "seeds", "baselines"):
            check_once(name, getattr(grid, name))
        check_base(grid.base)
    return grid


def unfolded(given: Mapping[str, Plain]) -> dict[str, Plain]:
    """With the short forms written out: methods by name alone, one value for a list of one, a number of seeds."""
    made = dict(given)
    methods = made.get("methods")
    if isinstance(methods, list):
        made["methods"] = [{"method": each} if isinstance(each, str) else each for each in methods]
    for key in ("leave_out", "domains", "baselines"):
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
    """Raises ConfigRefused unless there are methods, each row of them under a label of its own that can name files."""
    if not grid.methods:
        raise ConfigRefused("methods is empty", "Name at least one, see `tideline methods`", path="methods")
    for i, each in enumerate(grid.methods):
        check_sweep(each, f"methods[{i}]")
        check_world(grid, each, f"methods[{i}].world")
    rows = variants(grid)
    for row in rows:
        if len(row.label) > LONGEST or not row.label.isprintable() or not slug(row.label):
            what = f"methods[{row.place}]: the label {row.label[:LONGEST]!r} cannot name a row and a folder"
            raise ConfigRefused(what, f"Write up to {LONGEST} letters and digits", path=f"methods[{row.place}].label")
    slugs = [slug(row.label).lower() for row in rows]
    for row, name in zip(rows, slugs, strict=True):
        if slugs.count(name) > 1:
            what = f"methods[{row.place}]: there are two rows of the label {row.label}"
            raise ConfigRefused(what, "Give each a label of its own: {label: ..., method: ...}", path=f"methods[{row.place}]")


def check_sweep(method: GridMethod, path: str) -> None:
    """Raises ConfigRefused for a setting that has no values, one twice, one that no label can say, or a value in config too."""
    for key, values in method.sweep.items():
        place = f"{path}.sweep.{key}"
        if not values:
            raise ConfigRefused(f"{place} is empty", "List the values to try, or leave the setting out", path=place)
        for i, value in enumerate(values):
            if value is None or not isinstance(value, str | int | float):
                todo = "Sweep over numbers, texts, true and false; give each other value a method of its own"
                raise ConfigRefused(f"{place}[{i}] is a value that no label can say", todo, path=f"{place}[{i}]")
        check_once(place, [as_word(value) for value in values])
        if key in method.config:
            raise ConfigRefused(f"{path} has {key} in config and in sweep", "Leave one of the two out", path=place)
    n = math.prod(len(values) for values in method.sweep.values())
    if n > MOST_SWEPT:
        what = f"{path}.sweep has {n} combinations; {MOST_SWEPT} is the most"
        raise ConfigRefused(what, "Sweep over fewer values", path=f"{path}.sweep")


def check_world(grid: Grid, method: GridMethod, path: str) -> None:
    """Raises ConfigRefused for what a method cannot say of the world for itself."""
    for key in method.world:
        if key not in OF_WORLD:
            todo = f"Use {', '.join(OF_WORLD)}{nearest(key, OF_WORLD)}; what else differs needs a grid of its own"
            raise ConfigRefused(f"{path}.{key} cannot be set for one method", todo, path=f"{path}.{key}")
    try:
        world_of(grid, method)
    except ConfigRefused as error:
        own = str(error.context.get("path", "")).removeprefix("world.")
        known = own.split(".")[0] in method.world
        raise ConfigRefused(error.what, error.todo, path=f"{path}.{own}" if known else path) from None


def check_protocol(grid: Grid) -> None:
    """Raises ConfigRefused for keys of the other protocol, and for a baseline that is no row."""
    for key in () if grid.protocol == ADAPT else ("target_share", "baselines"):
        if getattr(grid, key) not in (None, ()):
            what = f"{key} has no meaning where the left-out domain has no rows to adapt with"
            raise ConfigRefused(what, f"Leave it out, or write protocol: {ADAPT}", path=key)
    for i, method in enumerate(grid.methods):
        if method.rehearse is not None and grid.protocol != ADAPT:
            what = f"methods[{i}].rehearse chooses for a target with rows to adapt with, and here the left-out domain has none"
            raise ConfigRefused(what, f"Leave it out, or write protocol: {ADAPT}", path=f"methods[{i}].rehearse")
    labels = [row.label for row in variants(grid)]
    for i, name in enumerate(grid.baselines):
        if name not in labels:
            todo = f"Use labels of rows: {', '.join(labels[:10])}{nearest(name, labels)}"
            raise ConfigRefused(f"baselines: there is no row {name}", todo, path=f"baselines[{i}]")


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
    if not values and name not in ("leave_out", "baselines"):
        raise ConfigRefused(f"{name} is empty", "List at least one", path=name)
    twice = [i for i, value in enumerate(values) if value in values[:i]]
    if twice:
        raise ConfigRefused(f"{name} has {values[twice[0]]} twice", "Name each once", path=f"{name}[{twice[0]}]")


def clients(grid: Grid, sizes: Mapping[str, int]) -> int:
    """The number of clients; default the number of source domains."""
    return len(sizes) - 1 if grid.clients is None else grid.clients


def cells(grid: Grid, sizes: Mapping[str, int], data: str) -> Iterator[Cell]:
    """Every cell, seed by seed, so that what is done first can be compared. `data`: how an experiment finds the folder."""
    n, rows = clients(grid, sizes), variants(grid)
    baselines = grid.baselines or (rows[0].label,)
    for seed, d, domain, row in itertools.product(grid.seeds, grid.domains, grid.leave_out or tuple(sizes), rows):
        text = write_yaml(experiment_of(grid, row, {"folder": data, **deal_of(grid, domain, n, d, seed)}))
        digest = hashlib.sha256(text.encode()).hexdigest()
        # The digest of its experiment, so that no result can be taken for another's.
        key = f"{slug(row.label)}-{slug(domain)[:LONGEST]}-d{d}-s{seed}-{digest[:DIGITS]}"
        yield Cell(
            label=row.label,
            method=row.method.method,
            leave_out=domain,
            domains=d,
            seed=seed,
            text=text,
            digest=digest,
            key=key,
            sweep=row.method.name if row.swept else "",
            baseline=row.label in baselines,
            adapts=grid.protocol == ADAPT,
        )


def variants(grid: Grid) -> list[Variant]:
    """The rows of a grid's tables: each method, or each combination of the values that it sweeps."""
    return [
        Variant(i, each, dict(zip(each.sweep, values, strict=True)))
        for i, each in enumerate(grid.methods)
        for values in itertools.product(*each.sweep.values())
    ]


def deal_of(grid: Grid, domain: str, n: int, d: int, seed: int) -> dict[str, Plain]:
    """The deal of a cell, without its folder."""
    made: dict[str, Plain] = {"leave_out": domain, "clients": n, "domains": d, "seed": seed, "share": grid.share}
    share = {"target_share": grid.target_share or TARGET_SHARE} if grid.protocol == ADAPT else {}
    return {**made, "shots": grid.shots, **share}


def experiment_of(grid: Grid, row: Variant, deal: Mapping[str, Plain]) -> dict[str, Plain]:
    """A cell's experiment, as plain data. One thread, unless the base says otherwise: cells run side by side."""
    base = {"threads": 1, **{key: value for key, value in grid.base.items() if key != "config"}}
    rehearse = row.method.rehearse
    return {
        "name": row.label,
        "method": row.method.method,
        **({"preset": row.method.preset} if row.method.preset else {}),
        "config": config_of(grid, row.method, row.swept),
        "world": plain_world(world_of(grid, row.method)),
        **({"prior": row.method.prior.value} if row.method.prior is not Prior.SOURCE else {}),
        "deal": deal,
        "seed": deal["seed"],
        **({} if rehearse is None else {"rehearse": plain(rehearse), "then": "run"}),
        **plain(base),
    }


def config_of(grid: Grid, method: GridMethod, swept: Mapping[str, Plain] = EMPTY) -> dict[str, Plain]:
    """A method's settings: its own, and those of a sweep, over those of all methods."""
    return plain({**base_config(grid), **method.config, **swept})


def world_of(grid: Grid, method: GridMethod) -> World:
    """The world of a method's cells. Raises ConfigRefused."""
    return world_in({**plain_world(grid.world), **method.world}) if method.world else grid.world


def base_config(grid: Grid) -> Mapping[str, Plain]:
    return cast(Mapping[str, Plain], grid.base.get("config", {}))


def as_word(value: Plain) -> str:
    """A value of a sweep in a label, as YAML has it."""
    return value if isinstance(value, str) else json.dumps(value)


def slug(text: str) -> str:
    """A text as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")
