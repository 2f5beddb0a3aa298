"""Data folders for the sites of a deal, from one folder that holds all domains: arrays, tables and images, as they are there."""

from __future__ import annotations

import itertools
import json
import shutil
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tideline.core.errors import DataRefused
from tideline.learning import arrays, csvfiles, folder, images, parquet
from tideline.learning.classes import CLASSES, Classes
from tideline.learning.deals import Hand, Hands
from tideline.learning.holdings import Rows
from tideline.learning.surveys import Place, at, readable

ANY = Classes(2)  # which number a class has is nothing to a deal
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Lines:
    """What is written of a domain for a site: `rows` in the domain's order, of which those at the places `held` are held out.

    `again`: rows on both sides, which are written a second time at the end, for training.
    """

    rows: Rows
    held: Rows
    again: Rows

    @property
    def words(self) -> dict[int, str]:
        """For each row whether it is held out, as tables say it."""
        held = set(self.held.tolist())
        return {int(row): "test" if i in held else "train" for i, row in enumerate(self.rows)}


Shares = Sequence[tuple[Path, Lines]]


@dataclass(frozen=True)
class Kind:
    """How domains of one kind are dealt: are there labels, how many rows, and the writing of each site's rows into its folder.

    `write` gives what `transforms.toml` has to say of what was written beyond what it says of the domain.
    """

    labelled: Callable[[Place], bool]
    count: Callable[[Place], int]
    write: Callable[[Place, Shares], Settings]


def sizes_of(path: Path) -> dict[str, int]:
    """The number of rows of each domain of a folder, in its order. Raises DataRefused, also for a domain without labels."""
    found = {}
    for name, place in folder.places(path, ANY).items():
        with at(place.path):
            if not kind_of(place).labelled(place):
                todo = "Add them: clients learn from them, and the domain that is left out is scored by them"
                raise DataRefused("there are no labels", todo)
            found[name] = kind_of(place).count(place)
    return found


def write_sites(path: Path, sites: Mapping[Path, Hands]) -> None:
    """Write a data folder for each site, from the folder at `path`. Raises DataRefused; OSError where it cannot be written."""
    found = folder.places(path, ANY)
    raw = tables_of(path / folder.TRANSFORMS)
    for into in sites:
        into.mkdir(parents=True)
        if (path / CLASSES).exists():
            shutil.copyfile(path / CLASSES, into / CLASSES)
    settings = {name: {**raw.get(name, {}), **write(place, name, sites)} for name, place in found.items()}
    for into, hands in sites.items():
        told = [toml_table(name, settings[name]) for name in found if name in hands and settings[name]]
        if told:
            (into / folder.TRANSFORMS).write_text("\n".join(told), encoding="utf-8")


def write(place: Place, name: str, sites: Mapping[Path, Hands]) -> Settings:
    """Write one domain into the folders of those sites that have rows of it. The domain is read once."""
    with at(place.path):
        return kind_of(place).write(place, [(into, lines_of(hands[name])) for into, hands in sites.items() if name in hands])


def kind_of(place: Place) -> Kind:
    """How a domain is dealt."""
    return KINDS[folder.kind_of(place.path) or ""]


def lines_of(hand: Hand) -> Lines:
    """What is written of a site's rows."""
    rows = np.union1d(hand.train, hand.held)
    return Lines(rows, np.flatnonzero(np.isin(rows, hand.held)), np.intersect1d(hand.train, hand.held))


def has_y(place: Place) -> bool:
    """Whether a file of arrays has labels."""
    return "y" in arrays.read_heads(place.path)


def count_arrays(place: Place) -> int:
    """Rows of a file of arrays."""
    heads = arrays.read_heads(place.path)
    arrays.check_heads(heads)
    return heads["x"].shape[0]


def write_arrays(place: Place, sites: Shares) -> Settings:
    """x and y of each site's rows, of the type that they have, and test_idx."""
    x, y = (arrays.read_array(place.path, key) for key in ("x", "y"))
    with readable(place.path, *arrays.AS), zipfile.ZipFile(place.path) as archive:
        packed = any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist())
    save = np.savez_compressed if packed else np.savez
    for into, lines in sites:
        rows = np.concatenate([lines.rows, lines.again])
        save(into / place.path.name, x=x[rows], y=y[rows], test_idx=lines.held)
    return {}


def has_classes(place: Place) -> bool:
    """Whether images lie in folders of their classes."""
    return images.listed(place.path).words is not None


def count_images(place: Place) -> int:
    """Image files, whether they can be read or not."""
    return len(images.listed(place.path).files)


def write_images(place: Place, sites: Shares) -> Settings:
    """A copy of each site's image files, and the list of those that are held out."""
    files = images.listed(place.path).files
    if any(name != name.strip() or len(name.splitlines()) != 1 for name in files):
        todo = "Rename it: held_out.txt names a file a line"
        raise DataRefused("the name of an image file has a line break, or a space at one end", todo)
    for into, lines in sites:
        domain = into / place.path.name
        names = {files[row]: files[row] for row in lines.rows} | {again(files[row], files): files[row] for row in lines.again}
        for name, source in names.items():
            (domain / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(place.path / source, domain / name)
        held = "".join(f"{files[lines.rows[i]]}\n" for i in lines.held)
        (domain / images.HELD_OUT).write_text(held, encoding="utf-8")
    return {}


def again(name: str, files: Sequence[str]) -> str:
    """A name for a second copy of an image, in the same folder, that no file has."""
    path = PurePosixPath(name)
    tried = (path.with_name(f"{path.stem}-again{i or ''}{path.suffix}").as_posix() for i in itertools.count())
    return next(each for each in tried if each not in files)


def marked(lines: Lines) -> tuple[Rows, list[str]]:
    """The rows of a table to write, and for each in a word which side it is on."""
    words = lines.words
    rows = np.concatenate([lines.rows, lines.again])
    return rows, [*(words[int(row)] for row in lines.rows), *("train" for _ in lines.again)]


def write_csv(place: Place, sites: Shares) -> Settings:
    """Each site's lines, their cells as they are, with the column that says which are held out."""
    column = csvfiles.held_out(place)
    for into, lines in sites:
        csvfiles.write(place, into / place.path.name, column, *marked(lines))
    return {"held_out": column}


def write_parquet(place: Place, sites: Shares) -> Settings:
    """Each site's rows, with the column that says which are held out."""
    column = parquet.held_out(place)
    for into, lines in sites:
        parquet.write(place, into / place.path.name, column, *marked(lines))
    return {"held_out": column}


KINDS: Mapping[str, Kind] = {
    ".npz": Kind(has_y, count_arrays, write_arrays),
    ".csv": Kind(csvfiles.labelled, csvfiles.count, write_csv),
    ".parquet": Kind(parquet.labelled, parquet.count, write_parquet),
    "images": Kind(has_classes, count_images, write_images),
}


def tables_of(path: Path) -> Mapping[str, Settings]:
    """The tables of a `transforms.toml` that was read before, as they stand there."""
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def toml_table(name: str, settings: Settings) -> str:
    """One table of a `transforms.toml`."""
    return "\n".join([f"[{as_toml(name)}]", *(f"{key} = {as_toml(value)}" for key, value in settings.items()), ""])


def as_toml(value: Any) -> str:
    """A text, number, truth value or list as TOML writes it: as JSON does, but for one character that JSON does not escape."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
