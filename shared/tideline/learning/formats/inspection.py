"""What an agent would see of a data folder, told to its owner. Nothing is kept: one piece of samples is in memory at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import DataRefused
from tideline.core.run import Role, World, plain_world
from tideline.learning.formats import arrays, folder, images
from tideline.learning.formats.classes import CLASSES, AnyClasses, Classes, read_classes
from tideline.learning.formats.hints import HINTS, UNGUESSED, Hint, fitting, inputs_of
from tideline.learning.formats.surveys import Piece, Place, Survey, at
from tideline.learning.formats.transforms import check_values, times

BEYOND = 1 << 62  # classes of a world of which nothing is known
TYPES = {"u1": "8-bit", "u2": "16-bit", "i4": "32-bit", "f4": "float"}


@dataclass(frozen=True)
class ClassCount:
    """How many rows a class has; `train` is None where training labels are not loaded."""

    name: str
    train: int | None
    held_out: int


@dataclass(frozen=True)
class Samples:
    """What the samples are: shapes and types with their counts, the range of the values, and the files that cannot be read."""

    shapes: Mapping[str, int]
    types: Mapping[str, int]
    low: float | None
    high: float | None
    unreadable: tuple[str, ...]


@dataclass(frozen=True)
class DomainReport:
    """One domain. `refused`: why an agent could not use it, as DataRefused says it; None if it could.

    Of the samples `bare` training rows have no label beside labelled ones; `unscored` held-out rows have none and are left out.
    """

    name: str
    kind: str
    samples: int | None = None
    held_out: int | None = None
    bare: int | None = None
    unscored: int | None = None
    labelled: bool | None = None
    classes: tuple[ClassCount, ...] = ()
    content: Samples | None = None
    ignored: tuple[str, ...] = ()
    refused: Mapping[str, Any] | None = None

    @property
    def balance(self) -> float | None:
        """The smallest class that is there, as a share of the largest."""
        counts = [c.held_out if c.train is None else c.train for c in self.classes]
        return min(filter(None, counts)) / max(counts) if any(counts) else None


@dataclass(frozen=True)
class FolderReport:
    """A whole folder. `world` is the one that was given, or one that would fit; None where nothing is known.

    `unguessed`: why no world could be told, though domains can be read; then labels are not held to any classes.
    """

    folder: str
    role: str
    world: Mapping[str, Any] | None
    given: bool
    domains: tuple[DomainReport, ...]
    ignored: tuple[str, ...]
    refused: tuple[Mapping[str, Any], ...]
    unguessed: str = ""

    @property
    def usable(self) -> bool:
        """Whether an agent could use it."""
        return not self.refused


@dataclass
class Tally:
    """Counts while pieces go by."""

    shapes: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    low: float = np.inf
    high: float = -np.inf
    lost: list[tuple[int, str]] = field(default_factory=list)
    refused: DataRefused | None = None

    def add(self, x: NDArray[np.generic]) -> None:
        """One piece (k, ...)."""
        self.shapes[times(x.shape[1:])] += len(x)
        self.types[TYPES.get(x.dtype.str[1:], str(x.dtype))] += len(x)
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))

    def told(self, survey: Survey) -> Samples:
        """The counts as they are."""
        names = tuple(f"{survey.name(row)} ({why})" for row, why in self.lost)
        low, high = (self.low, self.high) if self.shapes else (None, None)
        return Samples(shapes=dict(self.shapes.most_common()), types=dict(self.types), low=low, high=high, unreadable=names)


def inspect(path: Path, world: World | None, role: Role | None) -> FolderReport:
    """Go through a folder as an agent would, and note what it would refuse instead of stopping there.

    Without a world one that fits is found; without a role the site is a source if it has labels, or else a target.
    Raises DataRefused where there is no folder, no domain, or a settings file that cannot be read.
    """
    found = folder.places(path, Classes(2))
    hints = {name: hint for name, place in found.items() if (hint := hint_of(place))}
    acts = role or (Role.SOURCE if any(hint.words != frozenset() for hint in hints.values()) else Role.TARGET)
    ignored = tuple(others(path, found))
    if world is None and not hints:
        domains = [DomainReport(name, folder.kind_of(place.path) or "", refused=doubt(place)) for name, place in found.items()]
        refused = tuple(d.refused for d in domains if d.refused)
        return FolderReport(
            folder=str(path), role=acts.value, world=None, given=False, domains=tuple(domains), ignored=ignored, refused=refused
        )
    chosen = world or guess(path, hints, acts)
    judged = chosen or World(inputs=inputs_of(hints.values()), classes=BEYOND)
    classes = read_classes(path, judged) if chosen else AnyClasses(BEYOND)
    places = folder.places(path, classes)
    surveys = survey_each(places, judged, acts)
    looked = [look(name, place, surveys[name], judged) for name, place in places.items()]
    refused = tuple(d.refused for d, _ in looked if d.refused)
    if not refused:
        refused = tuple(site_wide(path, [s for _, s in looked if s], judged, acts))
    told, why = (plain_world(chosen), "") if chosen else (None, UNGUESSED)
    return FolderReport(
        folder=str(path),
        role=acts.value,
        world=told,
        given=world is not None,
        domains=tuple(d for d, _ in looked),
        ignored=ignored,
        refused=refused,
        unguessed=why,
    )


def guess(path: Path, hints: Mapping[str, Hint], role: Role) -> World | None:
    """A world that fits. Words that can name no class are nothing to a target: its training labels may hold anything."""
    try:
        return fitting(path, hints)
    except DataRefused:
        if role is not Role.TARGET or (path / CLASSES).exists():
            raise
        return None


def hint_of(place: Place) -> Hint | None:
    """A domain's hint; None where it is refused anyway."""
    try:
        return HINTS[folder.kind_of(place.path) or ""](place)
    except DataRefused:
        return None


def doubt(place: Place) -> Mapping[str, Any]:
    """Why there is no hint."""
    try:
        with at(place.path):
            HINTS[folder.kind_of(place.path) or ""](place)
    except DataRefused as error:
        return as_data(error)
    raise AssertionError("unreachable")


def survey_each(places: Mapping[str, Place], world: World, role: Role) -> dict[str, Survey | DataRefused]:
    """The first pass over every domain, or why it cannot be done."""
    found: dict[str, Survey | DataRefused] = {}
    for name, place in places.items():
        try:
            found[name] = folder.KINDS[folder.kind_of(place.path) or ""](place, world, role)
        except DataRefused as error:
            found[name] = error
    surveys = {name: each for name, each in found.items() if isinstance(each, Survey)}
    return found | dict(zip(surveys, folder.together(list(surveys.values())), strict=True))


def look(name: str, place: Place, survey: Survey | DataRefused, world: World) -> tuple[DomainReport, Survey | None]:
    """One domain: what its survey says, then its samples."""
    kind = folder.kind_of(place.path) or ""
    others = tuple(images.ignored(place.path)) if kind == "images" else ()
    if isinstance(survey, DataRefused):
        return DomainReport(name, kind, ignored=others, refused=as_data(survey)), None
    tally, gone = Tally(), None
    try:
        with at(place.path):
            go_through(survey, kind, world, tally)
            gone = folder.left_out(survey, tally.lost)
    except DataRefused as error:
        tally.refused = tally.refused or error
    refused = None if tally.refused is None else as_data(tally.refused)
    left = survey if gone is None else folder.without(survey, gone)
    counts = tuple(counted(left, place.classes))
    sides = left.sides
    numbers = (len(left), len(sides.held), len(sides.bare), len(sides.unscored))
    report = DomainReport(name, kind, *numbers, sides.y_held is not None, counts, tally.told(survey), others, refused)
    return report, left


def go_through(survey: Survey, kind: str, world: World, tally: Tally) -> None:
    """Every piece of a domain. Raises DataRefused, at the end for values that do not fit."""
    wrong: DataRefused | None = None
    for piece in streamed(survey, kind):
        if piece.x is None:
            tally.lost.append((piece.start, piece.why))
            continue
        tally.add(piece.x)
        try:
            check_values(piece.x, world.inputs, piece.transform, piece.start)
        except DataRefused as error:
            wrong = wrong or error
    if wrong:
        raise wrong


def streamed(survey: Survey, kind: str) -> Iterator[Piece]:
    """A domain's samples, few at a time."""
    if kind != ".npz":
        yield from survey.pieces()
        return
    for start, x in arrays.streamed(survey.path):
        yield Piece(start, x, survey.transform)


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


def site_wide(path: Path, surveys: list[Survey], world: World, role: Role) -> Iterator[Mapping[str, Any]]:
    """What all domains together get a site refused for."""
    try:
        folder.check_roles(path, surveys, role)
        folder.check_sides(path, surveys)
        folder.check_room(path, sum(s.sides.kept for s in surveys), world)
    except DataRefused as error:
        yield as_data(error)


def others(path: Path, found: Mapping[str, Place]) -> list[str]:
    """What lies in the folder and is not read; hidden files are not told."""
    ours = {place.path.name for place in found.values()} | {folder.TRANSFORMS, CLASSES}
    return sorted(f.name + ("/" if f.is_dir() else "") for f in path.iterdir() if f.name not in ours and f.name[0] != ".")


def as_data(error: DataRefused) -> dict[str, Any]:
    """A refusal as plain data, all of its context with it: it is told to the owner."""
    return {"what": error.what, "todo": error.todo, **error.context}
