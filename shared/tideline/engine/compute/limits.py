"""What a site's owner holds a step to, beside the contract: how many rows it is made of, and how far it moves brought weights."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from tideline.archive.digests import digest_of
from tideline.archive.writer import file_of
from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused, DataRefused, PolicyRefused
from tideline.core.privacy import Exposure
from tideline.core.record import Record, leaves
from tideline.core.run import Digest, Role
from tideline.core.settings import Settings, Sizes, marks_in, plain
from tideline.core.step import AnyStep
from tideline.engine.model.brief import Brief
from tideline.engine.ports.site import Limits
from tideline.engine.site.admission import ASK, numbers_in
from tideline.learning.frozen import base_in
from tideline.learning.packages import CARRIED, file_in_package

R = TypeVar("R", bound=Record)
QUIET = (Exposure.METRIC, Exposure.COUNT)  # what a site that is only scored tells


def tells(step: AnyStep | None, role: Role) -> bool:
    """Whether an answer tells more than scores. At the join, of sites that are there to teach."""
    if step is None:
        return role is not Role.TARGET
    return any(leaf.exposure not in QUIET for leaf in leaves(step.gives))


def check_rows(limits: Limits, config: Settings, rows: int, telling: bool = True, protected: int | None = None) -> None:
    """Raises PolicyRefused for answers that would be made of too few rows, or of too many for the delta of the site's budget.

    rows: to train on, with labels and without. telling: whether the answer tells more than scores. protected: what the budget
    counts, units of several rows among it; None: rows.
    """
    if limits.delta * (rows if protected is None else protected) >= 1:  # how many there are is nobody's business
        what = "The site's budget has a delta of more than one over its rows, which would protect none of them"
        raise PolicyRefused(what, "Ask the site's owner to lower it: [privacy] delta", rules=["[privacy] delta"])
    for words, rule in too_few(limits, sized(config), rows) if telling else ():
        raise PolicyRefused(f"The owner of this site does not allow it: {words}", ASK.format(rules=rule), rules=[rule])


@dataclass(frozen=True)
class Sized:
    """A setting that sizes a site's training: its path, its value, what it sizes, and the value of the one that it goes with."""

    path: str
    value: float
    sizes: Sizes
    beside: float
    of: str


def sized(config: Settings) -> list[Sized]:
    """The settings of a method that its declarations mark; one that is not set, or no number, sizes nothing."""
    values = dict(numbers_in(plain(config)))
    return [
        Sized(path=path, value=values[path], sizes=mark.sizes, beside=values.get(mark.of, 0.0), of=mark.of)
        for path, mark in marks_in(type(config))
        if path in values
    ]


def too_few(limits: Limits, settings: Sequence[Sized], rows: int) -> Iterator[tuple[str, str]]:
    """What is made of too few rows, in words, each with the line of the policy that says so."""
    if rows < limits.rows:
        yield f"it has fewer than {limits.rows} training rows for the run", "[least] rows"
    for each in settings:
        if each.sizes is Sizes.BATCH and limits.share < 1.0 and limits.share * rows < each.value:
            words = f"config.{each.path} of {each.value:g} is more than {limits.share:.0%} of its training rows"
            yield words, "[bounds] batch_share"
        seen = each.value * each.beside
        if each.sizes is Sizes.STEPS and 0 < seen < limits.rows:
            yield f"config.{each.path} x config.{each.of} is {seen:g} rows an answer, fewer than {limits.rows}", "[least] rows"
        if each.sizes is Sizes.ROWS and each.value < limits.rows:
            yield f"config.{each.path} is {each.value:g} rows, fewer than {limits.rows}", "[least] rows"
    yield from forgetting(limits, settings)


def forgetting(limits: Limits, settings: Sequence[Sized]) -> Iterator[tuple[str, str]]:
    """Steps that undo those before them: then an answer is made of the last mini-batch, and that has as few rows as two.

    A step leaves 1 - rate x pulls of what those before it made, so that an answer is of some 1 / (rate x pulls) mini-batches.
    """
    pulls = [each for each in settings if each.sizes is Sizes.PULL and each.value * each.beside > 0]
    for rate in dict.fromkeys(each.of for each in pulls):
        own = [each for each in pulls if each.of == rate]
        share = sum(each.value * each.beside for each in own)
        if limits.rows > 1 and share * limits.rows > 1.0:
            names = " + ".join(each.path for each in own)
            names = f"({names})" if len(own) > 1 else f"config.{names}"
            what = f"config.{rate} x {names} is {share:g}: an answer would be made of its last mini-batches"
            yield f"{what}, fewer than {limits.rows}", "[least] rows"


def check_base(limits: Limits, brief: Brief) -> None:
    """Raises PolicyRefused for frozen weights that no package brings that is installed here."""
    if limits.own_base and brief.base not in installed(json.dumps(plain_world(brief.world), sort_keys=True)):
        what = f"weights that a user brings ({brief.base}), which are those of no package that is installed here"
        rule = "[runs] weights and digests"
        raise PolicyRefused(f"The owner of this site does not allow it: {what}", ASK.format(rules=rule), rules=[rule])


@lru_cache(maxsize=8)
def installed(text: str) -> frozenset[Digest]:
    """The files of frozen weights that a world's network has by packages that are installed here. text: the world, as JSON."""
    world = world_in(json.loads(text))
    return frozenset(
        digest for name, each in CARRIED.items() if each.network == world.model for digest in digests_of(world, name)
    )


def digests_of(world: World, package: str) -> Iterator[Digest]:
    try:
        yield digest_of(file_of(base_in(world, file_in_package(package)), {}))
    except (ConfigRefused, DataRefused):  # it is not installed here, or has not what the world freezes
        return


def clipped(reply: R, message: Record, longest: float) -> R:
    """A reply whose weights lie no farther than so much, in Euclidean length, from those that the message brought.

    Of each weights of the reply all floating-point tensors are one vector; those of the message with the same names and shapes
    are its origin. Weights that the message has not are left as they are.
    """
    origins = list(weights_in(message))
    changed = {}
    for name, own in named_weights(reply):
        origin = next((each for each in origins if alike(own, each)), None)
        if origin is not None and (moved := moved_within(own, origin, longest)) is not None:
            changed[name] = moved
    return replace(reply, **changed) if changed else reply


def named_weights(value: Record) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
    """The fields of a record that are weights."""
    for each in fields(value):
        found: Any = getattr(value, each.name)
        if isinstance(found, Mapping) and found and all(isinstance(one, Tensor) for one in found.values()):
            yield each.name, found


def weights_in(value: Record) -> Iterator[Mapping[str, Tensor]]:
    return (found for _, found in named_weights(value))


def alike(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(one[name].shape == other[name].shape for name in one)


def moved_within(own: Mapping[str, Tensor], origin: Mapping[str, Tensor], longest: float) -> dict[str, Tensor] | None:
    """The weights, on the way from their origin no farther than so much; None where they are there already."""
    floating = [name for name, each in own.items() if each.is_floating_point()]
    length = math.sqrt(math.fsum(float((own[n].double() - origin[n].double()).square().sum()) for n in floating))
    if length <= longest:
        return None
    share = longest / length
    return {n: torch.lerp(origin[n].to(own[n]), own[n], share) if n in floating else own[n] for n in own}
