"""Which worlds a domain could be part of, told from its headers, names and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tideline import nets
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import World, check_names
from tideline.learning.formats import arrays, columns, csv_files, images, parquet
from tideline.learning.formats.classes import CLASSES, WHOLE, composed, known, read_lines
from tideline.learning.formats.surveys import Place

LOOKED_AT = 100  # images of which the size is read
OTHER = "other"  # where one class alone is named: a world has two
MOST = 1000  # classes of a world that is told; more are as well a column that holds no labels
UNGUESSED = f"the labels have more than {MOST} different values, numbers beyond {MOST - 1}, or words that can name no class"


@dataclass(frozen=True)
class Hint:
    """The inputs that a domain has by itself, and the words for its classes: none where it has no labels, None where too many."""

    inputs: tuple[int, ...]
    words: frozenset[str] | None


def of_arrays(place: Place) -> Hint:
    """An .npz file."""
    heads = arrays.read_heads(place.path)
    arrays.check_heads(heads)
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


def of_csv(place: Place) -> Hint:
    """A .csv file."""
    names = csv_files.header(place)
    chosen = columns.choose(names, place.transform)
    return Hint((len(chosen.features),), few(csv_files.words(place, names, chosen.label)) if chosen.label else frozenset())


def of_parquet(place: Place) -> Hint:
    """A .parquet file."""
    chosen = parquet.header(place)
    return Hint((len(chosen.features),), few(parquet.words(place, chosen.label)) if chosen.label else frozenset())


def of_images(place: Place) -> Hint:
    """A folder of images; the size that most of some have."""
    found = images.listed(place.path)
    some = found.files[:: max(len(found.files) // LOOKED_AT, 1)]
    seen = [shape for shape in (images.shape(place.path / name) for name in some) if shape]
    if not seen:
        raise DataRefused("no image can be read", "Save the images as PNG, JPEG, BMP, TIFF or WebP")
    [(size, _)] = Counter(shape[1:] for shape in seen).most_common(1)
    return Hint((max(shape[0] for shape in seen), *size), few(found.words or ()))


HINTS = {".npz": of_arrays, ".csv": of_csv, ".parquet": of_parquet, "images": of_images}


def few(words: Iterable[str]) -> frozenset[str] | None:
    """The different words; None for very many."""
    found: set[str] = set()
    for word in words:
        found.add(word)
        if len(found) > MOST:
            return None
    return frozenset(composed(word) for word in found) - {"", "-1", "-1.0"}


def with_names(folder: Path, world: World, names: tuple[str, ...]) -> World:
    """A world of these classes; one alone is given another beside it. Raises DataRefused for what cannot be a name."""
    try:
        check_names(names, len(names))
    except ConfigRefused as error:
        raise DataRefused(f"{folder}: {error.what}", error.todo, path=str(folder)) from None
    return replace(world, classes=max(len(names), 2), class_names=names if len(names) > 1 else (*names, OTHER))


def model_for(inputs: tuple[int, ...]) -> str:
    """A network that takes inputs of this shape."""
    try:
        nets.check(World(inputs=inputs))
    except ConfigRefused:
        return "mlp"
    return "lenet"


def inputs_of(hints: Iterable[Hint]) -> tuple[int, ...]:
    """The inputs that most of a folder's domains have, in colour if one of them is."""
    inputs = [hint.inputs for hint in hints]
    [(most, _)] = Counter(inputs).most_common(1)
    return (3, *most[1:]) if any(each[1:] == most[1:] and each[0] == 3 for each in inputs) else most


def fitting(folder: Path, hints: Mapping[str, Hint]) -> World | None:
    """A world that fits most of a folder's domains; None where the labels do not tell its classes.

    Raises DataRefused for names that no class can have.
    """
    inputs = inputs_of(hints.values())
    world, path = World(inputs=inputs, classes=2, model=model_for(inputs)), folder / CLASSES
    if path.exists():
        return with_names(folder, world, tuple(read_lines(path)))
    found = [hint.words for hint in hints.values()]
    words = sorted(frozenset().union(*(each or () for each in found)))
    if None in found or len(words) > MOST:
        return None
    if not all(WHOLE.fullmatch(word) for word in words):
        return with_names(folder, world, tuple(words))
    classes = max((int(float(word)) + 1 for word in words), default=2)
    return replace(world, classes=max(classes, 2)) if classes <= MOST else None
