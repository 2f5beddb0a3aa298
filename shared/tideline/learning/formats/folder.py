"""A site's data folder: a domain is an `.npz`, `.npy`, `.csv` or `.parquet` file, or a folder of images, scans or sounds.

The folder is read twice. The first pass takes headers, names, labels and splits, which are small, and checks everything but the
samples' values; the second takes the samples, one domain at a time, into tensors of the final size. Where these would be too much
for memory they are scratch files, and images are looked at, and then decoded when they are asked for.
"""

from __future__ import annotations

import logging
import math
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.rows import Rows, dtype_of, joined
from tideline.core.run import Role
from tideline.core.settings import nearest, parse
from tideline.core.step import Data
from tideline.learning.cache.opening import Cached, RowsCache
from tideline.learning.formats import arrays, csv_files, images, parquet
from tideline.learning.formats.classes import Classes, read_classes
from tideline.learning.formats.holdings import Holdings, Sides
from tideline.learning.formats.holdings import Rows as Numbers
from tideline.learning.formats.kinds import listing, npy
from tideline.learning.formats.kinds.folders import KINDS_OF_FILES, kind_of_folder
from tideline.learning.formats.kinds.shapes import check_values, convert
from tideline.learning.formats.memory import memory_bytes
from tideline.learning.formats.surveys import OWNERS, SHOWN, Piece, Place, Survey, at
from tideline.learning.formats.transforms import PLAIN, Transform, times
from tideline.learning.formats.units import check_one_unit, with_units
from tideline.learning.rows import scratch
from tideline.learning.rows.decoded import DecodedRows
from tideline.learning.rows.scratch import HELD, Filled

TRANSFORMS = "transforms.toml"
TABLES = (".csv", ".parquet")
CHUNK = 256  # rows converted at once: bounds the scratch memory beside the raw domain and the result
KINDS: Mapping[str, Callable[[Place, World, Role], Survey]] = {
    ".npz": arrays.survey,
    ".npy": npy.survey,
    ".csv": csv_files.survey,
    ".parquet": parquet.survey,
    "images": images.survey,
    **{name: partial(listing.survey, kind) for name, kind in KINDS_OF_FILES.items()},
}
FILES = ("images", *KINDS_OF_FILES)  # kinds of which each sample is a file of its own
TRAIN = 0  # the place of the training rows among a domain's sides
# Rows of a domain, sorted, and the tensor that has a place for each; and rows that cannot be read, with the reason.
Places = Sequence[tuple[Numbers, Tensor]]
Lost = Sequence[tuple[int, str]]
Caches = Mapping[Path, Cached]
NO_CACHES: Caches = {}
log = logging.getLogger(__name__)


def read_folder(
    path: Path | str,
    world: World,
    role: Role,
    held: int = HELD,
    names: Collection[str] | None = None,
    cache: RowsCache | None = None,
) -> Holdings:
    """Everything that a site holds for this world; a target's training labels are never loaded.

    names: of the domains that it holds; None: all of the folder. held: bytes of samples that are read into memory; of more, none
    are. cache: where samples that are not held in memory are written once; without, images stay files.

    Raises DataRefused, with `context["path"]`, for data that cannot be used. The coordinator may see its sentence; names of image
    files and contents of cells, which may be personal, are only in its `context` and in the local log.
    """
    folder = Path(path)
    try:
        surveys = survey_all(folder, world, role, names)
        check_site(folder, surveys, role)
        small = in_memory(samples(surveys), world, held)
        cached, lacking = cached_in(cache, surveys, world) if cache is not None and not small else (NO_CACHES, 0)
        check_room(folder, scratch_rows(surveys, world, role, held, cached), world)
        room = room_for(surveys, world, role, held, cached=cached)
        warn_unlabelled(folder, surveys)
        lost = [
            pour(s, world, places) if s.place.path not in cached else let_go(s, cached[s.place.path].lost)
            for s, places in zip(surveys, room.places, strict=True)
        ]
        return replace(holdings_of(folder, room, lost, role, world), uncached=lacking)
    except DataRefused as error:
        log_owners(error)
        raise


def log_owners(error: DataRefused) -> None:
    """Write the parts of a refusal that only the owner may see to the local log."""
    private = {key: error.context[key] for key in OWNERS if key in error.context}
    if private:
        log.warning("%s %s", error.what, private)


@dataclass(frozen=True)
class Room:
    """A site's samples (n, *inputs) while they are read: to train on, held out, without labels; and where each row belongs.

    asked: for each domain the sides, of these three, whose samples have no place here, as they are decoded or read from a cache
    when asked for. cached: the domains with a cache, by their places.
    """

    surveys: list[Survey]
    filled: tuple[Filled, ...]
    places: list[Places]
    asked: list[tuple[bool, ...]]
    cached: Caches


def cached_in(cache: RowsCache, surveys: list[Survey], world: World) -> tuple[Caches, int]:
    """The domains' caches, made where there is none yet; and how many samples can have none, which is in the log."""
    cached, lacking = dict[Path, Cached](), 0
    for survey in surveys:
        found = cache.of(survey, world)
        if isinstance(found, Cached):
            cached[survey.place.path] = found
        elif found:
            lacking += len(survey)
            log.warning("%s: decoded rows are not written down, so steps are slower: %s", survey.place.path, found)
    return cached, lacking


def room_for(
    surveys: list[Survey], world: World, role: Role, held: int = HELD, decoded: bool = True, cached: Caches = NO_CACHES
) -> Room:
    """Empty room for a site's training rows, held-out rows, and training rows without labels beside labelled ones.

    held: bytes in memory; of more none are. decoded: whether images may then stay files. cached: domains that need no room.
    Raises DataRefused for a full disk.
    """
    small = in_memory(samples(surveys), world, held)
    asked = [elsewhere(s, role, cached) if decoded and not small else (False,) * len(s.sides.filled) for s in surveys]
    rows = [stored(s, which) for s, which in zip(surveys, asked, strict=True)]
    sizes = [[len(own) for own in side] for side in zip(*rows, strict=True)]
    filled = tuple(scratch.room((sum(n), *world.inputs), held if small else 0, dtype_of(world)) for n in sizes)
    into = zip(*(torch.split(each.tensor, n) for each, n in zip(filled, sizes, strict=True)), strict=True)
    places: list[Places] = [tuple(zip(*each, strict=True)) for each in zip(rows, into, strict=True)]
    return Room(surveys=surveys, filled=filled, places=places, asked=asked, cached=cached)


def samples(surveys: list[Survey]) -> int:
    """How many samples of a site are read."""
    return sum(map(len, surveys)) - counted(surveys, "unscored")


def in_memory(rows: int, world: World, held: int) -> bool:
    """Whether so many samples are held in memory: if they are few, and this process may have it."""
    return size_of(rows, world) <= min(held, memory_bytes())


def size_of(rows: int, world: World) -> int:
    """Bytes of so many samples."""
    return dtype_of(world).itemsize * rows * math.prod(world.inputs)


def on_demand(survey: Survey, role: Role) -> tuple[bool, ...]:
    """Which sides of a domain can be read when asked for. A target's training images cannot if folders name their classes."""
    named = role is Role.TARGET and survey.sides.y_held is not None
    return tuple(survey.reader is not None and not (named and side == TRAIN) for side in range(len(survey.sides.filled)))


def elsewhere(survey: Survey, role: Role, cached: Caches) -> tuple[bool, ...]:
    """Which sides of a domain need no place: all that are in a cache, those that can be read when asked for."""
    return (True,) * len(survey.sides.filled) if survey.place.path in cached else on_demand(survey, role)


def stored(survey: Survey, asked: tuple[bool, ...]) -> tuple[Numbers, ...]:
    """The rows of each side that are read beforehand."""
    return tuple(rows[:0] if left else rows for rows, left in zip(survey.sides.filled, asked, strict=True))


def holdings_of(folder: Path, room: Room, lost: list[Lost], role: Role, world: World) -> Holdings:
    """The samples with their labels, without the rows that their owner lets go. `lost`: of each domain."""
    surveys = room.surveys
    gone = [left_out(s, rows) for s, rows in zip(surveys, lost, strict=True)]
    left = [without(s, rows) for s, rows in zip(surveys, gone, strict=True)]
    filled = room.filled
    if any(rows.size for rows in gone):
        check_roles(folder, left, role)
        sides_of = zip(*(stored(s, which) for s, which in zip(surveys, room.asked, strict=True)), strict=True)
        filled = tuple(
            replace(each, tensor=closed_up(each.tensor, rows, gone)) for each, rows in zip(filled, sides_of, strict=True)
        )
    train, held, bare = (side_of(side, each, left, room, world) for side, each in enumerate(filled))
    names, sides = tuple(name_of(s.place.path) for s in surveys), [s.sides for s in left]
    learnt = Data(x=train, y=join([s.y_train for s in sides]), domain=domains_of([s.train for s in sides]), domains=names)
    scored = Data(x=held, y=join([s.y_held for s in sides]), domain=domains_of([s.held for s in sides]), domains=names)
    learnt, scored = with_units(learnt, left, "train"), with_units(scored, left, "held")
    return Holdings(replace(learnt, bare=bare if len(bare) else None), scored, validation_of(left))


def validation_of(surveys: list[Survey]) -> Tensor:
    """Which of a site's training rows are to select by, (v,) int64."""
    starts = np.cumsum([0, *(len(s.sides.train) for s in surveys)])
    chosen = [start + s.sides.validation(s.place.transform.validation) for s, start in zip(surveys, starts, strict=False)]
    return torch.from_numpy(np.concatenate(chosen).astype(np.int64))


def side_of(side: int, filled: Filled, left: list[Survey], room: Room, world: World) -> Rows:
    """The rows of a side over all domains, in their order."""
    if not any(which[side] for which in room.asked):
        return filled
    several: list[Rows] = []
    start = 0
    for survey, which in zip(left, room.asked, strict=True):
        rows = survey.sides.filled[side]
        if survey.place.path in room.cached:
            several.append(room.cached[survey.place.path].rows(rows))
        elif which[side]:
            several.append(decoded(survey, rows, world))
        else:
            several.append(replace(filled, tensor=filled.tensor[start : start + len(rows)]))
            start += len(rows)
    return joined(several)


def decoded(survey: Survey, rows: Numbers, world: World) -> Rows:
    """Samples of a domain that are files, decoded when asked for. Raises DataRefused then for one that has changed since."""
    assert survey.reader is not None
    read, path = survey.reader(rows), survey.place.path

    def decode(row: int) -> Tensor:
        piece = read(row)
        with at(path):
            if piece.x is None:
                what = f"one of the {survey.what} could be read when the agent opened the folder, and can no longer be"
                raise DataRefused(what, "Leave the data as they are while a run works with them", said=piece.why)
            check_values(piece.known, world, piece.transform, row)
            return convert(piece.x, world, piece.transform)[0]

    # Where rows have labels, folders in the files' names say them.
    return DecodedRows(len(rows), world.inputs, decode, numbers=survey.sides.y_held is None, of=dtype_of(world))


def find(folder: Path) -> Mapping[str, Path]:
    """The folder's visible domains by name, in the order of their files. Raises DataRefused for none, or two of one name."""
    if not folder.exists():
        raise DataRefused(f"There is no data folder {folder}", "Create it, or correct the path", path=str(folder))
    if not folder.is_dir():
        raise DataRefused(f"{folder} is not a folder", "Name the folder that holds the site's domains", path=str(folder))
    domains: dict[str, Path] = {}
    for path in sorted(f for f in folder.iterdir() if not f.name.startswith(".") and kind_of(f)):
        name = name_of(path)
        if name in domains:
            what = f"{folder}: {domains[name].name} and {path.name} are both the domain {name}"
            raise DataRefused(what, "Rename one of them, or remove it", path=str(folder))
        domains[name] = path
    if not domains:
        what = f"{folder} holds no .npz, .npy, .csv or .parquet file, and no folder of images, DICOM, NIfTI or audio files"
        raise DataRefused(what, "Put the data of each domain into it: one file, or one folder of files", path=str(folder))
    return domains


def kind_of(path: Path) -> str:
    """The kind of domain at a path, a key of KINDS; an empty text if the path is no domain."""
    if npy.is_domain(path):
        return npy.SUFFIX
    suffix = path.suffix if path.suffix == ".npz" else path.suffix.lower()
    if suffix in (".npz", *TABLES):
        return suffix
    if not path.is_dir():
        return ""
    return "images" if images.is_domain(path) else kind_of_folder(path)


def name_of(path: Path) -> str:
    return path.stem if path.suffix == ".npz" or path.suffix.lower() in (*TABLES, npy.SUFFIX) else path.name


def survey_all(folder: Path, world: World, role: Role, names: Collection[str] | None = None) -> list[Survey]:
    """The first pass over every domain, or over the domains of these names."""
    domains = places(folder, read_classes(folder, world)).items()
    wanted = (place for name, place in domains if names is None or name in names)
    return together([KINDS[kind_of(place.path)](place, world, role) for place in wanted])


def together(surveys: list[Survey]) -> list[Survey]:
    """The domains of one site. Rows without labels stay apart if other rows have labels; if none has one all are alike."""
    judged = [s.sides for s in surveys if s.sides.y_train is not None]
    if any(len(sides.train) or len(sides.held) for sides in judged):
        return surveys
    merged = [Sides(np.union1d(s.sides.train, s.sides.bare), np.union1d(s.sides.held, s.sides.unscored)) for s in surveys]
    return [s if s.sides.y_train is None else replace(s, sides=m) for s, m in zip(surveys, merged, strict=True)]


def places(folder: Path, classes: Classes) -> Mapping[str, Place]:
    domains = find(folder)
    transforms = read_transforms(folder / TRANSFORMS, list(domains))
    return {name: Place(path, transforms.get(name, PLAIN), classes) for name, path in domains.items()}


def read_transforms(path: Path, domains: list[str]) -> Mapping[str, Transform]:
    """The transforms of the domains that `transforms.toml` names; none without such a file."""
    if not path.exists():
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataRefused(f"{path} cannot be read as TOML ({error})", "Correct the file", path=str(path)) from error
    for name in tables:
        if name not in domains:
            todo = f"Name one of: {', '.join(domains)}{nearest(name, domains)}"
            raise DataRefused(f"{path}: there is no domain {name}", todo, path=str(path))
    try:
        return {name: parse(Transform, table, name) for name, table in tables.items()}
    except ConfigRefused as error:
        raise DataRefused(f"{path}: {error.what}", error.todo, path=str(path)) from error


def check_site(folder: Path, surveys: list[Survey], role: Role) -> None:
    """Raises DataRefused if the domains, taken together, cannot be used in this role."""
    check_one_unit(folder, surveys)
    check_roles(folder, surveys, role)
    check_sides(folder, surveys)
    check_validation(folder, surveys)


def check_roles(folder: Path, surveys: list[Survey], role: Role) -> None:
    """Raises DataRefused if the labels of the whole site do not suit its role."""
    unlabelled = [s for s in surveys if s.sides.y_held is None]
    if len(unlabelled) == len(surveys):
        if role is Role.SOURCE:
            todo = "Save y; sort images into a folder for each class: DOMAIN/CLASS/image.png"
            raise DataRefused(f"{folder}: no file has labels, but the site is a source", todo, path=str(folder))
        return
    if unlabelled:
        path = unlabelled[0].place.path
        todo = "Save y in every file, or in none if the role allows"
        todo += "" if role is Role.TARGET else "; -1 stands for a label that is not known"
        raise DataRefused(f"{path} has no labels while other files have", todo, path=str(path))
    if role is not Role.TARGET:
        check_classes(folder, [s.sides for s in surveys])


def check_classes(folder: Path, sides: list[Sides]) -> None:
    """Raises DataRefused unless the site's labelled training rows are of at least two classes."""
    classes = {int(c) for each in sides if each.y_train is not None for c in np.unique(each.y_train)}
    bare = any(len(each.bare) for each in sides)
    if not classes and bare:
        todo = "Label some of them, in at least two classes, or make the site a target"
        raise DataRefused(f"{folder}: no training row has a label, though held-out ones have", todo, path=str(folder))
    if len(classes) == 1:
        what = f"{folder}: all training rows{' that have a label' * bare} are of class {classes.pop()}"
        raise DataRefused(what, "Add rows of another class; a single class cannot be learnt", path=str(folder))


def check_sides(folder: Path, surveys: list[Survey]) -> None:
    """Raises DataRefused unless the site has rows to train on and rows that are held out."""
    held, unscored, rows = counted(surveys, "held"), counted(surveys, "unscored"), sum(map(len, surveys))
    if unscored and not held:
        todo = "Label some of them, or name rows that have labels in test_idx, held_out.txt or the column of the split"
        raise DataRefused(f"{folder}: none of the {unscored} held-out samples has a label to score by", todo, path=str(folder))
    if not 0 < held < rows - unscored:
        todo = "Name some rows, not all, in test_idx, held_out.txt or the column of the split; or remove these"
        raise DataRefused(f"{folder} holds out {held} of {rows} samples", todo, path=str(folder))


def check_validation(folder: Path, surveys: list[Survey]) -> None:
    """Raises DataRefused if every row to train on is named for validation."""
    left = [len(s.sides.train) - len(s.sides.validation(s.place.transform.validation)) for s in surveys]
    if any(s.sides.chosen is not None for s in surveys) and not sum(left) + counted(surveys, "bare"):
        todo = "Name fewer in validation_idx, validation.txt or the column of the split"
        raise DataRefused(f"{folder} names all rows to train on for validation", todo, path=str(folder))


def counted(surveys: list[Survey], side: str) -> int:
    """How many rows of a site are on a side, a field of Sides."""
    return sum(len(getattr(s.sides, side)) for s in surveys)


def warn_unlabelled(folder: Path, surveys: list[Survey]) -> None:
    """Warn in the local log of rows without labels beside labelled ones: their owner may not know of them."""
    bare, unscored = counted(surveys, "bare"), counted(surveys, "unscored")
    if bare or unscored:
        text = "%s: %d training rows have no label, for methods that can use them; %d held-out rows have none and are left out"
        log.warning(text, folder, bare, unscored)


def scratch_rows(surveys: list[Survey], world: World, role: Role, held: int = HELD, cached: Caches = NO_CACHES) -> int:
    """How many samples go to a scratch file."""
    if in_memory(samples(surveys), world, held):
        return 0
    return sum(len(rows) for s in surveys for rows in stored(s, elsewhere(s, role, cached)))


def check_room(folder: Path, rows: int, world: World) -> None:
    """Raises DataRefused if so many samples of the world's size are more than a scratch file can hold."""
    size, free = size_of(rows, world), scratch.free_disk()
    if size > free:
        what = f"{folder}: {rows} samples of {times(world.inputs)} take {size / 1e9:.1f} GB, more than this machine has"
        where = f"{free / 1e9:.1f} GB are free in {tempfile.gettempdir()}"
        raise DataRefused(f"{what}: {where}", scratch.MORE_DISK, path=str(folder))


def pour(domain: Survey, world: World, places: Places) -> Lost:
    """Read one domain's samples into their places, with no raw piece left in memory. Returns the rows that cannot be read.

    Raises DataRefused for values that do not fit, and for rows that cannot be read unless the owner lets them go.
    """
    lost: list[tuple[int, str]] = []
    with at(domain.place.path):
        for piece in domain.pieces():
            if piece.x is None:
                lost.append((piece.start, piece.why))
                continue
            check_values(piece.known, world, piece.transform, piece.start)
            for rows, into in places:
                place_rows(piece, piece.x, world, rows, into)
    return let_go(domain, lost)


def let_go(domain: Survey, lost: Lost) -> Lost:
    """The rows that cannot be read, which is in the local log. Raises DataRefused unless the owner lets them go."""
    left_out(domain, lost)
    if lost:
        names = ", ".join(domain.name(row) for row, _ in lost[:SHOWN])
        text = "%s: %d of %d %s cannot be read and are left out: %s"
        log.warning(text, domain.place.path, len(lost), len(domain), domain.what, names)
    return lost


def place_rows(piece: Piece, x: NDArray[np.generic], world: World, rows: Numbers, into: Tensor) -> None:
    """Write those of `rows` that are in a piece into `into`, which has a place for each of `rows`."""
    first, end = (int(i) for i in np.searchsorted(rows, (piece.start, piece.start + len(x))))
    for i in range(first, end, CHUNK):
        at_rows = slice(i, min(i + CHUNK, end))
        into[at_rows] = convert(x[rows[at_rows] - piece.start], world, piece.transform)


def left_out(domain: Survey, lost: Lost) -> Numbers:
    """The unreadable rows that the owner lets go. Raises DataRefused if they may not go, or if a side would be empty."""
    gone = np.array([row for row, _ in lost], np.int64)
    few = any(len(rows) and np.isin(rows, gone).all() for rows in (domain.sides.train, domain.sides.held))
    if lost and (few or domain.place.transform.unreadable != "skip"):
        raise images.lost(domain, lost)
    return gone


def without(domain: Survey, gone: Numbers) -> Survey:
    of = domain.sides
    train, held = ~np.isin(of.train, gone), ~np.isin(of.held, gone)
    labels = {
        "y_train": None if of.y_train is None else of.y_train[train],
        "y_held": None if of.y_held is None else of.y_held[held],
    }
    bare, unscored = (rows[~np.isin(rows, gone)] for rows in (of.bare, of.unscored))
    left = replace(of, train=of.train[train], held=of.held[held], bare=bare, unscored=unscored, **labels)
    return replace(domain, sides=left)


def closed_up(filled: Tensor, rows: Iterable[Numbers], gone: list[Numbers]) -> Tensor:
    """The filled places, moved together in place: no second copy is made."""
    left = np.flatnonzero(np.concatenate([~np.isin(r, g) for r, g in zip(rows, gone, strict=True)]))
    for i in range(0, len(left), CHUNK):
        # Rows move forwards only, so that none is overwritten before it has moved.
        filled[i : i + CHUNK][: len(left) - i] = filled[torch.from_numpy(left[i : i + CHUNK])]
    return filled[: len(left)]


def join(labels: list[NDArray[np.int64] | None]) -> Tensor | None:
    """The labels of all domains (n,), or None if there are none."""
    known = [y for y in labels if y is not None]
    return torch.from_numpy(np.concatenate(known)) if known else None


def domains_of(rows: list[Numbers]) -> Tensor:
    """For each row the index of its domain, (n,) int64."""
    return torch.repeat_interleave(torch.arange(len(rows)), torch.tensor([len(r) for r in rows]))
