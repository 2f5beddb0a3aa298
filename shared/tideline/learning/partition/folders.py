"""One folder with all domains, dealt to sites by a rule: written as a folder for each, in the domains' own formats, or read.

It is read once for all sites, each sample in memory once, and nothing is copied.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import tomllib
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role
from tideline.core.settings import Plain
from tideline.learning.formats import arrays, csv_files, folder, images, parquet
from tideline.learning.formats.arrays import Stored
from tideline.learning.formats.classes import CLASSES, UNKNOWN, WHOLE, Classes, composed, read_lines
from tideline.learning.formats.folder import Places, Room
from tideline.learning.formats.holdings import Holdings, Labels, Rows, Sides, none, parted
from tideline.learning.formats.images import Listing
from tideline.learning.formats.kinds import npy
from tideline.learning.formats.kinds.dicom import DICOM, has_series
from tideline.learning.formats.kinds.folders import KINDS_OF_FILES
from tideline.learning.formats.kinds.listing import FileKind, listed
from tideline.learning.formats.surveys import Place, Survey, at, readable
from tideline.learning.formats.units import ARRAY, units_of_files, write_units
from tideline.learning.partition import deals, dirichlet
from tideline.learning.partition.deals import UNSEEN, Deal, Hand, Hands
from tideline.learning.partition.dirichlet import Dirichlet, Words
from tideline.learning.rows.scratch import HELD

Rule = Deal | Dirichlet
RULES: Mapping[str, type[Deal] | type[Dirichlet]] = {"leave-out": Deal, "dirichlet": Dirichlet}
ANY = Classes(2)  # the numbers of classes do not matter to a deal
Settings = Mapping[str, Plain]
Write = Callable[[Place, Path, Rows, Sequence[str], Rows], str]


@dataclass(frozen=True)
class Lines:
    """The rows of a domain that a site gets, in the domain's order; those at the places `held` are held out.

    `again`: rows on both sides, which are written a second time at the end, for training.
    `bare`: the places of rows whose labels are not written.
    """

    rows: Rows
    held: Rows
    again: Rows
    bare: Rows

    @property
    def words(self) -> list[str]:
        """The side of each written row, `again` at the end, as tables say it."""
        held = set(self.held.tolist())
        return [*("test" if i in held else "train" for i in range(len(self.rows))), *("train" for _ in self.again)]

    @property
    def all(self) -> Rows:
        return np.concatenate([self.rows, self.again])


Shares = Sequence[tuple[Path, Lines]]


@dataclass(frozen=True)
class Kind:
    """How domains of one kind are dealt: their labels, their number of rows, and how each site's rows are written.

    words: each row's label as text, or None without labels. write: returns what the sites' `transforms.toml` need beside theirs.
    """

    words: Callable[[Place], Iterable[str] | None]
    count: Callable[[Place], int]
    write: Callable[[Place, Shares], Settings]


def sizes_of(path: Path) -> dict[str, int]:
    """The number of rows of each domain of a folder, in its order. Raises DataRefused, also if a row has no label."""
    return {name: len(words) for name, words in labels_of(path).items()}


def labels_of(path: Path, names: Collection[str] = ()) -> dict[str, Words]:
    """The class of each row (n,) of a folder's domains, or of the domains of these names, in the folder's order.

    A class is its name in the list of classes, or else the word in the data. Raises DataRefused, also if a row has no label.
    """
    listed = tuple(read_lines(path / CLASSES)) if (path / CLASSES).exists() else ()
    one = cache(partial(class_of, Classes(len(listed), listed)))
    labels = {}
    for name, place in folder.places(path, ANY).items():
        if not names or name in names:
            with at(place.path):
                labels[name] = labels_in(place, one)
    return labels


def labels_in(place: Place, one: Callable[[str], str]) -> Words:
    """The classes of a domain's rows (n,). `one`: the class of a word, or an empty text for no label. Raises DataRefused."""
    n, words = kind_of(place).count(place), kind_of(place).words(place)
    if words is None:
        raise DataRefused("there are no labels", "Add them: clients learn from them, and held-out rows are scored by them")
    classes = [one(word) for word in words]
    missing = [row for row, word in enumerate(classes) if not word]
    if missing:
        what = f"{len(missing)} of {n} rows have no label, the first of them row {missing[0]}, counted from 0"
        todo = "Label them or remove them; a deal that needs rows without labels hides labels itself"
        raise DataRefused(what if len(missing) < n else "there are no labels", todo)
    return np.array(classes, np.str_)


def class_of(classes: Classes, word: str) -> str:
    """One word for a class, however it is written: its name, or its number without spaces or decimals."""
    number = classes.number(word)
    if 0 <= number < len(classes.names):
        return classes.names[number]
    word = composed(word)
    if number == UNKNOWN:
        return ""
    return str(int(float(word))) if WHOLE.fullmatch(word) else word


def write_sites(path: Path, sites: Mapping[Path, Hands]) -> None:
    """Write a data folder for each site, from the folder at `path`. Raises DataRefused, and OSError if it cannot be written."""
    domains, file = folder.places(path, ANY), path / folder.TRANSFORMS
    raw = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for into in sites:
        into.mkdir(parents=True)
        if (path / CLASSES).exists():
            shutil.copyfile(path / CLASSES, into / CLASSES)
    dealt = {name for hands in sites.values() for name in hands}
    settings = {name: {**raw.get(name, {}), **write(place, name, sites)} for name, place in domains.items() if name in dealt}
    for into, hands in sites.items():
        tables = [toml_table(name, settings[name]) for name in domains if name in hands and settings[name]]
        if tables:
            (into / folder.TRANSFORMS).write_text("\n".join(tables), encoding="utf-8")


def write(place: Place, name: str, sites: Mapping[Path, Hands]) -> Settings:
    """Write one domain into the folders of the sites that have rows of it."""
    with at(place.path):
        return kind_of(place).write(place, [(into, lines_of(hands[name])) for into, hands in sites.items() if name in hands])


def kind_of(place: Place) -> Kind:
    return KINDS[folder.kind_of(place.path)]


def lines_of(hand: Hand) -> Lines:
    rows = np.union1d(np.union1d(hand.train, hand.held), hand.bare)
    held, bare = (np.flatnonzero(np.isin(rows, side)) for side in (hand.held, hand.bare))
    return Lines(rows, held, np.intersect1d(hand.train, hand.held), bare)


def words_of_arrays(stored: Stored, place: Place) -> Iterable[str] | None:
    if "y" not in stored.heads(place.path):
        return None
    y = stored.read(place.path, "y")
    return map(str, (y.astype(np.int64) if y.dtype.kind == "b" else y).tolist())


def count_arrays(stored: Stored, place: Place) -> int:
    return stored.heads(place.path)["x"].shape[0]


def write_arrays(place: Place, sites: Shares) -> Settings:
    """Write x, y and test_idx of each site's rows; y keeps its type unless it cannot hold a -1 that is needed."""
    x, y = (arrays.read_array(place.path, key) for key in ("x", "y"))
    with readable(place.path, *arrays.AS), zipfile.ZipFile(place.path) as archive:
        packed = any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist())
    save = np.savez_compressed if packed else np.savez
    whose = arrays.read_array(place.path, ARRAY) if ARRAY in arrays.read_heads(place.path) else None
    for into, lines in sites:
        more: dict[str, Any] = {} if whose is None else {ARRAY: whose[lines.all]}
        save(into / place.path.name, x=x[lines.all], y=hidden(y[lines.all], lines.bare), test_idx=lines.held, **more)
    return {}


def write_npy(place: Place, sites: Shares) -> Settings:
    """Write each site's rows of x, some at a time, since the file may be larger than memory; beside it y and test_idx."""
    x, y = (npy.read_array(place.path, key) for key in ("x", "y"))
    heads = npy.read_heads(place.path)
    step = max(arrays.STREAMED_BYTES // max(math.prod(x.shape[1:]) * x.dtype.itemsize, 1), 1)
    for into, lines in sites:
        path, rows = into / place.path.name, lines.all
        written = np.lib.format.open_memmap(path, mode="w+", dtype=x.dtype, shape=(len(rows), *x.shape[1:]))
        for start in range(0, len(rows), step):
            written[start : start + step] = x[rows[start : start + step]]
        written.flush()
        del written  # unmaps what was written
        np.save(npy.file_of(path, "y"), hidden(np.asarray(y[rows]), lines.bare))
        np.save(npy.file_of(path, "test_idx"), lines.held)
        if ARRAY in heads:
            np.save(npy.file_of(path, ARRAY), np.asarray(npy.read_array(place.path, ARRAY)[rows]))
    return {}


def hidden(y: NDArray[np.generic], bare: Rows) -> NDArray[np.generic]:
    """Labels (n,) with -1 at the places `bare`."""
    if not bare.size:
        return y
    known = y.astype(np.int64 if y.dtype.kind in "bu" else y.dtype)
    known[bare] = UNKNOWN
    return known


@dataclass(frozen=True)
class Files:
    """Domains of which each sample is a file, or a folder of files. suffixes: of such files, in small letters."""

    listed: Callable[[Path], Listing]
    suffixes: tuple[str, ...]

    def kind(self) -> Kind:
        return Kind(lambda place: self.listed(place.path).words, lambda place: len(self.listed(place.path).files), self.write)

    def write(self, place: Place, sites: Shares) -> Settings:
        """Copy each site's files, those without labels under neutral names, and list the held-out ones."""
        files = self.listed(place.path).files
        if any(name != name.strip() or len(name.splitlines()) != 1 for name in files):
            todo = "Rename it: held_out.txt names a file a line"
            raise DataRefused("the name of a file has a line break, or a space at its start or end", todo)
        for into, lines in sites:
            domain = into / place.path.name
            named = [(files[row], files[row]) for row in np.delete(lines.rows, lines.bare)]
            bare = [(self.nameless(i, len(lines.bare), files[row]), files[row]) for i, row in enumerate(lines.rows[lines.bare])]
            names = dict([*named, *bare, *((self.again(files[row], files), files[row]) for row in lines.again)])
            for name, source in names.items():
                (domain / name).parent.mkdir(parents=True, exist_ok=True)
                copy(place.path / source, domain / name)
            held = "".join(f"{files[lines.rows[i]]}\n" for i in lines.held)
            (domain / images.HELD_OUT).write_text(held, encoding="utf-8")
            if unit := place.transform.unit:
                write_units(domain, list(names), units_of_files(place.path, list(names.values()), unit))
        return {}

    def ending(self, name: str) -> str:
        """The suffix of a file, .nii.gz whole; none of a folder, whose name is all its own."""
        found = max((each for each in self.suffixes if name.lower().endswith(each)), key=len, default="")
        return name[len(name) - len(found) :]

    def nameless(self, i: int, n: int, name: str) -> str:
        return f"{UNKNOWN}/{i:0{len(str(n))}}{self.ending(name)}"

    def again(self, name: str, files: Sequence[str]) -> str:
        end = self.ending(name)
        stem = name[: len(name) - len(end)]
        return next(each for i in itertools.count() if (each := f"{stem}-again{i or ''}{end}") not in files)


def copy(source: Path, into: Path) -> None:
    """A file, or a folder of files. Raises OSError."""
    if source.is_dir():
        shutil.copytree(source, into)
    else:
        shutil.copyfile(source, into)


def files_of(kind: FileKind) -> Kind:
    """Scans and sounds; slices of DICOM lie in a folder for each series where there are such folders."""
    return Files(lambda path: listed(path, kind, folders=kind is DICOM and has_series(path)), kind.suffixes).kind()


def write_tables(write: Write, place: Place, sites: Shares) -> Settings:
    """Write each site's rows, with the column that says which are held out."""
    columns = [write(place, into / place.path.name, lines.all, lines.words, lines.bare) for into, lines in sites]
    return {"held_out": columns[0]}


KINDS: Mapping[str, Kind] = {
    ".npz": Kind(partial(words_of_arrays, arrays.NPZ), partial(count_arrays, arrays.NPZ), write_arrays),
    npy.SUFFIX: Kind(partial(words_of_arrays, npy.NPY), partial(count_arrays, npy.NPY), write_npy),
    ".csv": Kind(csv_files.labels, csv_files.count, partial(write_tables, csv_files.write)),
    ".parquet": Kind(parquet.labels, parquet.count, partial(write_tables, parquet.write)),
    "images": Files(images.listed, images.SUFFIXES).kind(),
    **{name: files_of(kind) for name, kind in KINDS_OF_FILES.items()},
}


def toml_table(name: str, settings: Settings) -> str:
    return "\n".join([f"[{as_toml(name)}]", *(f"{key} = {as_toml(value)}" for key, value in settings.items()), ""])


def as_toml(value: Plain) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def role_of(site: str) -> Role:
    """A site's role in a leave-one-out deal: the unseen site is only scored, the others have labels to learn from."""
    return Role.TARGET if site == UNSEEN else Role.SOURCE


def read_dealt(
    path: Path, world: World, sites: Mapping[str, Hands], roles: Mapping[str, Role] | None = None
) -> dict[str, Holdings]:
    """What each site holds, as if it had read its own rows alone; all rows need labels. `roles`: else `role_of`. DataRefused."""
    roles = {site: role_of(site) for site in sites} if roles is None else roles
    try:
        surveys = folder.survey_all(path, world, Role.SOURCE, {name for hands in sites.values() for name in hands})
        folder.check_roles(path, surveys, Role.SOURCE)
        rows = sum(len(h.train) + len(h.held) + len(h.bare) for hands in sites.values() for h in hands.values())
        held = HELD if folder.in_memory(rows, world, HELD) else 0
        if not held:
            folder.check_room(path, rows, world)
        rooms = {site: room_of(at_site(path, site), surveys, hands, roles[site], world, held) for site, hands in sites.items()}
        # Without their own splits, which a deal ignores.
        undivided = [replace(s, sides=Sides(np.arange(len(s), dtype=np.int64), none())) for s in surveys]
        lost = {s.place.path: folder.pour(s, world, places_of(s, rooms)) for s in undivided}
        return {
            site: folder.holdings_of(at_site(path, site), room, [lost[s.place.path] for s in room.surveys], roles[site], world)
            for site, room in rooms.items()
        }
    except DataRefused as error:
        folder.log_owners(error)
        raise


def room_of(site: Path, surveys: list[Survey], hands: Hands, role: Role, world: World, held: int) -> Room:
    """Empty room for a site's rows, in memory up to `held` bytes. Raises DataRefused for what an agent would refuse, such as rows
    of a single class.
    """
    dealt = ((s, hands.get(folder.name_of(s.place.path))) for s in surveys)
    own = folder.together([replace(s, sides=portion(s, hand, role)) for s, hand in dealt if hand is not None])
    folder.check_roles(site, own, role)
    folder.check_sides(site, own)
    return folder.room_for(own, world, role, held, decoded=False)


def portion(survey: Survey, hand: Hand, role: Role) -> Sides:
    """A site's rows of a domain, without a target's training labels and without the labels of `hand.bare`."""
    y = labels(survey)
    y[hand.bare] = UNKNOWN
    train = np.union1d(hand.train, hand.bare)
    return parted((train, hand.held), None if role is Role.TARGET else y[train], y[hand.held])


def labels(survey: Survey) -> Labels:
    """The labels of all rows of a domain (n,), in the domain's own order. Raises DataRefused if one is missing."""
    sides, y = survey.sides, np.full(len(survey), UNKNOWN, np.int64)
    if sides.y_train is None or sides.y_held is None or sides.bare.size or sides.unscored.size:
        todo = "Label every row, or leave the others out; a deal that needs rows without labels hides labels itself"
        raise DataRefused(f"{survey.place.path}: there are rows without a label", todo, path=str(survey.place.path))
    y[sides.train], y[sides.held] = sides.y_train, sides.y_held
    return y


def places_of(survey: Survey, rooms: Mapping[str, Room]) -> Places:
    """Where a domain's rows go, over all sites."""
    own = [each for room in rooms.values() for each in zip(room.surveys, room.places, strict=True)]
    return [place for other, places in own if other.place.path == survey.place.path for place in places]


def at_site(path: Path, site: str) -> Path:
    return Path(f"{path} ({site})")


@dataclass(frozen=True)
class Sites:
    """The sites of a deal: each one's rows by domain, and its role."""

    hands: Mapping[str, Hands]
    roles: Mapping[str, Role]


def rule_in(name: str, given: Mapping[str, Any]) -> Rule:
    """The rule of a name with these settings. Raises ConfigRefused, its `path` a field, for a missing or unknown setting."""
    own = {f.name: f for f in fields(RULES[name])}
    for key in given:
        if key not in own:
            others = [other for other, kind in RULES.items() if key in {f.name for f in fields(kind)}]
            todo = f"Leave it out, or deal by the rule {' or '.join(others)}"
            raise ConfigRefused(f"{key} has no meaning for the rule {name}", todo, path=key)
    for key, f in own.items():
        if f.default is MISSING and key not in given:
            raise ConfigRefused(f"the rule {name} needs {key}, which is missing", f"Give {key}", path=key)
    return RULES[name](**given)


def sites_of(path: Path, rule: Rule) -> Sites:
    """Deal the folder at `path`. Raises ConfigRefused, its `path` a field of the rule; DataRefused."""
    if isinstance(rule, Dirichlet):
        return Sites(dirichlet.deal(labels_of(path, rule.take), rule), dirichlet.roles(rule))
    hands = deals.deal(sizes_of(path), rule)
    return Sites(hands, {site: role_of(site) for site in hands})
