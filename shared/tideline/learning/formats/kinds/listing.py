"""Domains that are folders of files, a sample each: a folder for each class, and -1 for none; no folders if nothing is labelled.

What a file is, and how it is read, a `FileKind` says. A sample may be a folder of files, too, such as the slices of a volume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats.classes import cut
from tideline.learning.formats.holdings import Rows, Sides
from tideline.learning.formats.images import HELD_OUT, VALIDATION, Listing, entries, split, strange, visible_folders
from tideline.learning.formats.kinds.shapes import check_kind, expected
from tideline.learning.formats.surveys import Piece, Place, Survey, at, check_count, check_settings
from tideline.learning.formats.transforms import Transform
from tideline.learning.formats.units import UNITS, units_of_files

Read = Callable[[Path, World, Transform], NDArray[np.generic]]


class Undecodable(ValueError):
    """A file that this installation cannot decode, and what can be done: no damage."""

    def __init__(self, what: str, todo: str) -> None:
        super().__init__(what)
        self.what, self.todo = what, todo


@dataclass(frozen=True)
class FileKind:
    """A kind of files.

    what      what samples are called
    suffixes  of the files, in small letters
    own       the settings in `transforms.toml` that have a meaning for them
    check     refuses worlds, settings and files that cannot be: DataRefused
    read      one sample as it is stored, from its file or folder. Raises whatever a reader raises, and Undecodable
    folders   whether a sample is a folder of such files, in this world
    packages  that read them: of other versions they may make other numbers
    """

    what: str
    suffixes: tuple[str, ...]
    own: tuple[str, ...]
    check: Callable[[World, Transform, Listing], None]
    read: Read
    folders: Callable[[World], bool] = field(default=lambda world: False)
    packages: tuple[str, ...] = ()

    def is_file(self, name: str) -> bool:
        return name.lower().endswith(self.suffixes) and not name.startswith(".")

    def is_domain(self, folder: Path) -> bool:
        """Whether a folder holds such files, at most two folders deep."""
        below = visible_folders(folder)
        return any(any(files_in(each, self)) for each in (folder, *below)) or any(
            any(files_in(each, self)) for one in below for each in visible_folders(one)
        )


def files_in(folder: Path, kind: FileKind) -> Iterator[str]:
    """The names of a folder's files of a kind."""
    with entries(folder) as inside:
        yield from (entry.name for entry in inside if kind.is_file(entry.name) and not entry.is_dir())


def samples_in(folder: Path, kind: FileKind, folders: bool) -> list[str]:
    """The names of the samples in a folder: files, or folders of files."""
    if not folders:
        return list(files_in(folder, kind))
    return [each.name for each in visible_folders(folder) if any(files_in(each, kind))]


def listed(domain: Path, kind: FileKind, folders: bool = False) -> Listing:
    """The samples of a domain; none is opened. Raises DataRefused if samples and class folders are mixed, or folders too deep."""
    flat = sorted(samples_in(domain, kind, folders))
    classes = [each for each in visible_folders(domain) if each.name not in flat]
    for each in () if folders else classes:
        if any(any(files_in(one, kind)) for one in visible_folders(each)):
            what = f"there are folders inside the class folder {each.name!r}"
            more = "; or, of folders of slices, ask for a world of volumes: inputs [1, depth, height, width]"
            raise DataRefused(what, f"Put its files into the class folder itself{more}")
    inside = sorted(f"{each.name}/{name}" for each in classes for name in samples_in(each, kind, folders))
    if flat and inside:
        what = f"{len(flat)} {kind.what} are beside the class folders and {len(inside)} inside them"
        raise DataRefused(what, "Put every one into a folder of its class (-1 if it is not known), or none")
    return Listing(tuple(inside), tuple(each.partition("/")[0] for each in inside)) if inside else Listing(tuple(flat), None)


def ignored(domain: Path, kind: FileKind) -> list[str]:
    """The files of a domain and its class folders that are of no such kind, without hidden ones."""
    found = []
    for folder in (domain, *visible_folders(domain)):
        with entries(folder) as inside:
            names = [e.name for e in inside if not e.is_dir() and not e.name.startswith(".") and not kind.is_file(e.name)]
        found += [f"{'' if folder == domain else folder.name + '/'}{name}" for name in names]
    return sorted(name for name in found if name not in (HELD_OUT, VALIDATION, UNITS))


def survey(kind: FileKind, place: Place, world: World, role: Role) -> Survey:
    """One domain's split and labels, from the names of files and folders alone."""
    with at(place.path):
        check_settings(place.transform, kind.own, f"a folder of {kind.what}")
        listing = listed(place.path, kind, kind.folders(world))
        files, words = listing.files, listing.words
        check_count(len(files), f"one of the {kind.what}", 1 if (place.path / HELD_OUT).exists() else 2)
        kind.check(world, place.transform, listing)
        units = units_of_files(place.path, files, unit) if (unit := place.transform.unit) else None
        rows, chosen = split(place.path, files, place.transform.test, units)
        sides = Sides(*rows)
        if words is not None:
            sides = cut(map(place.classes.number, words), rows, role, lambda row: strange(place, words[row]))
        sides = replace(sides, chosen=chosen)
    reading = partial(Samples, kind, place, world, files)
    every = np.arange(len(files), dtype=np.int64)
    pieces = reading(every)
    return Survey(
        place,
        sides,
        pieces=lambda: map(pieces, range(len(files))),
        name=files.__getitem__,
        reader=reading,
        what=kind.what,
        decoder=" ".join(map(version_of, kind.packages)),
        units=units,
    )


def version_of(package: str) -> str:
    """A package with its version."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


@dataclass(frozen=True)
class Samples:
    """Reads samples of a domain by their places in a list of rows."""

    kind: FileKind
    place: Place
    world: World
    files: tuple[str, ...]
    rows: Rows

    def __call__(self, i: int) -> Piece:
        """One sample as a piece; without numbers if it cannot be read. Raises DataRefused for one that does not fit."""
        row, transform = int(self.rows[i]), self.place.transform
        name = self.files[row]
        try:
            x = self.kind.read(self.place.path / name, self.world, transform)
            with at(self.place.path):
                check_kind((1, *x.shape), x.dtype, self.world, transform)
        except (MemoryError, DataRefused) as error:
            raise self.refused(row, error) if isinstance(error, DataRefused) else error from None
        except Undecodable as error:
            if transform.unreadable != "skip":
                raise self.refused(row, DataRefused(error.what, error.todo)) from None
            return Piece(i, None, transform, error.what)
        except Exception as error:  # noqa: BLE001 - readers may raise anything on damaged files; it is reported
            return Piece(i, None, transform, f"{type(error).__name__}: {error}")
        return Piece(i, x[None], transform)

    def refused(self, row: int, error: DataRefused) -> DataRefused:
        """The refusal of one sample, by its row; its name is for the owner only."""
        what = error.what.removeprefix(f"{self.place.path}: ")
        more = {**error.context, "path": str(self.place.path), "row": row, "files": [self.files[row]]}
        return DataRefused(f"{self.place.path}: row {row} of the {self.kind.what}: {what}", error.todo, **more)


def refuse_world(world: World, what: str, takes: str) -> DataRefused:
    """The refusal of a world that such files cannot be read for."""
    said = f"the domain is a folder of {what}; the world expects {expected(world)}"
    return DataRefused(said, f"Ask for a world with inputs {takes}", expected=list(world.inputs))
