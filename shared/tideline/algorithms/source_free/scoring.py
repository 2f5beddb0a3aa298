"""Scores on each target's held-out rows; and the model that is the target's own stays with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Protocol, TypeVar

from torch import Tensor

from tideline.algorithms.averaging import Rounds
from tideline.algorithms.source_free.messages import Mine, Model
from tideline.algorithms.source_free.source import Whole, network
from tideline.core.phase import Phase, Plan, Turn
from tideline.core.record import Nothing, Record
from tideline.core.run import ClientId, Role
from tideline.core.settings import Settings
from tideline.core.step import Outcome, Site, Step, View
from tideline.learning.confusion import confused
from tideline.learning.evaluate import Offer, accuracy, evaluate, outputs
from tideline.learning.label_shift import label_shift

C = TypeVar("C", bound=Settings)
S = TypeVar("S")
K = TypeVar("K", bound="Kept")
M = TypeVar("M")


class Kept(Whole, Record, Protocol):
    """A memory that has a site's own model."""


def predict(order: Model, memory: M, site: Site[Settings], x: Tensor) -> Tensor:
    """Outputs of the model that was sent."""
    return outputs(network(site, order.f, order.g), x, site.device)


def to_targets(state: Whole, turn: Turn[Settings]) -> dict[ClientId, Model]:
    """The common model to every target."""
    return dict.fromkeys(turn.members(Role.TARGET), Model(state.f, state.g))


def source_only(
    offer: Offer[S, C, Model] = to_targets,  # type: ignore[assignment]
    keeps: type[M] = Mine,  # type: ignore[assignment]
) -> Phase[C, S]:
    """h_S as it came, scored once: what adaptation is compared with. keeps: the method's memory, which stays as it is."""
    return evaluate(offer, predict, takes=Model, keeps=keeps, name="source_only", metrics=("source_only",))


def score(
    offer: Offer[S, C, Model] = to_targets,  # type: ignore[assignment]
    keeps: type[K] = Mine,  # type: ignore[assignment]
) -> Phase[C, S]:
    """The model that each target would use now. It keeps that, and its owner may take it out.

    keeps: the method's memory, a record with f and g.
    """

    def run(order: Model, memory: K, site: Site[C]) -> Outcome[Nothing, K]:
        value = accuracy(predict, order, memory, site)
        mine = replace(memory, f=order.f, g=order.g)
        return Outcome(Nothing(), mine, {} if value is None else {"accuracy": value})

    return Phase("score", Step("score", run, Model, keeps, Nothing, ("accuracy",), View.HELD_OUT), ask=offer)


def confusion() -> Phase[Settings, S]:
    """Each target counts which classes its own model takes for which, once it has one."""
    return confused(nothing_to_targets, predict_own, keeps=Mine)


def dealt() -> Phase[Settings, S]:
    """Each site counts its training rows by class, a target as its own model has them."""
    return label_shift(nothing_to_all, predict_own, keeps=Mine)


def nothing_to_all(state: S, turn: Turn[Settings]) -> dict[ClientId, Nothing]:
    """A question without words."""
    return dict.fromkeys((*turn.members(Role.SOURCE), *turn.members(Role.TARGET)), Nothing())


def nothing_to_targets(state: S, turn: Turn[Settings]) -> dict[ClientId, Nothing]:
    """The same to targets alone."""
    return dict.fromkeys(turn.members(Role.TARGET), Nothing())


def predict_own(order: Nothing, memory: Mine, site: Site[Settings], x: Tensor) -> Tensor:
    """Outputs of the model that the site keeps."""
    return outputs(network(site, memory.f, memory.g), x, site.device)


def keepsakes(config: Settings, memory: Kept) -> Mapping[str, Mapping[str, Tensor]]:
    """The site's own model as one state dict, once there is one."""
    return {"model": {**memory.f, **memory.g}} if memory.f else {}


def scored(c: Rounds, rounds: Callable[[int], Phase[C, S]], grade: Phase[C, S]) -> Plan[C, S]:
    """Round 1 .. R, each followed by a scoring where one is due; the last always. Of no rounds, a scoring."""
    due = (r == c.rounds or r % c.evaluate_every == 0 for r in range(1, c.rounds + 1))
    each = ((rounds(r), grade) if now else (rounds(r),) for r, now in enumerate(due, 1))
    return tuple(chain.from_iterable(each)) or (grade,)
