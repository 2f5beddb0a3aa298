"""A site's data folder: one `.npz` file per domain, beside them, if wished, `transforms.toml`.

The folder is read twice. The first pass takes headers, labels and splits, which are small, and settles every question
but the samples' values; the second takes the samples, one domain at a time, into tensors of the final size.
"""

from __future__ import annotations

import tokenize
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tideline.core.data import Data
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role, World
from tideline.core.settings import nearest, parse
from tideline.learning.holdings import Holdings, Rows, split_at, split_rows
from tideline.learning.transforms import PLAIN, Transform, check_kind, check_values, convert

TRANSFORMS = "transforms.toml"
KEYS = ("x", "y", "test_idx")
UNKNOWN = -1  # the label of a row that has none, where no row has one
HELD = " among the held-out rows"
NUMBER = "Number the classes from 0, or ask for a world with more classes"
LEAVE = "Leave y out if the labels are not known; held-out ones are used for scoring, so they are numbered from 0"
# Rows converted at once: bounds the scratch memory beside the raw domain and the result.
CHUNK = 256
# What zipfile and NumPy's reader raise on damaged, cut or encrypted files and on headers that are no Python literal.
DAMAGE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, MemoryError, OverflowError),
    *(ValueError, TypeError, SyntaxError, tokenize.TokenError),
)


@dataclass(frozen=True)
class Head:
    """What the header of one array says."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Survey:
    """One domain before its samples are read. Labels (int64) are those of the rows beside them, or None."""

    path: Path
    transform: Transform
    train: Rows
    held: Rows
    y_train: NDArray[np.int64] | None
    y_held: NDArray[np.int64] | None


def read_folder(path: Path | str, world: World, role: Role) -> Holdings:
    """Everything that a site holds for this world; a target's training labels are dropped on the way in.

    Raises DataRefused, with `context["path"]`, for whatever cannot be used.
    """
    folder = Path(path)
    files = find(folder)
    transforms = read_transforms(folder / TRANSFORMS, [f.stem for f in files])
    surveys = [survey(f, transforms.get(f.stem, PLAIN), world, role) for f in files]
    check_roles(folder, surveys, role)
    train, held = read_samples(surveys, world)
    names = tuple(f.stem for f in files)
    return Holdings(
        Data(train, join([s.y_train for s in surveys]), owners([s.train for s in surveys]), names),
        Data(held, join([s.y_held for s in surveys]), owners([s.held for s in surveys]), names),
    )


def find(folder: Path) -> list[Path]:
    """The folder's domain files, sorted; files whose name begins with a dot are not data."""
    if not folder.exists():
        raise DataRefused(f"There is no data folder {folder}", "Make it, or correct the path", path=str(folder))
    if not folder.is_dir():
        raise DataRefused(f"{folder} is not a folder", "Name the folder that holds the .npz files", path=str(folder))
    files = sorted(f for f in folder.glob("*.npz") if not f.name.startswith("."))
    if not files:
        raise DataRefused(f"{folder} holds no .npz file", "Put one .npz file per domain into it", path=str(folder))
    return files


def read_transforms(path: Path, domains: list[str]) -> Mapping[str, Transform]:
    """The transforms of the domains that `transforms.toml` names; none if there is no such file."""
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


def survey(path: Path, transform: Transform, world: World, role: Role) -> Survey:
    """One domain's split and labels. Of a target's labels only the held-out ones are judged, and only they stay."""
    heads = read_heads(path)
    with at(path):
        check_heads(heads)
        n = heads["x"].shape[0]
        check_kind(heads["x"].shape, heads["x"].dtype, world.inputs, transform)
        train, held = split_at(n, read_array(path, "test_idx")) if "test_idx" in heads else split_rows(n)
        y = known(read_array(path, "y")) if "y" in heads else None
        y_held = None if y is None else as_labels(y[held], world.classes, HELD, NUMBER if role is Role.SOURCE else LEAVE)
        y_train = None if y is None or role is Role.TARGET else as_labels(y[train], world.classes)
    return Survey(path, transform, train, held, y_train, y_held)


def read_heads(path: Path) -> Mapping[str, Head]:
    """The headers of those of our arrays that the file has."""
    with readable(path), zipfile.ZipFile(path) as archive:
        members = set(archive.namelist())
        return {key: read_head(archive, key) for key in KEYS if f"{key}.npy" in members}


def read_head(archive: zipfile.ZipFile, key: str) -> Head:
    """The header of one array, without its values."""
    with archive.open(f"{key}.npy") as stream:
        version = np.lib.format.read_magic(stream)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = reader(stream)
        return Head(tuple(shape), dtype)


def read_array(path: Path, key: str) -> NDArray[Any]:
    """One array of the file; pickled objects are never loaded."""
    with readable(path), zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def check_heads(heads: Mapping[str, Head]) -> None:
    """Raises DataRefused for what the headers alone give away."""
    if "x" not in heads:
        raise DataRefused("there is no array x", "Save the samples under the name x")
    for key, head in heads.items():
        if head.dtype.hasobject:
            what = f"{key} is an array of Python objects, often a sign of samples of different sizes"
            raise DataRefused(what, "Give all samples of a file one size and save them as one array of numbers")
    x = heads["x"].shape
    if not x or x[0] < 2:
        raise DataRefused(f"x has {x[0] if x else 'no'} rows", "Give every domain at least 2 rows, one a sample")
    y = heads["y"].shape if "y" in heads else x[:1]
    if len(y) != 1:
        raise DataRefused(f"y has shape {y}", "Save one whole number per sample, with shape (n,)")
    if y != x[:1]:
        raise DataRefused(f"x has {x[0]} rows and y has {y[0]}", "Save one label per sample", expected=x[0], got=y[0])


def known(y: NDArray[Any]) -> NDArray[Any] | None:
    """Labels, or None where every one is -1, as people write it for what is not known."""
    return None if y.dtype.kind in "if" and np.all(y == UNKNOWN) else y


def as_labels(y: NDArray[Any], classes: int, among: str = "", todo: str = NUMBER) -> NDArray[np.int64]:
    """Labels as int64. Raises DataRefused unless they are whole numbers in [0, classes). `among`: which rows they belong to."""
    if y.dtype.kind not in "biuf" or not np.all(y == np.floor(y)):
        raise DataRefused(f"the labels in y{among} ({y.dtype}) are not whole numbers", todo)
    bad = y[(y < 0) | (y >= classes)]
    if bad.size:
        what = f"y holds the label {bad[0]:g}{among}; the world has the classes 0 to {classes - 1}"
        raise DataRefused(what, todo, got=float(bad[0]))
    return y.astype(np.int64)


def check_roles(folder: Path, surveys: list[Survey], role: Role) -> None:
    """Raises DataRefused if the labels, taken over the whole site, do not suit its role."""
    bare = [s for s in surveys if s.y_held is None]
    if len(bare) == len(surveys):
        if role is Role.SOURCE:
            raise DataRefused(f"{folder}: no file has labels, but the site is a source", "Save y", path=str(folder))
        return
    if bare:
        todo = "Save y in every file, or in none if the role allows"
        raise DataRefused(f"{bare[0].path} has no labels while other files have", todo, path=str(bare[0].path))
    seen = {int(c) for s in surveys if s.y_train is not None for c in np.unique(s.y_train)}
    if len(seen) == 1:
        what = f"{folder}: all training rows are of class {seen.pop()}"
        raise DataRefused(what, "Add rows of another class; one alone cannot be learnt", path=str(folder))


def read_samples(surveys: list[Survey], world: World) -> tuple[Tensor, Tensor]:
    """The samples of all domains (n, *inputs): training rows, held-out rows."""
    sizes = [len(s.train) for s in surveys], [len(s.held) for s in surveys]
    train, held = (torch.empty((sum(n), *world.inputs)) for n in sizes)
    places = zip(surveys, torch.split(train, sizes[0]), torch.split(held, sizes[1]), strict=True)
    for s, into_train, into_held in places:
        pour(s, world, into_train, into_held)
    return train, held


def pour(domain: Survey, world: World, train: Tensor, held: Tensor) -> None:
    """One domain's samples into their places; the raw array is gone when this returns."""
    with at(domain.path):
        x = read_array(domain.path, "x")
        check_values(x, world.inputs, domain.transform)
        for rows, into in ((domain.train, train), (domain.held, held)):
            for i in range(0, len(rows), CHUNK):
                into[i : i + CHUNK] = convert(x[rows[i : i + CHUNK]], world.inputs, domain.transform)


def join(labels: list[NDArray[np.int64] | None]) -> Tensor | None:
    """The labels of all domains (n,), or None if there are none."""
    known = [y for y in labels if y is not None]
    return torch.from_numpy(np.concatenate(known)) if known else None


def owners(rows: list[Rows]) -> Tensor:
    """For each row the index of its domain, (n,) int64."""
    return torch.repeat_interleave(torch.arange(len(rows)), torch.tensor([len(r) for r in rows]))


@contextmanager
def at(path: Path) -> Iterator[None]:
    """Refusals raised inside say which file they are about."""
    try:
        yield
    except DataRefused as error:
        if "path" in error.context:
            raise
        raise DataRefused(f"{path}: {error.what}", error.todo, **error.context, path=str(path)) from None


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever a damaged file makes the readers raise becomes a refusal."""
    try:
        yield
    except DAMAGE as error:
        what = f"{path} cannot be read as an .npz file ({type(error).__name__}: {error})"
        raise DataRefused(what, "Write the file again with numpy.savez_compressed", path=str(path)) from error
