"""The world: what all members of a run agree on before its first round."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any
from unicodedata import normalize

from tideline.core.asked.normalise import NO_SCALING, Normalise, Place, Scaling
from tideline.core.errors import ConfigRefused
from tideline.core.rows import AXES, MOST_AXES
from tideline.core.settings import EMPTY, Plain, parse, plain, setting
from tideline.core.tables.columns import Columns, check_columns, unfolded_columns

# What a site is asked to hold is bounded before it makes room for it.
MOST_INPUTS, MOST_CLASSES = 1 << 26, 1 << 20
MOST_TOKENS = 1 << 22  # of a vocabulary
ALL, HEAD = ("all",), ("head",)  # what of a network trains; else patterns of its tensors' names
MOST_PATTERNS, LONGEST_PATTERN = 1000, 1000
TRAINS = "Write trains: all, trains: head, or patterns of names, such as trains: ['classifier.*'] (docs/networks.md)"


@dataclass(frozen=True)
class Network:
    """A network with options of its own."""

    name: str = setting(doc="name of the network")
    options: Mapping[str, Plain] = setting(EMPTY, doc="options of the network")


class Kind(StrEnum):
    """What the numbers of a row are, by their type. INT64: token ids, whole numbers below the world's vocabulary."""

    FLOAT32 = "float32"
    INT64 = "int64"


@dataclass(frozen=True)
class World:
    """What all members agree on before the first round. normalise: None, where a run is stored or sent, says none."""

    inputs: tuple[int, ...] = setting(
        (1, 28, 28),
        low=1,
        high=MOST_INPUTS,
        doc="shape of one sample, 1 to 5 sizes: features; channels steps; channels height width; channels depth height width",
    )
    classes: int = setting(10, low=2, high=MOST_CLASSES, doc="number of classes; labels are 0 .. classes - 1")
    model: str = setting("lenet", doc="name of the network")
    sizes: Mapping[str, int] = setting(EMPTY, low=1, doc="named dimensions that every message is held to, such as d")
    class_names: tuple[str, ...] = setting((), doc="names of the classes in the order of their numbers, for sites that name them")
    options: Mapping[str, Plain] = setting(EMPTY, doc="options of the network, as `model: {name: ..., options: ...}` says them")
    trains: tuple[str, ...] = setting(ALL, doc="what of the network trains: all, head, or a list of patterns of names")
    normalise: Normalise | None = setting(None, doc="what rows are normalised by: none, shared, site, site_whiten, or constants")
    columns: Columns = setting((), doc="columns of tables, by name: number, or a list of categories; `inputs` follow from them")
    dtype: Kind = setting(Kind.FLOAT32, doc="what rows hold: float32, numbers; int64, token ids, with a vocabulary")
    vocabulary: int = setting(0, low=0, high=MOST_TOKENS, doc="of token ids: how many there are; ids are 0 .. vocabulary - 1")

    @property
    def fills(self) -> bool:
        """Whether missing cells are filled by medians, which are found in the run."""
        return any(column.fills for column in self.columns)

    @property
    def tokens(self) -> bool:
        """Whether rows are token ids, not numbers."""
        return self.dtype is Kind.INT64

    @property
    def scaling(self) -> Normalise:
        """What rows are normalised by."""
        return self.normalise or NO_SCALING

    @property
    def frozen(self) -> bool:
        """Whether a part of the network stays as the run's weights have it."""
        return self.trains != ALL

    def __post_init__(self) -> None:
        """Lists in options become tuples, so that equal worlds are equal wherever they were read."""
        if any(isinstance(value, list) for value in self.options.values()):
            object.__setattr__(self, "options", {name: frozen(value) for name, value in self.options.items()})

    @classmethod
    def unfolded(cls, given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        """A world as people write it, its network as a name or as `{name: ..., options: ...}`, with a field for each."""
        if isinstance(trains := given.get("trains"), str):
            given = {**given, "trains": (trains,)}
        if isinstance(kind := given.get("normalise"), str):
            given = {**given, "normalise": {"kind": kind}}
        given = unfolded_columns(given, where)
        network = given.get("model")
        if not isinstance(network, Mapping):
            return given
        chosen = parse(Network, network, f"{where}.model" if where else "model")
        return {**given, "model": chosen.name, "options": chosen.options}


@dataclass(frozen=True)
class HeadWorld(World):
    """What methods see of a world whose encoder is frozen: rows are its features (d,), and the network is the head alone."""

    whole: World = field(default_factory=World)


def world_in(given: Mapping[str, Plain]) -> World:
    """A world from plain data. Raises ConfigRefused, also for samples beyond all size, and names that do not fit the classes."""
    return checked_world(parse(World, given, "world"))


def checked_world(world: World) -> World:
    """The same world. Raises ConfigRefused for samples beyond all size, names that do not fit, and patterns that are none."""
    check_trains(world.trains)
    if not 1 <= len(world.inputs) <= MOST_AXES:
        what = f"world.inputs has {len(world.inputs)} sizes; a sample has 1 to {MOST_AXES}"
        raise ConfigRefused(what, "Write the shape of one sample, such as [1, 28, 28]", path="world.inputs")
    check_tokens(world)
    if any(size > MOST_INPUTS for size in accumulate(world.inputs, operator.mul)):  # ends before the product is a long number
        what = f"world.inputs is {list(world.inputs[:8])}; a sample of them has more than {MOST_INPUTS} numbers"
        raise ConfigRefused(what, "Write the shape of one sample, such as [1, 28, 28]", path="world.inputs")
    if world.class_names:
        check_names(world.class_names, world.classes)
    if world.columns:
        check_columns(world.columns, world.inputs)
    if world.normalise is not None:
        check_normalise(world, world.normalise)
    return world


def plain_world(world: World) -> dict[str, Plain]:
    """The inverse of `world_in`, without class names, columns, options and tokens where there are none, without `trains` where
    all does, and without `normalise` where it is not said.
    """
    bare = plain(world)
    made = {name: bare[name] for name in ("inputs", "classes", "model", "sizes")}
    made |= {"class_names": bare["class_names"]} if world.class_names else {}
    made |= {"trains": "head" if world.trains == HEAD else list(world.trains)} if world.frozen else {}
    made |= {"normalise": world.normalise.plain} if world.normalise is not None else {}
    made |= {"columns": [column.plain for column in world.columns]} if world.columns else {}
    made |= {"dtype": world.dtype.value, "vocabulary": world.vocabulary} if world.tokens else {}
    return {**made, "model": {"name": world.model, "options": plain(world.options)}} if world.options else made


def check_trains(trains: tuple[str, ...]) -> None:
    """Raises ConfigRefused for no patterns, an empty one, and more or longer ones than any network needs."""
    if not trains:
        raise ConfigRefused("world.trains is an empty list, so nothing would train", TRAINS, path="world.trains")
    if any(not pattern.strip() for pattern in trains):
        raise ConfigRefused("world.trains has an empty pattern, which no name matches", TRAINS, path="world.trains")
    if len(trains) > MOST_PATTERNS or max(map(len, trains)) > LONGEST_PATTERN:
        what = f"world.trains has more than {MOST_PATTERNS} patterns, or one of more than {LONGEST_PATTERN} characters"
        raise ConfigRefused(what, TRAINS, path="world.trains")


def check_tokens(world: World) -> None:
    """Raises ConfigRefused for token ids without a vocabulary, and for a vocabulary without token ids."""
    path = "world.vocabulary"
    if world.tokens and not world.vocabulary:
        raise ConfigRefused(
            "world.dtype is int64, and world.vocabulary is missing", "Say how many token ids there are", path=path
        )
    if world.tokens and world.columns:
        what = "world.columns are of tables, and world.dtype is int64, whose rows are token ids"
        raise ConfigRefused(what, "Leave out one of them", path="world.columns")
    if world.vocabulary and not world.tokens:
        what = f"world.vocabulary is {world.vocabulary}, and world.dtype is {world.dtype}, whose rows are no token ids"
        raise ConfigRefused(what, "Write dtype: int64, or leave vocabulary out", path=path)


def check_normalise(world: World, by: Normalise) -> None:
    """Raises ConfigRefused for what the world's rows cannot be normalised by, as far as their shape tells."""
    path, images = "world.normalise", len(world.inputs) > 1 and by.at is Place.INPUTS
    if world.tokens and by.at is Place.INPUTS and by.kind is not Scaling.NONE:
        what = f"world.normalise is {by.kind}, and rows are token ids, which are names and no amounts"
        raise ConfigRefused(what, "Write normalise: none, or leave it out", path=path)
    if by.at is Place.FEATURES and not world.frozen:
        what = "world.normalise is at features, and the whole network trains, so that rows have no features of their own"
        raise ConfigRefused(what, "Write at: inputs; or freeze the encoder: trains: head, with weights", path=path)
    if by.kind is Scaling.SITE_WHITEN and images:
        what = f"world.normalise is site_whiten, which is for vectors, and the rows are {AXES[len(world.inputs)]}"
        raise ConfigRefused(what, "Write normalise: site, or whiten the features of a frozen encoder: at: features", path=path)
    if by.kind is Scaling.SITE_WHITEN and by.at is Place.INPUTS and any(column.coded for column in world.columns):
        what = "world.normalise is site_whiten, which mixes all inputs, and some are numbers of categories"
        raise ConfigRefused(what, "Write normalise: site, or have the categories as: one_hot", path=path)
    if by.kind is Scaling.IMAGENET and (by.at is Place.FEATURES or len(world.inputs) != 3 or world.inputs[0] != 3):
        what = f"world.normalise is imagenet, which is for images of 3 channels; rows are {list(world.inputs)}"
        raise ConfigRefused(what, "Write inputs: [3, height, width], or give mean and std of your own", path=path)
    if by.kind is Scaling.GIVEN or by.mean or by.std:
        check_constants(world, by)


def check_constants(world: World, by: Normalise) -> None:
    """Raises ConfigRefused unless there are a mean and a spread above 0 for each channel or number."""
    if by.kind is not Scaling.GIVEN:
        what = f"world.normalise is {by.kind}, and has constants beside"
        raise ConfigRefused(what, "Write mean and std alone, or leave both out", path="world.normalise")
    wanted = world.inputs[0] if by.at is Place.INPUTS else len(by.mean)  # how many features there are, the network tells
    if len(by.mean) != wanted or len(by.std) != wanted or not by.mean:
        what = f"world.normalise has {len(by.mean)} means and {len(by.std)} spreads for {wanted} channels or numbers of a row"
        raise ConfigRefused(what, "Give one of each: mean: [...], std: [...]", path="world.normalise")
    if not all(std > 0 for std in by.std):
        what = f"world.normalise.std has {min(by.std):g}; a spread is above 0"
        raise ConfigRefused(what, "Write 1 for what is constant", path="world.normalise.std")


def frozen(value: Plain) -> Plain:
    """A value whose lists, and theirs, are tuples."""
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value


def check_names(names: tuple[str, ...], classes: int) -> None:
    """Raises ConfigRefused unless there is one name for each class, each once."""
    path = "world.class_names"
    if len(names) != classes:
        raise ConfigRefused(f"There are {len(names)} names for {classes} classes", "Give one name for each class", path=path)
    alike = Counter(normalize("NFC", name.strip()) for name in names)
    twice = [name for name, count in alike.items() if count > 1 or not name or not name.isprintable()]
    if twice:
        raise ConfigRefused(f"The name {twice[0]!r} cannot name one class alone", "Give each class a name of its own", path=path)
