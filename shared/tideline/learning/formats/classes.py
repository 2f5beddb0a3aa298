"""Labels: which number a class has, and which labels can be used."""

from __future__ import annotations

import functools
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tideline.core.asked.world import World, check_names
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role
from tideline.core.settings import nearest
from tideline.learning.formats.holdings import Rows, Sides, parted

CLASSES = "classes.txt"
UNKNOWN = -1  # the label of a row that has none
STRANGE = -2  # a word that names no class
NO_LABEL = ("", "-1", "-1.0")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"\d{1,18}(\.0*)?", re.ASCII)
ONE_CLASS = "Methods classify, and a row has one class: there is none for regression, or for several labels of a row"
SHOWN = 20  # names of classes in a sentence


@dataclass(frozen=True)
class Classes:
    """The classes of a run's world: their count, and their names if they have names."""

    count: int
    names: tuple[str, ...] = ()

    @functools.cached_property
    def named(self) -> Mapping[str, int]:
        return {composed(name): i for i, name in enumerate(self.names)}

    @functools.cached_property
    def numbered(self) -> bool:
        """Whether a whole number means the class of that number; not if a class is named by a number."""
        return not any(WHOLE.fullmatch(name) for name in self.names)

    def number(self, word: str) -> int:
        """The class that a word means: a name, or a whole number below `count`. -1 for no label, -2 for no class."""
        word = composed(word)
        if word in self.named:
            return self.named[word]
        if self.numbered and WHOLE.fullmatch(word) and int(float(word)) < self.count:
            return int(float(word))
        return UNKNOWN if word in NO_LABEL else STRANGE

    def describe(self) -> str:
        """The classes in words, for errors."""
        more = f" and {self.count - SHOWN} more" if self.count > SHOWN else ""
        return f"{', '.join(self.names[:SHOWN])}{more}" if self.names else f"0 to {self.count - 1}"

    def todo(self, word: str = "") -> str:
        """What to do about a word that names no class."""
        if self.names:
            return f"Use the names of the classes{nearest(word, self.names)}, or correct the list"
        return f"Use the numbers of the classes, or name them: in the world's class_names, or in {CLASSES}, one a line, in order"


class AnyClasses(Classes):
    """For a world whose classes are not known: each word is a class, numbered by its checksum."""

    def number(self, word: str) -> int:
        word = composed(word)
        return UNKNOWN if word in NO_LABEL else zlib.crc32(word.encode())


def composed(word: str) -> str:
    """One form of a word: file systems and editors write accents in different ways."""
    return unicodedata.normalize("NFC", word.strip())


def read_classes(folder: Path, world: World) -> Classes:
    """The classes, with the world's names or those of the folder's `classes.txt`. Raises DataRefused if they do not fit."""
    path = folder / CLASSES
    if not path.exists():
        return Classes(world.classes, world.class_names)
    names = tuple(read_lines(path))
    try:
        check_names(names, world.classes)
    except ConfigRefused as error:
        raise DataRefused(f"{path}: {error.what}", "Write one name a line, in the order of the numbers", path=str(path)) from None
    ours, theirs = Classes(world.classes, names), Classes(world.classes, world.class_names or names)
    if list(ours.named) != list(theirs.named):
        at = next(i for i, (a, b) in enumerate(zip(ours.named, theirs.named, strict=True)) if a != b)
        what = f"{path} names class {at} {names[at]!r}; the world names it {theirs.names[at]!r}"
        raise DataRefused(what, f"Remove {CLASSES}, or correct it", path=str(path))
    return theirs


def read_lines(path: Path) -> list[str]:
    """A text file's lines that are not blank. Raises DataRefused."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise DataRefused(f"{path} cannot be read ({error})", "Save it as text in UTF-8", path=str(path)) from error
    return [line.strip() for line in lines if line.strip()]


def known(y: NDArray[np.generic]) -> NDArray[np.generic] | None:
    """Labels, or None if every one is -1, which stands for an unknown label."""
    return None if y.dtype.kind in "if" and np.all(y == UNKNOWN) else y


def lowest(role: Role) -> int:
    """The lowest label allowed: 0 at a target, which is scored on every held-out row; else -1, no label."""
    return 0 if role is Role.TARGET else UNKNOWN


def as_labels(y: NDArray[np.generic], classes: int, low: int, among: str, todo: str) -> NDArray[np.int64]:
    """Labels as int64. Raises DataRefused unless they are whole numbers in [low, classes). `among`: which rows they belong to."""
    if y.dtype.kind not in "biuf" or not np.all(y == np.floor(y.astype(np.float64))):
        raise DataRefused(f"the labels in y{among} ({y.dtype.name}) are not whole numbers", f"{todo}. {ONE_CLASS}")
    bad = y[(y < low) | (y >= classes)]  # type: ignore[operator]
    if bad.size:
        what = f"y holds the label {bad[0]:g}{among}; the world has the classes 0 to {classes - 1}"
        raise DataRefused(what, todo, got=float(bad[0]))
    return y.astype(np.int64)


def cut(codes: Iterable[int], rows: tuple[Rows, Rows], role: Role, strange: Callable[[int], DataRefused]) -> Sides:
    """The sides of a domain from its split (train, held out) and the codes of `Classes.number`.

    Sources and peers keep rows without a label apart. At a target only held-out labels are checked and kept.
    Raises `strange(row)` for the first row whose label is no class.
    """
    y = np.fromiter(codes, np.int64)
    if role is Role.TARGET and known(y) is None:
        return Sides(*rows)
    judged = rows[1:] if role is Role.TARGET else rows
    bad = [row for part in judged for row in part[y[part] < lowest(role)][:1]]
    if bad:
        error = strange(int(min(bad)))
        more = "; or leave the labels out if they are not known: held-out ones are used for scoring"
        raise DataRefused(error.what, error.todo + ("" if role is Role.SOURCE else more), **error.context)
    train, held = rows
    return parted(rows, None if role is Role.TARGET else y[train], y[held])
