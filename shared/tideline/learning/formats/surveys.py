"""What is known of a domain before its samples are read, however it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import DataRefused
from tideline.learning.formats.classes import Classes
from tideline.learning.formats.holdings import Rows, Sides
from tideline.learning.formats.transforms import PLAIN, Transform
from tideline.learning.formats.units import Units

COMMON = ("scale", "mean", "std", "test", "validation", "unit")
# Keys of a refusal's context that only the owner may see: they hold parts of the data.
OWNERS = ("files", "cell", "entry", "column", "columns", "near", "kind", "values", "said")
SHOWN = 10  # names of files in a refusal
SAID = 400  # characters of a reader's own message


@dataclass(frozen=True)
class Place:
    """Where a domain is stored, and its owner's settings for it."""

    path: Path
    transform: Transform
    classes: Classes


@dataclass(frozen=True)
class Piece:
    """Consecutive samples `x` (k, ...) as they are stored, from row `start`; None if that row cannot be read, and `why`.

    gaps: whether NaN stands for a missing cell that the run fills, and not for a value that cannot be.
    """

    start: int
    x: NDArray[np.generic] | None
    transform: Transform
    why: str = ""
    gaps: bool = False

    @property
    def known(self) -> NDArray[np.generic]:
        """The samples with 0 for what the run fills: what is held to ranges."""
        assert self.x is not None
        return np.nan_to_num(self.x, nan=0.0, posinf=np.inf, neginf=-np.inf) if self.gaps and np.isnan(self.x).any() else self.x


@dataclass(frozen=True)
class Survey:
    """One domain before `pieces` reads its samples, in the order of the rows. `name`: a row's file or line, for the owner.

    reader: where each sample lies apart, gives for some rows what reads them by their places in that list; it holds no others.
    what: what those samples are called. decoder: what decodes them, with its version: another may make other numbers of a file.
    units: the name of each row's unit, in the order of the rows, where the domain says whose they are.
    """

    place: Place
    sides: Sides
    pieces: Callable[[], Iterator[Piece]]
    name: Callable[[int], str]
    reader: Callable[[Rows], Callable[[int], Piece]] | None = None
    what: str = "images"
    decoder: str = ""
    units: Units | None = None

    def __len__(self) -> int:
        return len(self.sides)


def check_settings(transform: Transform, own: tuple[str, ...], what: str) -> None:
    """Raises DataRefused for a setting that has no meaning for domains of this kind."""
    for f in fields(Transform):
        if f.name not in (*COMMON, *own) and getattr(transform, f.name) != getattr(PLAIN, f.name):
            known = ", ".join((*COMMON, *own))
            raise DataRefused(f"{f.name} has no meaning for {what}", f"Take it out of transforms.toml; these have one: {known}")


def check_count(n: int, what: str, least: int = 2) -> None:
    """Raises DataRefused for a domain too small to split. One whose split is given may have one row."""
    if n < least:
        raise DataRefused(f"there is {n or 'no'} {what}", "Give every domain at least 2, one to train on and one to hold out")


@contextmanager
def at(path: Path) -> Iterator[None]:
    """Name the domain in refusals raised inside."""
    try:
        yield
    except DataRefused as error:
        if "path" in error.context:
            raise
        raise DataRefused(f"{path}: {error.what}", error.todo, **error.context, path=str(path)) from None


@contextmanager
def readable(path: Path, damage: tuple[type[BaseException], ...], what: str, todo: str) -> Iterator[None]:
    """Turn what readers raise on a damaged file into a refusal. Their own message may hold data, so only the owner sees it."""
    try:
        yield
    except damage as error:
        refused = f"{path} cannot be read as {what} ({type(error).__name__})"
        raise DataRefused(refused, todo, path=str(path), said=str(error)[:SAID]) from error
