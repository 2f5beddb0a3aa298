"""The world that sites fit: inputs and classes as their first rows, labels and names of classes say them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tideline.core.asked.world import World, world_in
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role
from tideline.core.settings import Plain
from tideline.learning.formats.images import pixels
from tideline.learning.formats.inspection import inspect
from tideline.learning.formats.transforms import times
from tideline.learning.rows.dataset import Dataset, DatasetRows, counted
from tideline.learning.sites.sides import ANY, arrays_in, side_of
from tideline.learning.sites.site import NAMES, Site

T = TypeVar("T")
MOST = 1000  # classes that are found by labels; more are probably no classes


@dataclass(frozen=True)
class Seen:
    """What one site says: the shape of a sample, the number of its classes as far as its labels tell, and their names."""

    inputs: tuple[int, ...]
    classes: int | None
    names: tuple[str, ...]


def inferred(given: Mapping[str, Plain], sites: Mapping[str, Site]) -> tuple[dict[str, Plain], tuple[str, ...]]:
    """A world with the inputs and classes that it lacks, and how they were found, in sentences.

    Raises ConfigRefused, with two names, where sites differ; DataRefused, with the site's name, for rows that cannot be read.
    """
    world, notes = dict(given), list[str]()
    if "columns" in world:
        world |= {"inputs": list(World.unfolded(world, "world")["inputs"])} if "inputs" not in world else {}
    if "inputs" in world and "classes" in world:
        return world, ()
    seen = {name: seen_at(name, site, "classes" not in world) for name, site in sites.items()}
    if "inputs" not in world:
        inputs = alike({name: each.inputs for name, each in seen.items()}, "samples", times, "inputs")
        world["inputs"] = list(inputs)
        notes.append(f"world.inputs is {list(inputs)}, as the sites' first rows are")
    if "classes" in world:
        return world, tuple(notes)
    named = {name: each.names for name, each in seen.items() if each.names}
    if named or "class_names" in world:
        said = cast("list[str] | None", world.get("class_names"))
        names = list(said or alike(named, "class names", ", ".join, "class_names"))
        world |= {"classes": len(names), "class_names": names}
        notes.append(f"world.classes is {world['classes']}, as the classes are named")
        return world, tuple(notes)
    known = [each.classes for each in seen.values() if each.classes is not None]
    if not known:
        raise ConfigRefused(
            "world.classes is missing, and no site has labels", "Say it: world={'classes': 10}", path="world.classes"
        )
    world["classes"] = max(*known, 2)
    notes.append(f"world.classes is {world['classes']}, the largest label plus 1")
    return world, tuple(notes)


def alike(said: Mapping[str, T], named: str, words: Callable[[T], str], key: str) -> T:
    """What all sites say. Raises ConfigRefused with the first two that differ."""
    (first, value), *others = said.items()
    for name, other in others:
        if other != value:
            what = f"The sites' {named} differ: {first} has {words(value)}, {name} has {words(other)}"
            todo = f"Give alike ones, or say which the run is of: world={{'{key}': [...]}}"
            raise ConfigRefused(what, todo, path=f"world.{key}")
    return value


def seen_at(name: str, site: Site, classes: bool) -> Seen:
    """What a site says, in its name. classes: whether labels are read."""
    try:
        return seen(site, classes)
    except (DataRefused, ConfigRefused) as error:
        raise type(error)(f"{name}: {error.what}", error.todo, **{**error.context, "site": name}) from error


def seen(site: Site, classes: bool) -> Seen:
    """Raises DataRefused, ConfigRefused."""
    if site.folder is not None:
        found = inspect(site.folder, None, Role(site.role))
        if found.world is None:
            what = f"{site.folder}: {found.unguessed or 'no world fits'}"
            raise ConfigRefused(what, "Say world.inputs and world.classes", path="world")
        world = world_in(found.world)
        known = any(domain.labelled for domain in found.domains)
        return Seen(world.inputs, world.classes if known else None, world.class_names)
    inputs = shape_of(site.train)
    return Seen(inputs, largest(site, inputs) if classes and not site.names else None, site.names)


def shape_of(given: object) -> tuple[int, ...]:
    """Of one sample. Raises DataRefused for what gives none."""
    arrays = arrays_in(given)
    if arrays is not None:
        shape = tuple(int(size) for size in cast("Tensor", arrays[0]).shape[1:])
    else:
        side_of(given, World(), NAMES["train"])
        dataset = cast("Dataset", given)
        counted(dataset, NAMES["train"])
        x = DatasetRows(dataset, (), NAMES["train"]).given(0)[0]
        shape = shape_of_sample(x)
        if not shape and not isinstance(x, (Tensor, np.ndarray)):
            what = f"row 0 of {NAMES['train']}: x is of the type {type(x).__name__}"
            raise DataRefused(what, "Let the dataset give (x, y) with x a tensor, an array or a Pillow image", row=0)
    if not shape:
        what = f"row 0 of {NAMES['train']}: x is a single number"
        raise DataRefused(what, "Give x a shape: (1,) if it is one number", row=0)
    return shape


def shape_of_sample(x: object) -> tuple[int, ...]:
    image = pixels(x)
    if image is not None:
        return (image.shape[2] if image.ndim == 3 else 1, *image.shape[:2])
    return tuple(x.shape) if isinstance(x, (Tensor, np.ndarray)) else ()


def largest(site: Site, inputs: tuple[int, ...]) -> int | None:
    """The largest label that may be read, plus 1; None where there is none. A target's training labels are not read."""
    if site.labels is False:
        return None
    world = World(inputs=inputs, classes=ANY)
    given = (
        {"test": site.test}
        if site.role is Role.TARGET
        else {"train": site.train, "validation": site.validation, "test": site.test}
    )
    found = [-1]
    for name, each in given.items():
        if each is not None:
            side = side_of(each, world, NAMES[name])
            y: NDArray[np.int64] = side.labels(np.arange(len(side)))
            found.append(int(y.max()))
    if max(found) >= MOST:
        raise DataRefused(f"a label is beyond {MOST - 1}, and is probably no class", "Say the number of classes: world.classes")
    return max(found) + 1 if max(found) >= 0 else None
