"""Which worlds a domain could be part of, guessed from its headers, names and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from tideline import nets
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import World, check_names
from tideline.learning.formats import arrays, csv_files, images, parquet
from tideline.learning.formats.classes import CLASSES, NO_LABEL, WHOLE, composed, known, read_lines
from tideline.learning.formats.surveys import Place
from tideline.learning.formats.tables import Columns

SAMPLED = 100  # images of which the size is read
OTHER = "other"  # the second class of a world if the folder names one only
MOST = 1000  # classes of a guessed world; a column with more values probably holds no labels
UNGUESSED = f"the labels have more than {MOST} different values, numbers beyond {MOST - 1}, or words that can name no class"


@dataclass(frozen=True)
class Hint:
    """A domain's own inputs, and the words for its classes: empty without labels, None for too many."""

    inputs: tuple[int, ...]
    words: frozenset[str] | None


def of_arrays(place: Place) -> Hint:
    heads = arrays.read_heads(place.path)
    shape = heads["x"].shape
    y = known(arrays.read_array(place.path, "y")) if "y" in heads else None
    words: frozenset[str] | None = frozenset()
    if y is not None and y.dtype.kind in "biuf":
        words = few("" if v < 0 else str(int(v)) for v in np.unique(y[np.isfinite(y)]))
    if len(shape) == 2:
        return Hint(shape[1:], words)
    if len(shape) not in (3, 4):
        raise DataRefused(f"a sample of x has {len(shape) - 1} dimensions", "Save features as (n, features), images as (n, H, W)")
    return Hint((shape[3] if len(shape) == 4 else 1, *shape[1:3]), words)


def of_table(columns_of: Callable[[Place], Columns], labels: Callable[[Place], Iterator[str] | None], place: Place) -> Hint:
    return Hint((len(columns_of(place).features),), few(labels(place) or ()))


def of_images(place: Place) -> Hint:
    """A folder of images has the size that is most frequent among some of them."""
    listing = images.listed(place.path)
    some = listing.files[:: max(len(listing.files) // SAMPLED, 1)]
    shapes = [shape for shape in (images.shape(place.path / name) for name in some) if shape]
    if not shapes:
        raise DataRefused("no image can be read", "Save the images as PNG, JPEG, BMP, TIFF or WebP")
    [(size, _)] = Counter(shape[1:] for shape in shapes).most_common(1)
    return Hint((max(shape[0] for shape in shapes), *size), few(listing.words or ()))


HINTS: Mapping[str, Callable[[Place], Hint]] = {
    ".npz": of_arrays,
    ".csv": partial(of_table, csv_files.columns_of, csv_files.labels),
    ".parquet": partial(of_table, parquet.columns_of, parquet.labels),
    "images": of_images,
}


def few(words: Iterable[str]) -> frozenset[str] | None:
    """The different words; None for more than MOST."""
    different: set[str] = set()
    for word in words:
        different.add(word)
        if len(different) > MOST:
            return None
    return frozenset(composed(word) for word in different) - {*NO_LABEL}


def with_names(folder: Path, world: World, names: tuple[str, ...]) -> World:
    """The world with these classes, and with a second one if there is one only. Raises DataRefused for an impossible name."""
    try:
        check_names(names, len(names))
    except ConfigRefused as error:
        raise DataRefused(f"{folder}: {error.what}", error.todo, path=str(folder)) from None
    return replace(world, classes=max(len(names), 2), class_names=names if len(names) > 1 else (*names, OTHER))


def inputs_of(hints: Iterable[Hint]) -> tuple[int, ...]:
    """The inputs of most of a folder's domains, in colour if one of them is."""
    inputs = [hint.inputs for hint in hints]
    [(most, _)] = Counter(inputs).most_common(1)
    return (3, *most[1:]) if any(each[1:] == most[1:] and each[0] == 3 for each in inputs) else most


def fitting(folder: Path, hints: Mapping[str, Hint]) -> World | None:
    """A world that fits most of a folder's domains; None if the labels do not show its classes.

    Raises DataRefused for names that no class can have.
    """
    world, path = World(inputs=inputs_of(hints.values()), classes=2, model="lenet"), folder / CLASSES
    try:
        nets.check(world)
    except ConfigRefused:
        world = replace(world, model="mlp")
    if path.exists():
        return with_names(folder, world, tuple(read_lines(path)))
    of_domains = [hint.words for hint in hints.values()]
    words = sorted(frozenset().union(*(each or () for each in of_domains)))
    if None in of_domains or len(words) > MOST:
        return None
    if not all(WHOLE.fullmatch(word) for word in words):
        return with_names(folder, world, tuple(words))
    classes = max((int(float(word)) + 1 for word in words), default=2)
    return replace(world, classes=max(classes, 2)) if classes <= MOST else None
