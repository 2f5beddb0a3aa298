"""Whose the rows of a domain are: the unit of each, such as its patient, of which a site may have several rows.

Units are names, alike in all domains of a site; inside a run they are numbers. Whole units are held out, each by a hash of its
name alone: so a unit more or less moves none of the others from one side to the other.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from tideline.core.errors import DataRefused
from tideline.core.step import Data
from tideline.learning.formats.classes import composed
from tideline.learning.formats.holdings import Rows, split_beside

if TYPE_CHECKING:
    from tideline.learning.formats.surveys import Survey

Units: TypeAlias = Sequence[str]
UNITS, HEADER = "units.csv", ["file", "unit"]  # beside images and other files
ARRAY = "unit"  # of .npz files, and beside .npy files


def checked_units(names: Units, name: Callable[[int], str]) -> Units:
    """The same, each in one form. Raises DataRefused for a row without one."""
    known = {each: composed(each) for each in dict.fromkeys(names)}
    if not all(known.values()):
        row = next(i for i, each in enumerate(names) if not known[each])
        what = f"{name(row)}: nothing says to which unit it belongs"
        raise DataRefused(what, "Give each row its unit; a row that belongs to nobody else's has one of its own", row=row)
    return [known[each] for each in names]


def units_in_array(given: NDArray[np.generic] | None, n: int, unit: str) -> Units:
    """Those of an array (n,). Raises DataRefused where there is none, or where it names none."""
    if given is None:
        what = f"the unit is {unit}, and there is no array {ARRAY!r} that says whose a row is"
        raise DataRefused(what, f"Save one as {ARRAY}: a whole number, or a text, for each row; or leave unit out")
    if given.shape != (n,) or given.dtype.kind not in "iuU":
        what = f"{ARRAY} is {given.dtype.name} of shape {given.shape}; there are {n} rows"
        raise DataRefused(what, "Save a whole number, or a text, for each row", got=list(given.shape))
    return checked_units([str(each) for each in given.tolist()], lambda row: f"row {row}")


def units_of_files(folder: Path, files: Sequence[str], unit: str) -> Units:
    """Those that `units.csv` gives the files of a folder. Raises DataRefused for a file without one, and for no such list."""
    path = folder / UNITS
    if not path.exists():
        what = f"the unit is {unit}, and there is no {UNITS} that says whose a file is"
        raise DataRefused(what, f"Write the line {','.join(HEADER)}, and one for each file; or leave unit out")
    of = read_units(path)
    lacking = [name for name in files if composed(name) not in of]
    if lacking:
        what = f"{UNITS} names no unit of {len(lacking)} of {len(files)} files"
        raise DataRefused(what, "Write a line for each, its path relative to the domain's folder", files=lacking[:10])
    return checked_units([of[composed(name)] for name in files], lambda row: f"{UNITS}, the file of row {row}")


def read_units(path: Path) -> Mapping[str, str]:
    """The units of a list, by file. Raises DataRefused."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [line for line in csv.reader(file, strict=True) if line]
    except (OSError, ValueError, csv.Error) as error:
        raise DataRefused(f"{path} cannot be read ({type(error).__name__})", "Save it as CSV in UTF-8", path=str(path)) from error
    if not lines or [cell.strip() for cell in lines[0]] != HEADER:
        what = f"{UNITS} does not begin with the line {','.join(HEADER)}"
        raise DataRefused(what, "Write it first, and below a line for each file: cat/0001.png,17")
    odd = next((i for i, line in enumerate(lines[1:], 2) if len(line) != len(HEADER)), None)
    if odd is not None:
        raise DataRefused(f"{UNITS}: line {odd} has {len(lines[odd - 1])} cells", "Write a path and a unit, with a comma between")
    of = {composed(name): unit for name, unit in lines[1:]}
    if len(of) < len(lines) - 1:
        raise DataRefused(f"{UNITS} names a file twice", "Write one line for each file")
    return of


def write_units(folder: Path, files: Sequence[str], units: Units) -> None:
    """Write such a list. Raises OSError."""
    with (folder / UNITS).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *zip(files, units, strict=True)])


def split_by_units(n: int, held: Rows | None, chosen: Rows | None, share: float, units: Units | None) -> tuple[Rows, Rows]:
    """Row numbers (train, held out), as `split_beside` has them; where a share is drawn, and units are known, of whole units."""
    if units is None or held is not None or chosen is not None:
        return split_beside(n, held, chosen, share)
    out = held_units(set(units), share)
    marked = np.array([each in out for each in units], bool)
    return np.flatnonzero(~marked).astype(np.int64), np.flatnonzero(marked).astype(np.int64)


def held_units(units: set[str], share: float) -> set[str]:
    """The units that are held out: about so large a share, at least one, and never all. Raises DataRefused for a single one."""
    if len(units) < 2:
        what = f"all rows belong to {len(units)} unit, which cannot be split in two"
        raise DataRefused(what, "Name the held-out rows yourself, or leave unit out")
    ranked = sorted(units, key=lambda unit: (place_of(unit), unit))
    most = sum(place_of(unit) < share for unit in ranked)
    return set(ranked[: min(max(most, 1), len(ranked) - 1)])


def place_of(unit: str) -> float:
    """A number in [0, 1) that follows from a unit's name alone."""
    return int.from_bytes(hashlib.blake2b(unit.encode(), digest_size=8, person=b"held out").digest(), "big") / 2.0**64


def check_one_unit(folder: Path, surveys: Sequence[Survey]) -> None:
    """Raises DataRefused unless all domains of a site say whose their rows are, by the same word, or none does."""
    first = surveys[0]
    odd = next((s for s in surveys if s.place.transform.unit != first.place.transform.unit), None)
    if odd is not None:
        names = [f"{s.place.path.name}: {s.place.transform.unit or 'none'}" for s in (first, odd)]
        what = f"{folder}: the domains' rows belong to different units ({'; '.join(names)})"
        raise DataRefused(what, "Write the same unit for each domain in transforms.toml, or for none", path=str(folder))


def with_units(data: Data, surveys: Sequence[Survey], side: str) -> Data:
    """The rows of a side, a field of Sides, over all domains, with their units as numbers, where the domains say them.

    The same name is the same number, in whichever domain.
    """
    several = [[s.units[row] for row in getattr(s.sides, side).tolist()] for s in surveys if s.units is not None]
    if len(several) < len(surveys):
        return data
    of = {name: i for i, name in enumerate(sorted({name for units in several for name in units}))}
    numbers = torch.tensor([of[name] for units in several for name in units], dtype=torch.int64)
    return replace(data, unit=surveys[0].place.transform.unit, units=numbers)
