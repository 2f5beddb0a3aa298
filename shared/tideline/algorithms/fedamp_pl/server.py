"""FedAMP at the coordinator: a model for each site, and the mixture of them that its site begins from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from tideline.algorithms.fedamp_pl.messages import Adapted, State
from tideline.algorithms.source_free.messages import Model
from tideline.core.phase import Folded, Replies, Table, Turn
from tideline.core.record import Weights
from tideline.core.run import EMPTY, ClientId, Role
from tideline.nets import layers
from tideline.numerics.aggregation.attention import attention, typical
from tideline.numerics.aggregation.robust import squared_distances
from tideline.numerics.clustering.mixing import mixed

if TYPE_CHECKING:
    from tideline.algorithms.fedamp_pl import Config

SHOWN = 100  # sites whose attention is told to people: a round's tables hold so many squared


def of_model(h: Model, config: Config, rng: Generator) -> State:
    """Nobody has a model of its own yet."""
    return State(h.f, h.g, {}, torch.zeros(0, 0, dtype=torch.float64))


def clouds(state: State, turn: Turn[Config]) -> dict[ClientId, Model]:
    """u_i = sum_j xi_ij w_j to each target; f_S to one that has no model yet, as to all in the first round."""
    names = sorted(state.models)
    models = [state.models[k] for k in names]
    made = {k: Model(mixed(models, row), state.g) for k, row in zip(names, state.xi, strict=True)}
    none = Model(state.f, state.g)
    return {k: made.get(k, none) for k in turn.members(Role.TARGET)}


def own(state: State, turn: Turn[Config]) -> dict[ClientId, Model]:
    """w_i back to its site, to be scored; h_S to one that has none."""
    return {k: Model(state.models.get(k, state.f), state.g) for k in turn.members(Role.TARGET)}


def attend(state: State, replies: Replies[Adapted], turn: Turn[Config]) -> Folded[State]:
    """w_i of those who answered, beside the last of the others; then the attention between all of them."""
    models: dict[str, Weights] = {**state.models, **{str(k): reply.f for k, reply in replies.items()}}
    names = tuple(sorted(models))
    xi = weights([models[k] for k in names])
    values = tuple(tuple(row) for row in xi.tolist())
    tables: Mapping[str, Table] = {"attention, xi": Table(names, names, values)} if len(names) <= SHOWN else EMPTY
    return Folded(State(state.f, state.g, {k: models[k] for k in names}, xi), tables=tables)


def weights(models: list[Weights]) -> Tensor:
    """xi (N, N) for alpha = sigma / N, with which no xi_ii is below 1 / N. Models are compared by what is trained of them."""
    trained = [{name: f[name] for name in layers.parameters(f)} for f in models]
    distances = squared_distances(trained)
    sigma = typical(distances)
    return attention(distances, sigma, sigma / len(models))
