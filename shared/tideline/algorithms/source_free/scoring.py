"""Scores on each target's held-out rows; and the model that is the target's own stays with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from torch import Tensor

from tideline.algorithms.source_free.messages import Mine, Model
from tideline.algorithms.source_free.source import network
from tideline.core.data import View
from tideline.core.phase import Phase, Plan, Turn
from tideline.core.record import Nothing
from tideline.core.run import ClientId, Role
from tideline.core.step import Outcome, Site, Step
from tideline.learning.confusion import confused
from tideline.learning.evaluate import accuracy, evaluate, outputs
from tideline.learning.label_shift import label_shift

Offer = Callable[[Any, Turn], Mapping[ClientId, Any]]


def predict(order: Model, memory: Any, site: Site, x: Tensor) -> Tensor:
    """Outputs of the model that was sent."""
    return outputs(network(site, order.f, order.g), x, site.device)


def to_targets(state: Model, turn: Turn) -> dict[ClientId, Model]:
    """The common model to every target."""
    return dict.fromkeys(turn.members(Role.TARGET), Model(state.f, state.g))


def source_only(offer: Offer = to_targets, keeps: type[Any] = Mine) -> Phase:
    """h_S as it came, scored once: what adaptation is compared with. keeps: the method's memory, which stays as it is."""
    return evaluate(offer, predict, takes=Model, keeps=keeps, name="source_only", metrics=("source_only",))


def score(offer: Offer = to_targets, keeps: type[Any] = Mine) -> Phase:
    """The model that each target would use now. It keeps that, and its owner may take it out.

    keeps: the method's memory, a record with f and g.
    """

    def run(order: Model, memory: Any, site: Site) -> Outcome[Nothing, Any]:
        value = accuracy(predict, order, memory, site)
        mine = replace(memory, f=order.f, g=order.g)
        return Outcome(Nothing(), mine, {} if value is None else {"accuracy": value})

    return Phase("score", Step("score", run, Model, keeps, Nothing, ("accuracy",), View.HELD_OUT), ask=offer)


def confusion() -> Phase:
    """Each target counts which classes its own model takes for which, once it has one."""
    return confused(nothing_to_targets, predict_own, keeps=Mine)


def dealt() -> Phase:
    """Each site counts its training rows by class, a target as its own model has them."""
    return label_shift(nothing_to_all, predict_own, keeps=Mine)


def nothing_to_all(state: Any, turn: Turn) -> dict[ClientId, Nothing]:
    """A question without words."""
    return dict.fromkeys((*turn.members(Role.SOURCE), *turn.members(Role.TARGET)), Nothing())


def nothing_to_targets(state: Any, turn: Turn) -> dict[ClientId, Nothing]:
    """The same to targets alone."""
    return dict.fromkeys(turn.members(Role.TARGET), Nothing())


def predict_own(order: Nothing, memory: Mine, site: Site, x: Tensor) -> Tensor:
    """Outputs of the model that the site keeps."""
    return outputs(network(site, memory.f, memory.g), x, site.device)


def keepsakes(config: Any, memory: Any) -> Mapping[str, Mapping[str, Tensor]]:
    """The site's own model as one state dict, once there is one."""
    return {"model": {**memory.f, **memory.g}} if memory.f else {}


def scored(c: Any, rounds: Callable[[int], Phase], grade: Phase) -> Plan:
    """Round 1 .. R, each followed by a scoring where one is due; the last always. Of no rounds, a scoring."""
    due = (r == c.rounds or r % c.evaluate_every == 0 for r in range(1, c.rounds + 1))
    each = ((rounds(r), grade) if now else (rounds(r),) for r, now in enumerate(due, 1))
    return tuple(chain.from_iterable(each)) or (grade,)
