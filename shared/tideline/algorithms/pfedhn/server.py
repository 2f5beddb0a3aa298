"""pFedHN at the coordinator: whose turn it is, and a step on what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Generator

from tideline.algorithms.hypernetworks import server
from tideline.algorithms.hypernetworks.messages import Model, Models, Shared
from tideline.algorithms.pfedhn.messages import State
from tideline.core.phase import Each, Folded, Replies, Turn
from tideline.core.record import Weights
from tideline.core.run import ClientId, Roster, World
from tideline.learning.evaluate import Histogram
from tideline.numerics.aggregation.server_step import clipping, step_

if TYPE_CHECKING:
    from tideline.algorithms.pfedhn import Config


def begin(c: Config, world: World, roster: Roster, rng: Generator) -> State:
    """A hypernetwork at random, and the order of the first pass."""
    hyper = server.begin(c, world, roster, rng)
    return State(hyper, shuffled(hyper.clients, rng))


def begin_from(c: Config, world: World, roster: Roster, rng: Generator, weights: Weights) -> State:
    """Around weights that were brought."""
    hyper = server.begin_from(c, world, roster, rng, weights)
    return State(hyper, shuffled(hyper.clients, rng))


def shuffled(clients: Sequence[str], rng: Generator) -> tuple[str, ...]:
    """Every client once."""
    return tuple(clients[i] for i in torch.randperm(len(clients), generator=rng).tolist())


def to_next(state: State, turn: Turn[Config]) -> dict[ClientId, Model]:
    """phi_i to the one whose turn it is."""
    client = ClientId(state.queue[0])
    return {client: Model(server.phi(state.hyper, turn, client))}


def descend(state: State, replies: Replies[Shared], turn: Turn[Config]) -> State:
    """One step on J_i^T (phi_i - phi~_i), its norm clipped; of the rest a share, so that a pass is a mean. Consumes the state.

    Where the client did not answer, and the run goes on without it, its turn is over.
    """
    queue = state.queue[1:] or shuffled(state.hyper.clients, turn.rng)
    if not replies:
        return State(state.hyper, queue)
    c, (client, reply) = turn.config, next(iter(replies.items()))
    found = server.pulled(state.hyper, (client,), (reply.delta,), turn)
    one = torch.ones(1, dtype=torch.float64)
    w = one * clipping(found.gram, one, c.server_clip)
    after = step_(
        *(server.optimised(state.hyper), chain(server.gradients(found, w), server.rows_of_nu(state.hyper, (client,), found, w))),
        optimiser=c.server_optimiser,
        rate=c.server_rate,
        weight_decay=c.server_weight_decay,
        momentum=c.server_momentum,
    )
    rest = server.moved(state.hyper.rest, [(1 / len(state.hyper.clients), reply.delta)])
    return State(replace(state.hyper, theta=after.theta, steps=after.steps, rest=rest), queue)


def to_be_scored(state: State, turn: Turn[Config]) -> Each[Models]:
    """As in the family."""
    return server.to_be_scored(state.hyper, turn)


def grade(state: State, replies: Replies[Histogram], turn: Turn[Config]) -> Folded[State]:
    """The state as it is, and what a scoring tells people."""
    return server.graded(state, replies, turn, state.hyper)
