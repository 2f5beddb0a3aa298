"""Which column of a table is what, the same for every kind of table."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.core.settings import nearest
from tideline.core.tables.columns import Column, composed
from tideline.learning.formats.classes import cut
from tideline.learning.formats.columns.encoding import Vocabulary
from tideline.learning.formats.holdings import Sides, split_marked
from tideline.learning.formats.kinds.shapes import expected as said
from tideline.learning.formats.surveys import Place, check_count, check_settings
from tideline.learning.formats.transforms import PLAIN, Transform, check_kind
from tideline.learning.formats.units import Units, checked_units, split_by_units

OWN = ("label", "held_out", "columns", "drop", "unit_column")
LABELS = ("y", "label")  # the names of a column of labels if the settings name none
TRAIN, HELD, VALIDATION = 0, 1, 2  # for what a row is, as the split's column says
WORDS = dict.fromkeys(("test", "held_out", "true", "yes", "1"), HELD)
WORDS |= dict.fromkeys(("train", "false", "no", "0"), TRAIN) | {"validation": VALIDATION}
SHOWN = 10  # names of columns in a refusal
VALUES = ("scale", "mean", "std")  # settings of values, which a world that declares columns leaves as they are


@dataclass(frozen=True)
class Columns:
    """The names, which may be data, of the features in order, of the labels and of the split; the features' `places` from 1.

    declared: what the world says of each feature; empty where it declares no columns. unit: the column that says whose rows are.
    """

    features: tuple[str, ...]
    label: str | None
    held_out: str | None
    places: tuple[int, ...]
    declared: tuple[Column, ...] = ()
    unit: str | None = None

    @property
    def gaps(self) -> bool:
        """Whether values may be NaN, which the run fills."""
        return any(column.fills for column in self.declared)

    @cached_property
    def vocabularies(self) -> Mapping[int, Vocabulary]:
        """Those of the declared columns by their places."""
        return {place: Vocabulary(column) for place, column in zip(self.places, self.declared, strict=False)}


@dataclass(frozen=True)
class Marks:
    """The result of the first pass over a table: of each row the code (see Classes.number), for what it is, and its name.

    units: the name of each row's unit; empty where no column says it.
    """

    codes: Sequence[int]
    held: Sequence[int]
    name: Callable[[int], str]
    units: Units = ()


def choose(names: Sequence[str], transform: Transform, declared: tuple[Column, ...] = ()) -> Columns:
    """What each column is, whatever their order: of those that a world declares, or all that have no other use.

    Raises DataRefused for ambiguous names, settings that name no column, and declared columns that are not there.
    """
    check_header(names, transform)
    for key in OWN:
        setting = getattr(transform, key) or ()
        check_named(key, (setting,) if isinstance(setting, str) else setting, names)
    label = transform.label or label_in(names, (*transform.columns, *transform.drop, *(each.name for each in declared)))
    unit = unit_in(names, transform)
    own = [name for name in (label, transform.held_out) if name is not None]
    if unit in (*own, *transform.columns):
        raise DataRefused(f"the column {unit!r} is used for two things", "Name it once in transforms.toml")
    taken = {*own, *transform.drop, *([unit] if unit is not None else [])}
    twice = [*(n for n in transform.columns if n in taken), *(n for n in own if own.count(n) > 1 or n in transform.drop)]
    if twice:
        raise DataRefused(f"the column {twice[0]!r} is used for two things", "Name it once in transforms.toml")
    features = transform.columns or tuple(name for name in names if name not in taken)
    place = {name: at for at, name in enumerate(names, 1)}
    if declared:
        features = tuple(named_by(column, features, names) for column in declared)
        places = tuple(place[name] for name in features)
        return Columns(features=features, label=label, held_out=transform.held_out, places=places, declared=declared, unit=unit)
    places = tuple(place[name] for name in features)
    return Columns(features=features, label=label, held_out=transform.held_out, places=places, unit=unit)


def unit_in(names: Sequence[str], transform: Transform) -> str | None:
    """The column that says whose rows are, which may be among those dropped. Raises DataRefused where it is not there."""
    if transform.whose is not None and transform.whose not in names:
        what = f"the unit is {transform.unit}, and there is no column {transform.whose!r} that says whose a row is"
        todo = "Name it: unit_column in transforms.toml; or leave unit out"
        raise DataRefused(what, todo, columns=shown(names))
    return transform.whose


def named_by(column: Column, features: Sequence[str], names: Sequence[str]) -> str:
    """A table's own name of a column that the world declares. Raises DataRefused where it is not there, or has another use."""
    found = next((name for name in features if composed(name) == composed(column.name)), None)
    if found is not None:
        return found
    if any(composed(name) == composed(column.name) for name in names):
        what = f"the world declares the column {column.name!r}, which has another use here"
        raise DataRefused(what, "Correct label, held_out, columns and drop in transforms.toml, or ask for another world")
    near = {"near": guess.strip(" ()")} if (guess := nearest(column.name, features)) else {}
    todo = "Add it to the table, or correct its name in the first line; `tideline data check` shows what there is"
    raise DataRefused(f"there is no column {column.name!r}, which the world declares", todo, columns=shown(names), **near)


def check_header(names: Sequence[str], transform: Transform) -> None:
    """Raises DataRefused unless each column has a name of its own."""
    if names and all(is_number(name) for name in names) and not transform.columns:
        todo = "Write the columns' names into the first line; if they are numbers, list them: columns in transforms.toml"
        raise DataRefused("the first line holds numbers", todo)
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        first, second = [i for i, name in enumerate(names, 1) if name == twice][:2]
        what = f"columns {first} and {second} have the same name"
        raise DataRefused(what, "Give each column a name of its own", column=twice[:40])
    if "" in names and "" not in transform.drop:
        todo = 'Give it one, or leave it out: drop = [""] in transforms.toml'
        raise DataRefused(f"column {list(names).index('') + 1} has no name", todo)


def check_named(key: str, listed: Sequence[str], names: Sequence[str]) -> None:
    """Raises DataRefused if a setting names a column that does not exist, or names one twice."""
    for name in listed:
        if name not in names:
            near = {"near": guess.strip(" ()")} if (guess := nearest(name, names)) else {}
            todo = "See the columns with `tideline data check`"
            raise DataRefused(f"{key} names the column {name!r}, which is not there", todo, columns=shown(names), **near)
    if len(set(listed)) < len(listed):
        raise DataRefused(f"{key} names a column twice", "Name each column once in transforms.toml")


def label_in(names: Sequence[str], otherwise: Sequence[str]) -> str | None:
    """The column of the labels if no setting names it. Raises DataRefused if there are two."""
    labels = [name for name in LABELS if name in names and name not in otherwise]
    if len(labels) > 1:
        todo = 'Say which holds the labels, such as label = "y" in transforms.toml; drop the other, or it is a feature'
        raise DataRefused("there is a column y and a column label", todo)
    return labels[0] if labels else None


def split_column(columns: Columns, names: Sequence[str]) -> str:
    """The column that says which rows are held out, or a name for a new one."""
    tried = (f"held_out{f'_{i}' * (i > 1)}" for i in itertools.count(1))
    return columns.held_out or next(name for name in tried if name not in names)


def check_table(place: Place, world: World, columns: Columns, own: tuple[str, ...] = OWN) -> None:
    """Raises DataRefused unless the table's features are what the world expects, in number and kind."""
    check_settings(place.transform, own, "a table")
    width = len(columns.features)
    if columns.declared:
        check_values_alone(place.transform)
        return
    if len(world.inputs) != 1 or world.tokens:
        todo = f"Ask for a world with inputs [{width}], or keep images as files or in .npz"
        raise DataRefused(
            f"the domain is a table of features; the world expects {said(world)}", todo, expected=list(world.inputs)
        )
    if (width,) != world.inputs:
        what = f"the table has {width} columns of features; the world expects {world.inputs[0]}"
        todo = "Say which are features with columns or drop in transforms.toml, or ask for another world"
        raise DataRefused(what, todo, expected=list(world.inputs), got=[width], columns=shown(columns.features))
    check_kind((2, width), np.dtype(np.float64), world.inputs, place.transform)


def check_values_alone(transform: Transform) -> None:
    """Raises DataRefused for settings that would change the values of declared columns, categories among them."""
    odd = next((name for name in VALUES if getattr(transform, name) != getattr(PLAIN, name)), None)
    if odd is not None:
        what = f"{odd} has no meaning for a table whose columns the world declares"
        raise DataRefused(what, "Take it out of transforms.toml; the world's normalise brings columns to one scale")


def place_labels(place: Place, columns: Columns, marks: Marks, role: Role) -> Sides:
    """Which rows of a table are for what, and their labels. Raises DataRefused for rows that cannot be used."""
    n = len(marks.codes)
    check_count(n, "row", 2 if columns.held_out is None else 1)
    sides: NDArray[np.int64] = np.asarray(marks.held, np.int64)
    units = units_of(columns, marks)
    drawn = columns.held_out is None
    rows = split_by_units(n, None, None, place.transform.test, units) if drawn else split_marked(sides == HELD)
    chosen = np.flatnonzero(sides == VALIDATION).astype(np.int64) if (sides == VALIDATION).any() else None
    if columns.label is None:
        return Sides(*rows, chosen=chosen)

    def strange(row: int) -> DataRefused:
        what = f"{marks.name(row)}, column {columns.label}: the label is none of the classes {place.classes.describe()}"
        return DataRefused(what, place.classes.todo(), row=row, column=columns.label)

    return replace(cut(marks.codes, rows, role, strange), chosen=chosen)


def units_of(columns: Columns, marks: Marks) -> Units | None:
    """The units of a table's rows; None where no column says them. Raises DataRefused for a row without one."""
    return None if columns.unit is None else checked_units(marks.units, marks.name)


def held_word(word: str, name: str, column: str | None) -> int:
    """For what a word says that a row is. Raises DataRefused for any other word."""
    held = WORDS.get(word.strip().lower())
    if held is None:
        todo = "Write test, train or validation; or true or false, 1 or 0"
        raise DataRefused(f"{name}, column {column}: the word does not say whether the row is held out", todo, cell=word[:40])
    return held


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def shown(names: Sequence[str]) -> list[str]:
    """The first columns' names, for the owner only: in a table without a line of names they are data."""
    return [name[:40] for name in names[:SHOWN]] + [f"and {len(names) - SHOWN} more"] * (len(names) > SHOWN)
