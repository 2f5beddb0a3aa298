"""IFCA at the coordinator: k models, each the mean of what those made of it who chose it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from tideline.algorithms.ifca_pl.messages import Chosen, Models, State
from tideline.algorithms.source_free import source
from tideline.algorithms.source_free.messages import Model, Taught
from tideline.core.phase import Folded, Replies, Turn
from tideline.core.record import Weights
from tideline.core.run import EMPTY, ClientId, Role, Roster, World
from tideline.nets import layers
from tideline.numerics.aggregation.averaging import weighted_sum

if TYPE_CHECKING:
    from tideline.algorithms.ifca_pl import Config


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> State:
    """A network at random, which the sources train; the k models are made of what they send."""
    h = source.drawn(world)
    return State(h.f, h.g, (), {})


def begin_with(config: Config, world: World, roster: Roster, rng: Generator, h: Weights) -> State:
    """A source model that was brought."""
    return of_model(source.parts(h), config, rng)


def take_source(state: State, replies: Replies[Taught], turn: Turn[Config]) -> State:
    """h_S."""
    return of_model(source.mean_of(replies), turn.config, turn.rng)


def of_model(h: Model, config: Config, rng: Generator) -> State:
    """k models about f_S; nobody has chosen yet."""
    return State(h.f, h.g, tuple(scattered(h.f, config.noise, rng) for _ in range(config.k)), {})


def scattered(f: Weights, noise: float, rng: Generator) -> dict[str, Tensor]:
    """f + N(0, s^2), s = noise times the standard deviation of each tensor that is trained; what batch norm measures stays."""
    made, trained = dict(f), layers.parameters(f)
    for name in sorted(trained):
        w = f[name]
        s = noise * float(w.double().std(correction=0))
        made[name] = w + s * torch.randn(w.shape, generator=rng, dtype=w.dtype)
    return made


def all_models(state: State, turn: Turn[Config]) -> dict[ClientId, Models]:
    """The k models to every target."""
    first, *others = state.models
    return dict.fromkeys(turn.members(Role.TARGET), Models(first, tuple(others), state.g))


def own(state: State, turn: Turn[Config]) -> dict[ClientId, Model]:
    """The model that it chose last, as it is now, to every target; h_S to one that has not chosen."""
    made = [Model(f, state.g) for f in state.models]
    none = Model(state.f, state.g)
    return {k: made[state.chosen[k]] if k in state.chosen else none for k in turn.members(Role.TARGET)}


def fold(state: State, replies: Replies[Chosen], turn: Turn[Config]) -> Folded[State]:
    """theta_j: the plain mean of the replies that chose it, unchanged where none did. People are told who chose which, if that
    changed.
    """
    now: dict[str, int] = {k: place(reply.choice) for k, reply in replies.items()}
    models = tuple(mean_of(f, [k for k in replies if now[k] == j], replies) for j, f in enumerate(state.models))
    chosen = dict(sorted({**state.chosen, **now}.items()))
    names = (tuple(ClientId(k) for k in chosen if chosen[k] == j) for j in range(len(models)))
    groups = {f"model {j}": members for j, members in enumerate(names, 1)} if chosen != state.chosen else EMPTY
    return Folded(replace(state, models=models, chosen=chosen), groups=groups)


def place(choice: Tensor) -> int:
    """Where a choice (k,) is largest, the first of equals: a place that exists, whatever a site says."""
    return int(choice.double().argmax())


def mean_of(f: Weights, members: list[ClientId], replies: Replies[Chosen]) -> Weights:
    """The mean over members, each counting alike; f where there are none."""
    return weighted_sum((1 / len(members), replies[k].f) for k in members) if members else f
