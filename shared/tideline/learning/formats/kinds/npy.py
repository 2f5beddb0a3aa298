"""Domains that are `.npy` files: `NAME.npy` with x, and beside it, if they are there, `NAME.y.npy` and the splits.

x is mapped into memory: of a file of any size only what is asked for is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.run import Role
from tideline.learning.formats import arrays
from tideline.learning.formats.arrays import DAMAGE, KEYS, STREAMED_BYTES, Head, Stored, header
from tideline.learning.formats.holdings import Rows
from tideline.learning.formats.surveys import Piece, Place, Survey, at, readable

SUFFIX = ".npy"
BESIDE = tuple(f".{key}{SUFFIX}" for key in KEYS if key != "x")
AS = (DAMAGE, "an .npy file", "Write the file again with numpy.save, an array of numbers; pickled objects are not read")


def is_domain(path: Path) -> bool:
    """Whether a file is a domain's samples, and not what lies beside them."""
    return path.name.lower().endswith(SUFFIX) and not path.name.lower().endswith(BESIDE)


def beside(path: Path) -> list[Path]:
    """The files that belong to a domain's samples."""
    return [each for key in KEYS if (each := file_of(path, key)) != path and each.exists()]


def file_of(path: Path, key: str) -> Path:
    return path if key == "x" else path.with_name(f"{path.stem}.{key}{SUFFIX}")


def survey(place: Place, world: World, role: Role) -> Survey:
    """One domain's split and labels. At a target only held-out labels are checked and kept."""
    found = arrays.survey(place, world, role, NPY)
    reader = None if fortran(place.path) else lambda rows: Mapped(place, rows)
    return replace(found, pieces=lambda: pieces(place), reader=reader)


def fortran(path: Path) -> bool:
    return read_heads(path)["x"].fortran


def read_heads(path: Path) -> Mapping[str, Head]:
    """The headers of x and of what lies beside it. Raises DataRefused if they do not fit together."""
    heads = {}
    for key in KEYS:
        file = file_of(path, key)
        if file.exists():
            with readable(file, *AS), file.open("rb") as stream:
                heads[key] = header(stream)
    arrays.check_heads(heads)
    return heads


def read_array(path: Path, key: str) -> NDArray[np.generic]:
    """One array, mapped and not read; pickled objects are never loaded."""
    file = file_of(path, key)
    with readable(file, *AS):
        array: NDArray[np.generic] = np.load(file, mmap_mode="r", allow_pickle=False)
        return array


def streamed(path: Path) -> Iterator[tuple[int, NDArray[np.generic]]]:
    """Some samples at a time, with the number of the first."""
    x = read_array(path, "x")
    step = max(STREAMED_BYTES // max(math.prod(x.shape[1:]) * x.dtype.itemsize, 1), 1)
    for start in range(0, len(x), step):
        yield start, np.asarray(x[start : start + step])


def pieces(place: Place) -> Iterator[Piece]:
    return (Piece(start, x, place.transform) for start, x in streamed(place.path))


class Mapped:
    """Reads samples of a domain by their places in a list of rows."""

    def __init__(self, place: Place, rows: Rows) -> None:
        self.place, self.rows = place, rows

    def __call__(self, i: int) -> Piece:
        """One sample as a piece."""
        with at(self.place.path):
            x = read_array(self.place.path, "x")
            return Piece(i, np.asarray(x[int(self.rows[i])][None]), self.place.transform)


NPY = Stored(read_heads, read_array, "an .npy file")
