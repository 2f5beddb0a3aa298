"""What was asked for: the world, the members, the waiting rules and the run itself."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NewType
from unicodedata import normalize

from tideline.core.errors import ConfigRefused
from tideline.core.settings import parse, plain, setting

ClientId = NewType("ClientId", str)
RunId = NewType("RunId", str)
OrderId = NewType("OrderId", str)
Digest = NewType("Digest", str)

EMPTY: Mapping[Any, Any] = MappingProxyType({})
# What a site is asked to hold is bounded before it makes room for it.
MOST_INPUTS, MOST_CLASSES, MOST_THREADS = 1 << 26, 1 << 20, 1024


class Role(StrEnum):
    """What a member does in a run. A target's training labels are never loaded."""

    SOURCE = "source"
    TARGET = "target"
    PEER = "peer"


@dataclass(frozen=True)
class World:
    """What all members agree on before the first round."""

    inputs: tuple[int, ...] = setting(
        (1, 28, 28), low=1, high=MOST_INPUTS, doc="shape of one sample: channels height width, or features"
    )
    classes: int = setting(10, low=2, high=MOST_CLASSES, doc="number of classes; labels are 0 .. classes - 1")
    model: str = setting("lenet", doc="name of the network")
    sizes: Mapping[str, int] = setting(EMPTY, low=1, doc="named dimensions that every message is held to, such as d")
    class_names: tuple[str, ...] = setting((), doc="names of the classes in the order of their numbers, for sites that name them")


def world_in(given: Any) -> World:
    """A world from plain data. Raises ConfigRefused, also for samples beyond all size, and names that do not fit the classes."""
    world = parse(World, given, "world")
    if any(size > MOST_INPUTS for size in accumulate(world.inputs, operator.mul)):  # ends before the product is a long number
        what = f"world.inputs is {list(world.inputs[:8])}; a sample of them has more than {MOST_INPUTS} numbers"
        raise ConfigRefused(what, "Write the shape of one sample, such as [1, 28, 28]", path="world.inputs")
    if world.class_names:
        check_names(world.class_names, world.classes)
    return world


def plain_world(world: World) -> dict[str, Any]:
    """The inverse of `world_in`. Names are left out where there are none: sites of before they could be given read it too."""
    told: dict[str, Any] = plain(world)
    return told if world.class_names else {key: value for key, value in told.items() if key != "class_names"}


def check_names(names: tuple[str, ...], classes: int) -> None:
    """Raises ConfigRefused unless there is one name for each class, each once."""
    path = "world.class_names"
    if len(names) != classes:
        raise ConfigRefused(f"There are {len(names)} names for {classes} classes", "Give one name for each class", path=path)
    alike = Counter(normalize("NFC", name.strip()) for name in names)
    twice = [name for name, count in alike.items() if count > 1 or not name or not name.isprintable()]
    if twice:
        raise ConfigRefused(f"The name {twice[0]!r} cannot name one class alone", "Give each class a name of its own", path=path)


@dataclass(frozen=True)
class Member:
    """One client of a run. `labelled`: its training rows carry labels that steps may see."""

    id: ClientId
    role: Role
    labelled: bool


Roster = tuple[Member, ...]


@dataclass(frozen=True)
class Waiting:
    """How long a round waits and for whom. None means: all that were asked."""

    target_replies: int | None = setting(None, low=1, doc="close the round as soon as this many have answered")
    min_replies: int | None = setting(
        None, low=1, doc="the quorum, the target unless said: fewer at the deadline, and the run stalls"
    )
    deadline: float = setting(86400.0, low=0.001, doc="seconds that a round may take")


@dataclass(frozen=True)
class Run:
    """One run, as it was asked for. Never changes once it has begun."""

    id: RunId
    method: str
    config: Any
    world: World
    seed: int
    contract: Digest
    waiting: Waiting = field(default_factory=Waiting)
    checkpoint_every: int = 1
    threads: int = 1
