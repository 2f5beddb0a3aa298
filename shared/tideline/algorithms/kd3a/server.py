"""KD3A at the coordinator: the average of all models, weighed by what the target says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from tideline.algorithms.kd3a.client import LOCAL
from tideline.algorithms.kd3a.messages import Counted, Distilled, DistilledCounted, Lesson, State, Trained
from tideline.algorithms.source_free.messages import Model
from tideline.core.phase import MOST_VALUES, Folded, Replies, Table, Turn
from tideline.core.record import Weights
from tideline.core.run import ClientId, Role
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment.normalisation import batch_norm_distance

if TYPE_CHECKING:
    from tideline.algorithms.kd3a import KD3A


def of_model(h: Model, config: KD3A, rng: Generator) -> State:
    """Nobody has trained yet."""
    return State(h.f, h.g, {}, {}, {})


def keep(state: State, replies: Replies[Trained | Counted], turn: Turn[KD3A]) -> State:
    """w_k, for the target."""
    taught = {str(k): Model(reply.f, reply.g) for k, reply in replies.items()}
    counts = {str(k): reply.samples for k, reply in replies.items() if isinstance(reply, Counted)}
    return replace(state, taught=taught, samples=counts)


def models_to_target(state: State, turn: Turn[KD3A]) -> dict[ClientId, Lesson]:
    """w and all w_k, in the order of their sources' names, to the target."""
    sources = tuple(state.taught[k] for k in sorted(state.taught))
    order = Lesson(state.f, state.g, sources, torch.zeros(1 + len(sources), dtype=torch.float64))
    return dict.fromkeys(turn.members(Role.TARGET), order)


def average(state: State, replies: Replies[Distilled | DistilledCounted], turn: Turn[KD3A]) -> Folded[State]:
    """w <- a_T w_T + sum_k a_k w_k, what batch norm measured included."""
    ((target, reply),) = replies.items()
    a = smoothed(state.weights, given(state, target, reply), turn.config.smoothing)
    models: dict[str, Model] = {**state.taught, target: Model(reply.f, reply.g or {})}
    f = weighted_sum((a[k], models[k].f) for k in a)
    g = state.g if turn.config.heads == LOCAL else classifier(a, models)
    made = State(f, g, {}, {}, {**state.weights, **a})
    return Folded(made, tables=tables(a, reply.f, state.taught))


def classifier(a: Mapping[str, float], models: Mapping[str, Model]) -> dict[str, Tensor]:
    """The average of the classifiers that were sent, which are all of them unless the target's agent is not ours."""
    there = [k for k in a if models[k].g]
    return weighted_sum(zip(simplex([a[k] for k in there]), (models[k].g for k in there), strict=True))


def given(state: State, target: str, reply: Distilled | DistilledCounted) -> dict[str, float]:
    """The weights of this round, on the simplex, the target's first: as the target says; by counts, as the paper has it.

    By counts a_T = n_T / n, and a_k goes by n_k CF(k). Weights that are all 0, which no agent of ours sends, are equal.
    """
    names = [target, *sorted(state.taught)]
    a = dict(zip(names, simplex(reply.a.double().tolist()), strict=True))
    if not isinstance(reply, DistilledCounted):
        return a
    own = reply.samples / (reply.samples + sum(state.samples.values()))
    others = simplex([a[k] * state.samples[k] for k in names[1:]])
    return dict(zip(names, [own, *((1 - own) * each for each in others)], strict=True))


def simplex(values: list[float]) -> list[float]:
    """Numbers that are not negative, divided by their sum; equal ones where that is 0."""
    total = sum(values)
    return [value / total if total > 0 else 1 / len(values) for value in values]


def smoothed(old: Mapping[str, float], new: Mapping[str, float], share: float) -> dict[str, float]:
    """share old + (1 - share) new, over the sites of this round; a site that had no weight yet counts with its new one."""
    before = simplex([old.get(k, each) for k, each in new.items()])
    return {k: share * was + (1 - share) * each for was, (k, each) in zip(before, new.items(), strict=True)}


def tables(a: Mapping[str, float], own: Weights, taught: Mapping[str, Model]) -> dict[str, Table]:
    """What people are told: whose model weighs how much, and how far what batch norm measured lies from the target's."""
    names = tuple(sorted(a))[: MOST_VALUES // 2]
    told = {"weight of each site": Table(names, ("weight",), tuple((a[k],) for k in names))}
    sources = simplex([a[k] for k in taught])
    terms = zip(sources, (h.f for h in taught.values()), strict=True)
    distance = batch_norm_distance(own, terms)
    return told if distance is None else {**told, "batch-norm distance": Table(("distance",), ("distance",), ((distance,),))}
