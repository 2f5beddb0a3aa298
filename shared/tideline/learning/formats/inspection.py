"""What an agent would see of a data folder, reported to its owner, and which world the folder could be part of.

One piece of samples is in memory at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from tideline import nets
from tideline.core.asked.world import Kind, World, check_names, plain_world
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role
from tideline.core.settings import Plain, plain
from tideline.core.tables.columns import width_of
from tideline.learning.formats import arrays, folder, images
from tideline.learning.formats.classes import (
    CLASSES,
    NUMBER,
    ONE_CLASS,
    WHOLE,
    AnyClasses,
    Classes,
    read_classes,
    read_lines,
)
from tideline.learning.formats.columns.proposing import ColumnReport, are_plain, proposed
from tideline.learning.formats.kinds import npy
from tideline.learning.formats.kinds.folders import KINDS_OF_FILES
from tideline.learning.formats.kinds.hints import HINTS, MOST, Hint
from tideline.learning.formats.kinds.listing import ignored as ignored_files
from tideline.learning.formats.kinds.shapes import check_values
from tideline.learning.formats.surveys import Piece, Place, Survey, at
from tideline.learning.formats.transforms import times

BEYOND = 1 << 62  # classes of an unknown world
OTHER = "other"  # the second class of a world if the folder names one only
UNEVEN = 1000.0
UNGUESSED = f"the labels have more than {MOST} different values, numbers beyond {MOST - 1}, or words that can name no class"
Refusal = Mapping[str, Plain]
P = ParamSpec("P")
Found = TypeVar("Found")
TYPES = {"u1": "8-bit", "u2": "16-bit", "i4": "32-bit", "f4": "float"}


@dataclass(frozen=True)
class ClassCount:
    """How many rows a class has; `train` is None where training labels are not loaded."""

    name: str
    train: int | None
    held_out: int


@dataclass(frozen=True)
class Samples:
    """What the samples are: shapes and types with their counts, the range of the values, and the files that cannot be read.

    scales: the least and the largest range of a feature that is not constant; None where samples are no features.
    """

    shapes: Mapping[str, int]
    types: Mapping[str, int]
    low: float | None
    high: float | None
    unreadable: tuple[str, ...]
    scales: tuple[float, float] | None = None

    @property
    def uneven(self) -> bool:
        """Whether a feature is so much larger than another that it alone decides where both are taken as they are."""
        return self.scales is not None and self.scales[1] > UNEVEN * self.scales[0]


@dataclass(frozen=True)
class DomainReport:
    """One domain. `refused`: why an agent cannot use it, as DataRefused says it; None if it can.

    Of the samples, `validation` are those to train on that a run may select by instead; `bare` training rows have no label beside
    labelled ones; `unscored` held-out rows have none and are left out. They belong to so many `units`, in a word
    `unit`, where the domain says so.
    """

    name: str
    kind: str
    samples: int | None = None
    validation: int | None = None
    held_out: int | None = None
    bare: int | None = None
    unscored: int | None = None
    labelled: bool | None = None
    classes: tuple[ClassCount, ...] = ()
    content: Samples | None = None
    ignored: tuple[str, ...] = ()
    refused: Refusal | None = None
    columns: tuple[ColumnReport, ...] = ()
    unit: str = ""
    units: int | None = None

    @property
    def train(self) -> int | None:
        """Rows to train on in a run that selects, those without labels among them."""
        if self.samples is None or self.validation is None or self.held_out is None:
            return None
        return self.samples - self.validation - self.held_out - (self.unscored or 0)

    @property
    def balance(self) -> float | None:
        """The size of the smallest class that has rows, as a share of the largest."""
        counts = [c.held_out if c.train is None else c.train for c in self.classes]
        return min(filter(None, counts)) / max(counts) if any(counts) else None


@dataclass(frozen=True)
class FolderReport:
    """A whole folder, and the world given or guessed; None, and why in `unguessed`, if labels are checked against no classes."""

    folder: str
    role: str
    world: Mapping[str, Plain] | None
    given: bool
    domains: tuple[DomainReport, ...]
    ignored: tuple[str, ...]
    refused: tuple[Refusal, ...]
    unguessed: str = ""

    @property
    def usable(self) -> bool:
        return not self.refused


@dataclass
class Tally:
    """Counts over the pieces of a domain."""

    shapes: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    low: float = np.inf
    high: float = -np.inf
    lost: list[tuple[int, str]] = field(default_factory=list)
    columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None  # the least and the largest of each feature

    def add(self, x: NDArray[np.generic]) -> None:
        """Count one piece (k, ...)."""
        self.shapes[times(x.shape[1:])] += len(x)
        self.types[TYPES.get(x.dtype.str[1:], str(x.dtype))] += len(x)
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        if x.ndim == 2 and len(x):
            low, high = (each.astype(np.float64) for each in (x.min(0), x.max(0)))
            known = self.columns if self.columns is not None and len(self.columns[0]) == len(low) else (low, high)
            self.columns = np.minimum(known[0], low), np.maximum(known[1], high)

    @property
    def scales(self) -> tuple[float, float] | None:
        reach = np.zeros(0) if self.columns is None else self.columns[1] - self.columns[0]
        there = reach[np.isfinite(reach) & (reach > 0)]
        return (float(there.min()), float(there.max())) if len(there) else None

    def samples(self, survey: Survey) -> Samples:
        names = tuple(f"{survey.name(row)} ({why})" for row, why in self.lost)
        low, high = (self.low, self.high) if self.shapes else (None, None)
        return Samples(
            shapes=dict(self.shapes.most_common()),
            types=dict(self.types),
            low=low,
            high=high,
            unreadable=names,
            scales=self.scales,
        )


def inspect(path: Path, world: World | None, role: Role | None) -> FolderReport:
    """Go through a folder as an agent would, and report what it would refuse instead of stopping there.

    Without a world one that fits is guessed; without a role the site is a source if it has labels, or else a target.
    Raises DataRefused if there is no folder or no domain, or a settings file cannot be read.
    """
    domains = folder.places(path, Classes(2))
    guesses = {name: or_refused(hint_of, place) for name, place in domains.items()}
    hints = {name: hint for name, hint in guesses.items() if isinstance(hint, Hint)}
    acts = role or (Role.SOURCE if any(hint.words != frozenset() for hint in hints.values()) else Role.TARGET)
    chosen, why = world, ""
    if world is None and hints:
        chosen = guess(path, hints, acts)
        why = "" if chosen else UNGUESSED
    if chosen or hints:
        judged = chosen or replace(shaped(hints.values()), classes=BEYOND)
        reports, refused = inspect_as(path, judged, acts, read_classes(path, judged) if chosen else AnyClasses(BEYOND))
    else:
        kinds = ((name, folder.kind_of(place.path), guesses[name]) for name, place in domains.items())
        reports = [
            DomainReport(name, kind, refused=as_data(error)) for name, kind, error in kinds if isinstance(error, DataRefused)
        ]
        refused = [report.refused for report in reports if report.refused]
    ours = {place.path.name for place in domains.values()} | {folder.TRANSFORMS, CLASSES}
    ours |= {each.name for place in domains.values() if npy.is_domain(place.path) for each in npy.beside(place.path)}
    return FolderReport(
        folder=str(path),
        role=acts.value,
        world=plain_world(chosen) if chosen else None,
        given=world is not None,
        domains=tuple(replace(each, columns=hints[each.name].columns if each.name in hints else ()) for each in reports),
        ignored=tuple(sorted(f.name + "/" * f.is_dir() for f in path.iterdir() if f.name not in ours and f.name[0] != ".")),
        refused=tuple(refused),
        unguessed=why,
    )


def inspect_as(path: Path, world: World, role: Role, classes: Classes) -> tuple[list[DomainReport], list[Refusal]]:
    """The report on each domain as part of a world, and the reasons to refuse the folder."""
    places = folder.places(path, classes)
    outcomes = {name: or_refused(folder.KINDS[folder.kind_of(p.path)], p, world, role) for name, p in places.items()}
    readable = {name: each for name, each in outcomes.items() if isinstance(each, Survey)}
    surveys = outcomes | dict(zip(readable, folder.together(list(readable.values())), strict=True))
    inspected = [inspect_domain(name, place, surveys[name], world) for name, place in places.items()]
    refused = [report.refused for report, _ in inspected if report.refused]
    if not refused:
        try:
            known = [survey for _, survey in inspected if survey]
            folder.check_site(path, known, role)
            folder.check_room(path, folder.scratch_rows(known, world, role), world)
        except DataRefused as error:
            refused = [as_data(error)]
    return [report for report, _ in inspected], refused


def guess(path: Path, hints: Mapping[str, Hint], role: Role) -> World | None:
    """A world that fits. A target's training labels may be anything, so words that can name no class are no error there."""
    try:
        return fitting(path, hints)
    except DataRefused:
        if role is not Role.TARGET or (path / CLASSES).exists():
            raise
        return None


def or_refused(read: Callable[P, Found], *args: P.args, **kwargs: P.kwargs) -> Found | DataRefused:
    """What is read, or why it is refused."""
    try:
        return read(*args, **kwargs)
    except DataRefused as error:
        return error


def hint_of(place: Place) -> Hint:
    with at(place.path):
        return HINTS[folder.kind_of(place.path)](place)


def inspect_domain(name: str, place: Place, survey: Survey | DataRefused, world: World) -> tuple[DomainReport, Survey | None]:
    """Go through one domain's samples: its report, and its survey without the rows that cannot be read."""
    kind = folder.kind_of(place.path)
    ignored = not_read(place.path, kind)
    if isinstance(survey, DataRefused):
        return DomainReport(name, kind, ignored=ignored, refused=as_data(survey)), None
    tally, left, refused = Tally(), survey, None
    try:
        with at(place.path):
            count_pieces(survey, kind, world, tally)
            left = folder.without(survey, folder.left_out(survey, tally.lost))
    except DataRefused as error:
        refused = as_data(error)
    sides = left.sides
    report = DomainReport(
        name=name,
        kind=kind,
        samples=len(left),
        validation=len(sides.validation(place.transform.validation)),
        held_out=len(sides.held),
        bare=len(sides.bare),
        unit=place.transform.unit,
        units=None if survey.units is None else len(set(survey.units)),
        unscored=len(sides.unscored),
        labelled=sides.y_held is not None,
        classes=tuple(counted(left, place.classes)),
        content=tally.samples(survey),
        ignored=ignored,
        refused=refused,
    )
    return report, left


def not_read(domain: Path, kind: str) -> tuple[str, ...]:
    """The files of a folder that are no samples."""
    if kind in KINDS_OF_FILES:
        return tuple(ignored_files(domain, KINDS_OF_FILES[kind]))
    return tuple(images.ignored(domain)) if kind == "images" else ()


def count_pieces(survey: Survey, kind: str, world: World, tally: Tally) -> None:
    """Count every piece of a domain. At the end, raises DataRefused for the first values that do not fit."""
    wrong: DataRefused | None = None
    streamed = (Piece(start, x, survey.place.transform) for start, x in arrays.streamed(survey.place.path))
    for piece in streamed if kind == ".npz" else survey.pieces():
        if piece.x is None:
            tally.lost.append((piece.start, piece.why))
            continue
        tally.add(piece.x)
        try:
            check_values(piece.known, world, piece.transform, piece.start)
        except DataRefused as error:
            wrong = wrong or error
    if wrong:
        raise wrong


def counted(survey: Survey, classes: Classes) -> Iterator[ClassCount]:
    """The rows of each class of the world."""
    y_train, y_held = survey.sides.y_train, survey.sides.y_held
    if y_held is None or classes.count == BEYOND:
        return
    held = np.bincount(y_held, minlength=classes.count)
    train = None if y_train is None else np.bincount(y_train, minlength=classes.count)
    for i in range(classes.count):
        name = classes.names[i] if classes.names else str(i)
        yield ClassCount(name, None if train is None else int(train[i]), int(held[i]))


def as_data(error: DataRefused) -> Refusal:
    """A refusal as plain data with all of its context, which only the owner sees."""
    return plain({"what": error.what, "todo": error.todo, **error.context})


def with_names(folder: Path, world: World, names: tuple[str, ...]) -> World:
    """The world with these classes, and with a second one if there is one only. Raises DataRefused for an impossible name."""
    try:
        check_names(names, len(names))
    except ConfigRefused as error:
        raise DataRefused(f"{folder}: {error.what}", error.todo, path=str(folder)) from None
    return replace(world, classes=max(len(names), 2), class_names=names if len(names) > 1 else (*names, OTHER))


def rows_of(hints: Iterable[Hint]) -> World:
    """A world with the inputs of most of a folder's domains, in colour if one of them is, and as many token ids as any uses."""
    found = list(hints)
    [(most, _)] = Counter(hint.inputs for hint in found).most_common(1)
    same = [hint for hint in found if hint.inputs == most]
    ids = max(hint.vocabulary for hint in same)
    if ids and all(hint.vocabulary for hint in same):
        return World(inputs=most, dtype=Kind.INT64, vocabulary=ids)
    colour = len(most) == 3 and most[0] == 1 and any(each.inputs == (3, *most[1:]) for each in found)
    return World(inputs=(3, *most[1:]) if colour else most)


MODELS = ("lenet", "conv1d", "conv3d", "tokens", "mlp")  # what is suggested: the first that fits


def modelled(world: World) -> World:
    """The world with a network that takes its rows: of columns with categories, the one that is made for them."""
    names = ("tabular", *MODELS) if any(not column.number for column in world.columns) else MODELS
    return next(each for name in names if checks(each := replace(world, model=name)))


def checks(world: World) -> bool:
    try:
        nets.check(world)
    except ConfigRefused:
        return False
    return True


def shaped(hints: Collection[Hint]) -> World:
    """A world of the inputs of most domains, or of the columns that all tables have, where these are more than plain numbers."""
    tables = [hint.columns for hint in hints]
    if not all(tables) or all(map(are_plain, tables)):
        return rows_of(hints)
    columns = proposed(tables)
    return World(inputs=(width_of(columns),), columns=columns) if columns else rows_of(hints)


def measured(words: Collection[str]) -> bool:
    """Whether labels look like measurements: numbers all, and not all of them whole."""
    return all(NUMBER.fullmatch(word) for word in words) and not all(WHOLE.fullmatch(word) for word in words)


def fitting(folder: Path, hints: Mapping[str, Hint]) -> World | None:
    """A world that fits most domains; None if labels do not show its classes. Raises DataRefused for impossible class names."""
    world, path = modelled(replace(shaped(hints.values()), classes=2)), folder / CLASSES
    if path.exists():
        return with_names(folder, world, tuple(read_lines(path)))
    of_domains = [hint.words for hint in hints.values()]
    words = sorted(frozenset().union(*(each or () for each in of_domains)))
    if None in of_domains or len(words) > MOST:
        return None
    if measured(words):
        what = f"{folder}: the labels are numbers that are not whole, such as {next(w for w in words if not WHOLE.fullmatch(w))}"
        raise DataRefused(what, f"Give each row a class; if these are names of classes, list them in {CLASSES}. {ONE_CLASS}")
    if not all(WHOLE.fullmatch(word) for word in words):
        return with_names(folder, world, tuple(words))
    classes = max((int(float(word)) + 1 for word in words), default=2)
    return replace(world, classes=max(classes, 2)) if classes <= MOST else None
