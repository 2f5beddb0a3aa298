"""What an owner gives as a site's data, and the site's rows that are made of it: checked, split, and without a target's labels.

A side (train, validation, test) is a Dataset of torch, or any object with a length that gives x or (x, y) for a number; or arrays
or tensors (x, y), or x alone; `train` may be a data folder. Of n samples x is (n, *inputs), y (n,) whole numbers, -1 for none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tideline.core.asked.private import check_unit
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused, kind_of
from tideline.core.rows import Rows, joined
from tideline.core.run import Role
from tideline.core.settings import read
from tideline.core.step import Data
from tideline.learning.formats.folder import domains_of, join, log_owners, read_folder
from tideline.learning.formats.holdings import SHARE, VALIDATION, Holdings, Sides, parted
from tideline.learning.formats.units import Units, checked_units, split_by_units
from tideline.learning.rows import scratch
from tideline.learning.sites.sides import Side, side_of

log = logging.getLogger(__name__)
NAMES = {"train": "the training dataset", "validation": "the validation dataset", "test": "the test dataset"}
DOMAIN = "dataset"
LABEL = "Let the dataset give (x, y), or make the site a target"
Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Site:
    """A site's data: to train on, to test on, and to select by.

    train        a Dataset, arrays or tensors (x, y) or x alone, or the path of a data folder
    test         the same, without folders; None: a fifth of `train` is held out
    validation   the same; None: a tenth of all rows, taken from `train`, where a run selects its best round
    role         source, target or peer; an agent's is said by `--role` instead
    labels       False: there are none, whatever the datasets give; True: there have to be some; None: as they are
    class_names  what the labels 0, 1, ... mean; None: the attribute `classes` of the training dataset, if it has one
    unit         what several rows may belong to, in a word such as patient; a folder says it itself
    units        then the unit of each row, a text or a whole number: of train, followed by those of validation and of test

    A target's training labels are not read.

    >>> import torch, tideline
    >>> site = tideline.Site(train=(torch.rand(10, 4), torch.arange(10) % 2), role="source")
    >>> site.role.value
    'source'
    """

    train: object
    test: object = None
    validation: object = None
    role: Role | str = Role.SOURCE
    labels: bool | None = None
    class_names: Sequence[str] | None = None
    unit: str = ""
    units: Sequence[object] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", Role(read(Role, self.role, "role")))
        if self.folder is not None and (self.test is not None or self.validation is not None):
            what = "train is a folder, and test or validation is given too"
            raise ConfigRefused(what, "Leave them out: a folder says which of its rows are held out", path="test")

        check_whose(self)
        if self.class_names is not None and not names_in(self.class_names):
            what = f"class_names is {kind_of(self.class_names)}, not a list of texts"
            raise ConfigRefused(what, 'Give a list of texts: ["cat", "dog"]', path="class_names")

    @property
    def folder(self) -> Path | None:
        """The data folder; None where the data are datasets or arrays."""
        return Path(self.train).expanduser() if isinstance(self.train, (str, Path)) else None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the classes, as far as the site says them."""
        return names_in(getattr(self.train, "classes", None) if self.class_names is None else self.class_names)


def names_in(given: object) -> tuple[str, ...]:
    """A list of texts; nothing for all else."""
    listed = tuple(given) if isinstance(given, (list, tuple)) else ()
    return listed if all(isinstance(each, str) for each in listed) else ()


def check_whose(site: Site) -> None:
    """Raises ConfigRefused where a site says that rows belong to units, and not to which; or to which, and not to what."""
    if site.unit:
        check_unit(site.unit, "unit")
    if bool(site.unit) != (site.units is not None):
        what = f"unit is {site.unit!r}, and units is not given" if site.unit else "units is given, and unit does not say what of"
        raise ConfigRefused(what, 'Give both: unit="patient", units=[...], one for each row; or none', path="units")
    if site.unit and site.folder is not None:
        raise ConfigRefused("train is a folder, and unit is given too", "Say it in transforms.toml", path="unit")


def holdings_of(site: Site, world: World, role: Role, held: int = scratch.HELD) -> Holdings:
    """Everything that a site holds for this world, each row read once and checked. Raises DataRefused, with the row.

    held: bytes of a target's training rows that are held in memory; more lie in a scratch file.
    """
    try:
        if site.folder is not None:
            return read_folder(site.folder, world, role, held)
        check_names(site, world)
        return Reading(site, world, role).holdings(held)
    except DataRefused as error:
        log_owners(error)
        raise


def check_names(site: Site, world: World) -> None:
    """Raises DataRefused where site and world name the classes, and not alike: a label would mean two things."""
    if not (site.names and world.class_names) or site.names == world.class_names:
        return
    pairs = zip(site.names, world.class_names, strict=False)
    odd = next((f"class {i} is {a!r} at the site and {b!r} in the run" for i, (a, b) in enumerate(pairs) if a != b), None)
    what = odd or f"the site has {len(site.names)} classes and the run {len(world.class_names)}"
    todo = "Number the labels as world.class_names does, and say so: Site(class_names=[...])"
    raise DataRefused(f"The classes differ: {what}", todo)


class Reading:
    """The rows of a site's sides, numbered through: train, validation, test."""

    def __init__(self, site: Site, world: World, role: Role) -> None:
        self.site, self.world, self.role = site, world, role
        given = {"train": site.train, "validation": site.validation, "test": site.test}
        self.sides: dict[str, Side] = {
            name: side_of(each, world, NAMES[name]) for name, each in given.items() if name == "train" or each is not None
        }

    def holdings(self, held: int) -> Holdings:
        rows, sides = self.rows(), self.split()
        train, tested = rows.at(tensor_of(sides.train)), rows.at(tensor_of(sides.held))
        if self.role is Role.TARGET and not rows.plain:
            # Nothing that could lead to a training label is behind what a step sees, of the held-out rows neither.
            train, tested = scratch.poured(train, held), scratch.poured(tested, held)
        learnt = self.whose(Data(train, join([sides.y_train]), domains_of([sides.train]), (DOMAIN,)), sides.train)
        scored = self.whose(Data(tested, join([sides.y_held]), domains_of([sides.held]), (DOMAIN,)), sides.held)
        bare = rows.at(tensor_of(sides.bare)) if len(sides.bare) else None
        return Holdings(replace(learnt, bare=bare), scored, tensor_of(sides.validation(VALIDATION)))

    def whose(self, data: Data, rows: Numbers) -> Data:
        """The same with the units of its rows, where the site says them."""
        if self.units is None:
            return data
        _, numbers = np.unique(self.units, return_inverse=True)
        return replace(data, unit=self.site.unit, units=torch.from_numpy(numbers.reshape(-1)[rows].astype(np.int64)))

    @cached_property
    def units(self) -> Units | None:
        """The unit of each row of all sides; None where the site says none. Raises DataRefused for too few, or too many."""
        given, n = self.site.units, sum(map(len, self.sides.values()))
        if given is None:
            return None
        if len(given) != n:
            raise DataRefused(f"units names {len(given)} units, and there are {n} rows", "Give one for each row of all datasets")
        return checked_units(list(map(str, np.asarray(given).tolist())), lambda row: f"row {row}")

    def rows(self) -> Rows:
        return joined([side.rows for side in self.sides.values()])

    def split(self) -> Sides:
        """Which rows are for what, with the labels that this role may see. Raises DataRefused."""
        n, validating = len(self.sides["train"]), len(self.sides.get("validation", ()))
        if "test" in self.sides:
            train, held = np.arange(n), np.arange(len(self.sides["test"])) + n + validating
        else:
            train, held = self.cut(n)
        chosen = np.arange(n, n + validating) if validating else None
        train = np.concatenate([train, np.arange(n, n + validating)]).astype(np.int64)
        sides = self.labelled(train, held.astype(np.int64))
        return replace(sides, chosen=chosen)

    def cut(self, n: int) -> tuple[Numbers, Numbers]:
        """The usual split of the training dataset. Raises DataRefused for a single row."""
        try:
            return split_by_units(n, None, None, SHARE, None if self.units is None else self.units[:n])
        except DataRefused:
            what = f"{NAMES['train']} has 1 row{' or unit' if self.units else ''}, and no test dataset is given"
            raise DataRefused(what, "Give 2 rows or more, or Site(test=...)") from None

    def labelled(self, train: Numbers, held: Numbers) -> Sides:
        """Both sides with their labels. Raises DataRefused where the role cannot do with them."""
        target = self.role is Role.TARGET
        y = self.labels(held if target else np.concatenate([train, held]))
        known = y >= 0
        if self.role is Role.SOURCE and not known[train].any():
            raise self.refused(int(train[0]), "there is no label", LABEL)
        if not known.any():
            if self.site.labels:
                raise DataRefused("labels=True, and no row that is looked at has a label", "Let the datasets give (x, y)")
            return Sides(train, held)
        if not known[held].any():
            raise self.refused(int(held[0]), "no held-out row has a label to score by", "Label some, or say labels=False")
        if not target:
            return self.checked(parted((train, held), y[train], y[held]))
        if not known[held].all():
            row = int(held[~known[held]][0])
            raise self.refused(row, "there is no label, while other held-out rows have one", "Label all of them, or none")
        return Sides(train, held, None, y[held])

    def checked(self, sides: Sides) -> Sides:
        """The same. Raises DataRefused unless the labelled training rows are of two classes at least."""
        classes = np.unique(cast("Numbers", sides.y_train))
        if len(classes) < 2:
            what = (
                f"all training rows that have a label are of class {classes[0]}"
                if len(classes)
                else "no training row has a label"
            )
            raise DataRefused(what, "Add rows of another class; a single class cannot be learnt")
        if len(sides.bare) or len(sides.unscored):
            text = "%d training rows have no label, for methods that can use them; %d held-out rows have none and are left out"
            log.warning(text, len(sides.bare), len(sides.unscored))
        return sides

    def labels(self, wanted: Numbers) -> Numbers:
        """(n,) of all sides; -1 where there is none, and for rows that are not wanted."""
        y = np.full(sum(map(len, self.sides.values())), -1, np.int64)
        if self.site.labels is False:
            return y
        start = 0
        for side in self.sides.values():
            here = np.sort(wanted[(wanted >= start) & (wanted < start + len(side))])
            y[here] = side.labels(here - start)
            start += len(side)
        return y

    def refused(self, row: int, what: str, todo: str) -> DataRefused:
        """The refusal of a row, by its number in its own dataset."""
        for side in self.sides.values():
            if row < len(side):
                return side.refused(row, what, todo)
            row -= len(side)
        raise IndexError(row)


def tensor_of(rows: Numbers) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows, np.int64))
