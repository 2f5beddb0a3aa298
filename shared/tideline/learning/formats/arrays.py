"""Domains that are `.npz` files: arrays x, y, test_idx and validation_idx."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats.classes import ONE_CLASS, as_labels, known, lowest
from tideline.learning.formats.holdings import Rows, Sides, listed, parted
from tideline.learning.formats.kinds.shapes import check_kind
from tideline.learning.formats.surveys import Piece, Place, Survey, at, check_settings, readable
from tideline.learning.formats.units import ARRAY, Units, split_by_units, units_in_array

OWN = ("invert", "layout")
KEYS = ("x", "y", "test_idx", "validation_idx", ARRAY)
STREAMED_BYTES = 4 << 20  # of samples that are read together
# What zipfile and NumPy's reader raise on damaged, cut or encrypted files and on headers that are no Python literal.
DAMAGE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, MemoryError, OverflowError),
    *(ValueError, TypeError, SyntaxError, tokenize.TokenError),
)
AS = (DAMAGE, "an .npz file", "Write the file again with numpy.savez_compressed; if it is whole, the machine may lack memory")
NUMBER = "Number the classes from 0, or ask for a world with more classes"
LEAVE = "Leave y out if the labels are not known; held-out ones are used for scoring, so they are numbered from 0"


@dataclass(frozen=True)
class Head:
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    fortran: bool = False


@dataclass(frozen=True)
class Stored:
    """How arrays are stored: what reads their headers, what reads one of them by its key, and what that is called."""

    heads: Callable[[Path], Mapping[str, Head]]
    read: Callable[[Path, str], NDArray[np.generic]]
    what: str


def survey(place: Place, world: World, role: Role, stored: Stored | None = None) -> Survey:
    """One domain's split and labels. At a target only held-out labels are checked and kept."""
    path, of = place.path, stored or NPZ
    with at(path):
        heads = of.heads(path)
        check_settings(place.transform, OWN, of.what)
        if world.columns:
            what = f"the world declares columns by their names, and the arrays of {of.what} have none"
            raise DataRefused(what, "Save the table as .csv or .parquet, its columns named, or ask for a world without columns")
        x = heads["x"]
        check_kind(x.shape, x.dtype, world, place.transform)
        unit = place.transform.unit
        units = units_in_array(of.read(path, ARRAY) if ARRAY in heads else None, x.shape[0], unit) if unit else None
        rows, chosen = split(path, heads, place.transform.test, of, units)
        sides = sides_of(rows, of.read(path, "y"), world, role) if "y" in heads else Sides(*rows)
        sides = replace(sides, chosen=chosen)

    def pieces() -> Iterator[Piece]:
        yield Piece(0, of.read(path, "x"), place.transform)

    return Survey(place, sides, pieces=pieces, name=lambda row: f"row {row}", what="samples", units=units)


def split(
    path: Path, heads: Mapping[str, Head], share: float, of: Stored, units: Units | None = None
) -> tuple[tuple[Rows, Rows], Rows | None]:
    """Row numbers (train, held out), and those of training that the file names for validation, if it names any."""
    n = heads["x"].shape[0]
    held = listed(n, of.read(path, "test_idx"), "test_idx", "held-out row") if "test_idx" in heads else None
    name = "validation_idx"
    chosen = listed(n, of.read(path, name), name, "row for validation") if name in heads else None
    return split_by_units(n, held, chosen, share, units), chosen


def sides_of(rows: tuple[Rows, Rows], y: NDArray[np.generic], world: World, role: Role) -> Sides:
    """The sides of a domain from its split (train, held out); sources and peers keep rows of label -1 apart."""
    if role is Role.TARGET and known(y) is None:
        return Sides(*rows)
    train, held = rows
    low, todo = lowest(role), NUMBER if role is Role.SOURCE else LEAVE
    y_held = as_labels(y[held], world.classes, low, " among the held-out rows", todo)
    return parted(rows, None if role is Role.TARGET else as_labels(y[train], world.classes, low, "", NUMBER), y_held)


def streamed(path: Path) -> Iterator[tuple[int, NDArray[np.generic]]]:
    """Some samples at a time with the number of the first row; an array in Fortran's order comes whole."""
    with readable(path, *AS), zipfile.ZipFile(path) as archive, archive.open("x.npy") as stream:
        head = header(stream)
        if head.fortran:
            yield 0, read_array(path, "x")
            return
        row = math.prod(head.shape[1:]) * head.dtype.itemsize
        step = max(STREAMED_BYTES // max(row, 1), 1)
        for start in range(0, head.shape[0], step):
            n = min(step, head.shape[0] - start)
            yield start, np.frombuffer(stream.read(n * row), head.dtype).reshape(n, *head.shape[1:])
        drain(stream)


def read_heads(path: Path) -> Mapping[str, Head]:
    """The headers of those of the arrays in KEYS that the file has. Raises DataRefused if they do not fit together."""
    heads = {}
    with readable(path, *AS), zipfile.ZipFile(path) as archive:
        for key in KEYS:
            if f"{key}.npy" in archive.namelist():
                with archive.open(f"{key}.npy") as stream:
                    heads[key] = header(stream)
    check_heads(heads)
    return heads


def header(stream: IO[bytes]) -> Head:
    """The header at the beginning of an array's bytes; afterwards the stream is at the values."""
    version = np.lib.format.read_magic(stream)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = reader(stream)
    return Head(tuple(shape), dtype, fortran)


def read_array(path: Path, key: str) -> NDArray[np.generic]:
    """One array of the file; pickled objects are never loaded."""
    with readable(path, *AS), zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as stream:
        array: NDArray[np.generic] = np.lib.format.read_array(stream, allow_pickle=False)
        drain(stream)
        return array


NPZ = Stored(read_heads, read_array, "an .npz file")


def drain(stream: IO[bytes]) -> None:
    """Read to the end: only there is the checksum compared."""
    while stream.read(1 << 16):
        pass


def check_heads(heads: Mapping[str, Head]) -> None:
    """Raises DataRefused where the headers alone show that the file cannot be used."""
    if "x" not in heads:
        raise DataRefused("there is no array x", "Save the samples under the name x")
    for key, head in heads.items():
        if head.dtype.hasobject:
            what = f"{key} is an array of Python objects, often a sign of samples of different sizes"
            raise DataRefused(what, "Give all samples of a file one size and save them as one array of numbers")
    x = heads["x"].shape
    if not x or 0 in x[1:]:
        said = f"x has the shape {x}" if x else "x is a single number"
        raise DataRefused(said, "Save samples with shape (n, ...): the first axis counts them")
    if x[0] < (1 if "test_idx" in heads else 2):
        raise DataRefused(f"x has {x[0]} rows", "Give every domain at least 2 rows, one for each sample")
    y = heads["y"].shape if "y" in heads else x[:1]
    if len(y) != 1:
        raise DataRefused(f"y has shape {y}", f"Save one whole number per sample, with shape (n,). {ONE_CLASS}")
    if y != x[:1]:
        raise DataRefused(f"x has {x[0]} rows and y has {y[0]}", "Save one label per sample", expected=x[0], got=y[0])
