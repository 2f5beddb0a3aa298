"""Data folders for the sites of a deal, from one folder that holds all domains: arrays, tables and images, as they are there."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import tomllib
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import DataRefused
from tideline.learning.formats import arrays, csv_files, folder, images, parquet
from tideline.learning.formats.classes import CLASSES, UNKNOWN, WHOLE, Classes, composed, read_lines
from tideline.learning.formats.holdings import Rows
from tideline.learning.formats.surveys import Place, at, readable
from tideline.learning.partition.deals import Hand, Hands
from tideline.learning.partition.dirichlet import Words

ANY = Classes(2)  # which number a class has is nothing to a deal
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Lines:
    """What is written of a domain for a site: `rows` in the domain's order, of which those at the places `held` are held out.

    `again`: rows on both sides, which are written a second time at the end, for training.
    `bare`: the places of rows whose labels are not written.
    """

    rows: Rows
    held: Rows
    again: Rows
    bare: Rows

    @property
    def words(self) -> list[str]:
        """For each row that is written, `again` at the end, whether it is held out, as tables say it."""
        held = set(self.held.tolist())
        return [*("test" if i in held else "train" for i in range(len(self.rows))), *("train" for _ in self.again)]

    @property
    def all(self) -> Rows:
        """The rows that are written, `again` at the end."""
        return np.concatenate([self.rows, self.again])


Shares = Sequence[tuple[Path, Lines]]


@dataclass(frozen=True)
class Kind:
    """How domains of one kind are dealt: their labels, how many rows, and the writing of each site's rows into its folder.

    `words` gives each row's label as a text, or None where nothing holds labels. `write` gives what `transforms.toml` has to
    say of what was written beyond what it says of the domain.
    """

    words: Callable[[Place], Iterable[str] | None]
    count: Callable[[Place], int]
    write: Callable[[Place, Shares], Settings]


def sizes_of(path: Path) -> dict[str, int]:
    """The number of rows of each domain of a folder, in its order. Raises DataRefused, also where a row has no label."""
    return {name: len(words) for name, words in labels_of(path).items()}


def labels_of(path: Path, names: Collection[str] = ()) -> dict[str, Words]:
    """The class of each row (n,) of each domain of a folder, or of those of these names, in its order.

    A class is its name in the folder's list of classes, or else the word that stands in the data. Raises DataRefused, also
    where a row has no label.
    """
    found = folder.places(path, ANY)
    listed = tuple(read_lines(path / CLASSES)) if (path / CLASSES).exists() else ()
    one = functools.cache(functools.partial(class_of, Classes(len(listed), listed)))
    told = {}
    for name, place in found.items():
        if names and name not in names:
            continue
        with at(place.path):
            told[name] = labels_in(place, one)
    return told


def labels_in(place: Place, one: Callable[[str], str]) -> Words:
    """The classes of a domain's rows (n,). `one`: the class of a word, or no text for none. Raises DataRefused."""
    n, given = kind_of(place).count(place), kind_of(place).words(place)
    if given is None:
        todo = "Add them: clients learn from them, and what is held out is scored by them"
        raise DataRefused("there are no labels", todo)
    words = [one(word) for word in given]
    missing = [row for row, word in enumerate(words) if not word]
    if missing:
        what = f"{len(missing)} of {n} rows have no label, the first of them row {missing[0]}, counted from 0"
        todo = "Label them or take them out; a deal that wants rows without labels hides labels itself"
        raise DataRefused(what if len(missing) < n else "there are no labels", todo)
    return np.array(words, np.str_)


def class_of(classes: Classes, word: str) -> str:
    """One word for a class, however it is written: its name, or its number without what may stand around it."""
    number = classes.number(word)
    if 0 <= number < len(classes.names):
        return classes.names[number]
    word = composed(word)
    if number == UNKNOWN:
        return ""
    return str(int(float(word))) if WHOLE.fullmatch(word) else word


def write_sites(path: Path, sites: Mapping[Path, Hands]) -> None:
    """Write a data folder for each site, from the folder at `path`. Raises DataRefused; OSError where it cannot be written."""
    found = folder.places(path, ANY)
    raw = tables_of(path / folder.TRANSFORMS)
    for into in sites:
        into.mkdir(parents=True)
        if (path / CLASSES).exists():
            shutil.copyfile(path / CLASSES, into / CLASSES)
    dealt = {name for hands in sites.values() for name in hands}
    settings = {name: {**raw.get(name, {}), **write(place, name, sites)} for name, place in found.items() if name in dealt}
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
    rows = np.union1d(np.union1d(hand.train, hand.held), hand.bare)
    held, bare = (np.flatnonzero(np.isin(rows, side)) for side in (hand.held, hand.bare))
    return Lines(rows, held, np.intersect1d(hand.train, hand.held), bare)


def words_of_arrays(place: Place) -> Iterable[str] | None:
    """The labels of a file of arrays."""
    if "y" not in arrays.read_heads(place.path):
        return None
    y = arrays.read_array(place.path, "y")
    return map(str, (y.astype(np.int64) if y.dtype.kind == "b" else y).tolist())


def count_arrays(place: Place) -> int:
    """Rows of a file of arrays."""
    heads = arrays.read_heads(place.path)
    arrays.check_heads(heads)
    return heads["x"].shape[0]


def write_arrays(place: Place, sites: Shares) -> Settings:
    """x and y of each site's rows, of the type that they have if it can hold -1 where that is needed, and test_idx."""
    x, y = (arrays.read_array(place.path, key) for key in ("x", "y"))
    with readable(place.path, *arrays.AS), zipfile.ZipFile(place.path) as archive:
        packed = any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist())
    save = np.savez_compressed if packed else np.savez
    for into, lines in sites:
        save(into / place.path.name, x=x[lines.all], y=hidden(y[lines.all], lines.bare), test_idx=lines.held)
    return {}


def hidden(y: NDArray[np.generic], bare: Rows) -> NDArray[np.generic]:
    """Labels (n,), those at the places `bare` gone."""
    if not bare.size:
        return y
    known = y.astype(np.int64 if y.dtype.kind in "bu" else y.dtype)
    known[bare] = UNKNOWN
    return known


def words_of_images(place: Place) -> Iterable[str] | None:
    """The class folder of each image."""
    return images.listed(place.path).words


def count_images(place: Place) -> int:
    """Image files, whether they can be read or not."""
    return len(images.listed(place.path).files)


def write_images(place: Place, sites: Shares) -> Settings:
    """A copy of each site's image files, those without labels under names that tell nothing, and the list of those held out."""
    files = images.listed(place.path).files
    if any(name != name.strip() or len(name.splitlines()) != 1 for name in files):
        todo = "Rename it: held_out.txt names a file a line"
        raise DataRefused("the name of an image file has a line break, or a space at one end", todo)
    for into, lines in sites:
        domain = into / place.path.name
        named = [(files[row], files[row]) for row in np.delete(lines.rows, lines.bare)]
        bare = [(nameless(i, len(lines.bare), files[row]), files[row]) for i, row in enumerate(lines.rows[lines.bare])]
        names = dict([*named, *bare, *((again(files[row], files), files[row]) for row in lines.again)])
        for name, source in names.items():
            (domain / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(place.path / source, domain / name)
        held = "".join(f"{files[lines.rows[i]]}\n" for i in lines.held)
        (domain / images.HELD_OUT).write_text(held, encoding="utf-8")
    return {}


def nameless(i: int, n: int, name: str) -> str:
    """The i-th of n images without a label: neither its folder nor its name tells a class, and the order stays."""
    return f"{UNKNOWN}/{i:0{len(str(n))}}{PurePosixPath(name).suffix}"


def again(name: str, files: Sequence[str]) -> str:
    """A name for a second copy of an image, in the same folder, that no file has."""
    path = PurePosixPath(name)
    tried = (path.with_name(f"{path.stem}-again{i or ''}{path.suffix}").as_posix() for i in itertools.count())
    return next(each for each in tried if each not in files)


def write_csv(place: Place, sites: Shares) -> Settings:
    """Each site's lines, their cells as they are, with the column that says which are held out."""
    for into, lines in sites:
        csv_files.write(place, into / place.path.name, lines.all, lines.words, lines.bare)
    return {"held_out": csv_files.held_out(place)}


def write_parquet(place: Place, sites: Shares) -> Settings:
    """Each site's rows, with the column that says which are held out."""
    for into, lines in sites:
        parquet.write(place, into / place.path.name, lines.all, lines.words, lines.bare)
    return {"held_out": parquet.held_out(place)}


KINDS: Mapping[str, Kind] = {
    ".npz": Kind(words_of_arrays, count_arrays, write_arrays),
    ".csv": Kind(csv_files.labels, csv_files.count, write_csv),
    ".parquet": Kind(parquet.labels, parquet.count, write_parquet),
    "images": Kind(words_of_images, count_images, write_images),
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
