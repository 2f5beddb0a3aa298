"""What a domain itself says of the world that it could be part of: its inputs, and the words for its classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tideline.core.errors import DataRefused
from tideline.learning.formats import arrays, csv_files, images, parquet
from tideline.learning.formats.arrays import Head
from tideline.learning.formats.classes import NO_LABEL, composed, known
from tideline.learning.formats.columns.proposing import FEATURE, LABEL, LEFT, SPLIT, UNIT, Block, ColumnReport, reported
from tideline.learning.formats.kinds import audio, dicom, nifti, npy
from tideline.learning.formats.kinds.folders import KINDS_OF_FILES
from tideline.learning.formats.kinds.listing import FileKind, files_in, listed
from tideline.learning.formats.surveys import Place
from tideline.learning.formats.tables import choose
from tideline.learning.formats.transforms import Transform
from tideline.learning.rows.resizing import OVERSHOOT

SAMPLED = 100  # files of which the size is read
MOST = 1000  # classes of a guessed world; a column with more values probably holds no labels
MOST_CHANNELS = 16  # of images; a longest axis that is no longer is depth
LEAST_STEPS, LEAST_IDS = 8, 16  # of what is taken for token ids


@dataclass(frozen=True)
class Hint:
    """A domain's own inputs, and the words for its classes: empty without labels, None for too many.

    vocabulary: of token ids; 0 where samples are numbers. columns: of a table.
    """

    inputs: tuple[int, ...]
    words: frozenset[str] | None
    vocabulary: int = 0
    columns: tuple[ColumnReport, ...] = ()


Streamed = Iterator[tuple[int, NDArray[np.generic]]]


def of_arrays(
    heads_of: Callable[[Path], Mapping[str, Head]],
    read: Callable[[Path, str], NDArray[np.generic]],
    streamed: Callable[[Path], Streamed],
    place: Place,
) -> Hint:
    heads = heads_of(place.path)
    y = known(read(place.path, "y")) if "y" in heads else None
    words: frozenset[str] | None = frozenset()
    if y is not None and y.dtype.kind in "biuf":
        words = few("" if v < 0 else str(int(v)) for v in np.unique(y[np.isfinite(y)]))
    shape = heads["x"].shape
    if len(shape) == 2 and (found := vocabulary(heads["x"], streamed(place.path))):
        return Hint(shape[1:], words, found)
    return Hint(inputs_of_shape(shape[1:], place.transform, streamed(place.path)), words)


def vocabulary(head: Head, parts: Streamed) -> int:
    """How many token ids rows of whole numbers use, if they look like token ids: every place has about as large ones. 0: no."""
    if head.dtype.kind not in "iu" or head.dtype.itemsize < 4 or head.shape[1] < LEAST_STEPS:
        return 0
    largest = np.zeros(head.shape[1], np.int64)
    for _, x in parts:
        if int(x.min()) < 0 or int(x.max()) > np.iinfo(np.int32).max:
            return 0
        largest = np.maximum(largest, x.max(0).astype(np.int64))
    most = int(largest.max())
    return most + 1 if most >= LEAST_IDS and np.median(largest) >= most / 2 else 0


def inputs_of_shape(shape: tuple[int, ...], transform: Transform, parts: Streamed) -> tuple[int, ...]:
    """The inputs of a world for samples of a shape: which axis has the channels, and whether there is one, is a guess."""
    if len(shape) == 2:
        return (1, *shape) if is_picture(transform, parts) else shape
    if len(shape) != 3:
        return shape
    first, *_, end = shape
    if transform.layout == "first" or (not transform.layout and end not in (1, 3) and first <= min(shape[1:])):
        return shape if first <= MOST_CHANNELS or transform.layout else (1, *shape)
    return (end, *shape[:2]) if end <= MOST_CHANNELS or transform.layout else (1, *shape)


def is_picture(transform: Transform, parts: Streamed) -> bool:
    """Whether samples (a, b) are pixels rather than channels by steps: bytes or numbers from 0 to 1."""
    _, x = next(parts)
    if transform.scale or x.dtype.kind in "biu":
        return True
    return bool(np.all((x >= -OVERSHOOT) & (x <= 1 + OVERSHOOT)))  # type: ignore[operator]


@dataclass(frozen=True)
class Tables:
    """How a kind of table is looked at."""

    names_of: Callable[[Place], list[str]]
    labels: Callable[[Place], Iterator[str] | None]
    blocks: Callable[[Place, list[str]], Iterator[Block]]


def of_table(read: Tables, place: Place) -> Hint:
    names = read.names_of(place)
    columns = choose(names, place.transform)
    uses = dict.fromkeys(names, LEFT) | dict.fromkeys(columns.features, FEATURE)
    others = ((columns.label, LABEL), (columns.held_out, SPLIT), (columns.unit, UNIT))
    uses |= {name: use for name, use in others if name is not None}
    seen = reported(read.blocks(place, names), uses)
    return Hint((len(columns.features),), few(read.labels(place) or ()), columns=seen)


def of_images(place: Place) -> Hint:
    """A folder of images has the size that is most frequent among some of them."""
    listing = images.listed(place.path)
    shapes = [shape for shape in (images.shape(place.path / name) for name in some(listing.files)) if shape]
    if not shapes:
        raise DataRefused("no image can be read", "Save the images as PNG, JPEG, BMP, TIFF or WebP")
    [(size, _)] = Counter(shape[1:] for shape in shapes).most_common(1)
    return Hint((max(shape[0] for shape in shapes), *size), few(listing.words or ()))


def some(files: tuple[str, ...]) -> tuple[str, ...]:
    return files[:: max(len(files) // SAMPLED, 1)]


def most_frequent(kind: FileKind, shapes: Iterable[tuple[int, ...] | None]) -> tuple[int, ...]:
    """The most frequent shape. Raises DataRefused where no file could be read."""
    counts = Counter(shape for shape in shapes if shape)
    if not counts:
        todo = "Look at the files, and at the extra that reads them (docs/data.md)"
        raise DataRefused(f"none of the {kind.what} can be read", todo)
    return counts.most_common(1)[0][0]


def or_none(read: Callable[[Path], tuple[int, ...]], path: Path) -> tuple[int, ...] | None:
    """What is read of a file; None for one that cannot be. Raises DataRefused for what no file can be read without."""
    try:
        return read(path)
    except DataRefused:
        raise
    except Exception:  # noqa: BLE001 - readers may raise anything on damaged files
        return None


def of_dicom(place: Place) -> Hint:
    """Folders below class folders are series; else each file is an image."""
    kind = dicom.DICOM
    deep = dicom.has_series(place.path)
    listing = listed(place.path, kind, folders=deep)
    read = series_shape if deep else slice_shape
    return Hint(most_frequent(kind, (or_none(read, place.path / name) for name in some(listing.files))), few(listing.words or ()))


def slice_shape(path: Path) -> tuple[int, ...]:
    opened = dicom.header(path, ("Rows", "Columns", "SamplesPerPixel"))
    return int(opened.get("SamplesPerPixel", 1)), int(opened.Rows), int(opened.Columns)


def series_shape(folder: Path) -> tuple[int, ...]:
    files = sorted(files_in(folder, dicom.DICOM))
    return 1, len(files), *slice_shape(folder / files[0])[1:]


def of_nifti(place: Place) -> Hint:
    listing = listed(place.path, nifti.NIFTI)
    shape = most_frequent(nifti.NIFTI, (or_none(nifti.shape_of, place.path / name) for name in some(listing.files)))
    return Hint(shape[1:] if shape[:2] == (1, 1) else shape, few(listing.words or ()))


def of_audio(place: Place) -> Hint:
    return Hint(audio.inputs_of(place.transform), few(listed(place.path, audio.AUDIO).words or ()))


OF_FILES: Mapping[str, Callable[[Place], Hint]] = {"dicom": of_dicom, "nifti": of_nifti, "audio": of_audio}
HINTS: Mapping[str, Callable[[Place], Hint]] = {
    ".npz": partial(of_arrays, arrays.read_heads, arrays.read_array, arrays.streamed),
    npy.SUFFIX: partial(of_arrays, npy.read_heads, npy.read_array, npy.streamed),
    ".csv": partial(of_table, Tables(csv_files.names_of, csv_files.labels, csv_files.blocks)),
    ".parquet": partial(of_table, Tables(parquet.names_of, parquet.labels, parquet.blocks)),
    "images": of_images,
    **{name: OF_FILES[name] for name in KINDS_OF_FILES},
}


def few(words: Iterable[str]) -> frozenset[str] | None:
    """The different words; None for more than MOST."""
    different: set[str] = set()
    for word in words:
        different.add(word)
        if len(different) > MOST:
            return None
    return frozenset(composed(word) for word in different) - {*NO_LABEL}
