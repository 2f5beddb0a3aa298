"""What is known of a domain before its samples are read, whatever it is stored as."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import DataRefused
from tideline.learning.formats.classes import Classes
from tideline.learning.formats.holdings import Sides
from tideline.learning.formats.transforms import PLAIN, Transform

COMMON = ("scale", "mean", "std")
# Keys of a refusal's context that are for the owner's eyes alone: what they hold stands in the data.
OWNERS = ("files", "cell", "entry", "column", "columns", "near", "kind", "values", "said")
TOLD = 10  # names of files that a refusal carries
SAID = 400  # characters of a reader's words


@dataclass(frozen=True)
class Place:
    """Where a domain lies, and what its owner says of it."""

    path: Path
    transform: Transform
    classes: Classes


@dataclass(frozen=True)
class Piece:
    """Consecutive samples as they are stored. `x` (k, ...) begins at row `start`; None: that one cannot be read, and `why`."""

    start: int
    x: NDArray[np.generic] | None
    transform: Transform
    why: str = ""


@dataclass(frozen=True)
class Survey:
    """One domain before its samples are read.

    `pieces` reads the samples, in the order of the rows; `name` says which file or line a row is, for the owner's eyes alone.
    """

    path: Path
    transform: Transform
    sides: Sides
    pieces: Callable[[], Iterator[Piece]]
    name: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.sides)


def check_settings(transform: Transform, own: tuple[str, ...], what: str) -> None:
    """Raises DataRefused where a setting is given that has no meaning for domains of this kind."""
    for f in fields(Transform):
        if f.name not in (*COMMON, *own) and getattr(transform, f.name) != getattr(PLAIN, f.name):
            known = ", ".join((*COMMON, *own))
            raise DataRefused(f"{f.name} has no meaning for {what}", f"Take it out of transforms.toml; these have one: {known}")


def check_count(n: int, what: str, least: int = 2) -> None:
    """Raises DataRefused for a domain that cannot be split. One that says itself which side its rows are on may have one."""
    if n < least:
        raise DataRefused(f"there is {n or 'no'} {what}", "Give every domain at least 2, one to train on and one to hold out")


@contextmanager
def at(path: Path) -> Iterator[None]:
    """Refusals raised inside say which domain they are about."""
    try:
        yield
    except DataRefused as error:
        if "path" in error.context:
            raise
        raise DataRefused(f"{path}: {error.what}", error.todo, **error.context, path=str(path)) from None


@contextmanager
def readable(path: Path, damage: tuple[type[BaseException], ...], what: str, todo: str) -> Iterator[None]:
    """Whatever a damaged file makes the readers raise becomes a refusal. Their words may hold what they have read."""
    try:
        yield
    except damage as error:
        refused = f"{path} cannot be read as {what} ({type(error).__name__})"
        raise DataRefused(refused, todo, path=str(path), said=str(error)[:SAID]) from error
