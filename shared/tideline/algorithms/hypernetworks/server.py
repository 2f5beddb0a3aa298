"""The coordinator's half: a hypernetwork's beginning, the models that it generates, and what replies come to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Generator, Tensor

from tideline import nets
from tideline.algorithms.averaging import models_in, predict_by
from tideline.algorithms.averaging.messages import Model, Models
from tideline.algorithms.hypernetworks import LINEAR, Hyper, State, chunk_of, generated, learners
from tideline.core.phase import MOST_VALUES, Each, Folded, Phase, Replies, Table, Turn
from tideline.core.record import Weights
from tideline.core.run import EMPTY, ClientId, Roster, World
from tideline.learning.evaluate import Histogram, Offer, evaluate, histograms
from tideline.numerics.aggregation.averaging import spread
from tideline.numerics.aggregation.hypernetwork import (
    ChunkedPull,
    LinearPull,
    Pulled,
    begin_chunked,
    begin_heads,
    begin_trunk,
    generate,
    generate_chunked,
    match_heads,
    pull,
    total,
    trunk,
)
from tideline.numerics.aggregation.server_step import Optimised
from tideline.numerics.aggregation.server_step import begin as fresh

C = TypeVar("C", bound=Hyper)
S = TypeVar("S")
NU = "nu"
Gradients = Iterator[tuple[str, slice, Tensor]]


def begin(c: Hyper, world: World, roster: Roster, rng: Generator) -> State:
    """A hypernetwork at random, embeddings standard normal; with matched heads around a draw of the client's network."""
    drawn = nets.weights_of(nets.build(world))
    return first(c, world, roster, rng, drawn, matched=c.head_init == "matched")


def begin_from(c: Hyper, world: World, roster: Roster, rng: Generator, weights: Weights) -> State:
    """Matched heads around initial weights."""
    return first(c, world, roster, rng, weights, matched=True)


def first(c: Hyper, world: World, roster: Roster, rng: Generator, model: Weights, *, matched: bool) -> State:
    """The first state; `model` gives the rest, and what matched heads generate."""
    shapes, clients = generated(c, world), learners(c, roster)
    e = c.embedding_size or 1 + len(clients) // 4
    nu = torch.randn(len(clients), e, generator=rng)
    heads = begin_heads(shapes, rng) if c.heads == LINEAR else begin_chunked(shapes, chunk_of(c, total(shapes)), rng)
    theta = begin_trunk(e, rng) | heads
    if matched:
        theta = match_heads(theta, trunk(theta, nu), {name: model[name] for name in shapes})
    begun = fresh({**theta, NU: nu}, c.server_optimiser)
    rest = {name: w for name, w in model.items() if name not in shapes}
    return State(begun.theta, begun.m, begun.v, begun.steps, rest, clients)


def phi(state: State, turn: Turn[Hyper], client: str) -> dict[str, Tensor]:
    """phi_i = h(nu_i; theta) with the rest: a whole state dict of the client's network."""
    # A copy of the row: how a tensor lies in memory changes the last digits of what is made of it.
    c, row = turn.config, state.theta[NU][state.clients.index(client)].clone()
    made = generate if c.heads == LINEAR else generate_chunked
    return {**made(state.theta, trunk(state.theta, row), generated(c, turn.world)), **state.rest}


def to_learners(state: State, turn: Turn[Hyper]) -> Each[Model]:
    return Each(map(ClientId, state.clients), lambda client: Model(phi(state, turn, client)))


def to_be_scored(state: State, turn: Turn[Hyper]) -> Each[Models]:
    """phi_i to client i; to every other member, such as a domain that no site trains on, the models of all clients."""

    def made(client: ClientId) -> Models:
        whose = (client,) if client in state.clients else state.clients
        return Models(tuple(phi(state, turn, each) for each in whose))

    return Each(turn.members(), made)


def pulled(state: State, clients: Sequence[str], deltas: Sequence[Weights], turn: Turn[Hyper]) -> Pulled:
    """What the deltas of these clients come to."""
    nu = state.theta[NU][[state.clients.index(client) for client in clients]]
    f, shapes = trunk(state.theta, nu), generated(turn.config, turn.world)
    kind = LinearPull if turn.config.heads == LINEAR else ChunkedPull
    return pull(state.theta, nu, kind.of(state.theta, f, deltas, shapes))


def gradients(found: Pulled, weights: Tensor) -> Gradients:
    """sum_i w_i g_i of the heads and the trunk."""
    yield from found.heads.gradients(weights)
    for name, each in found.trunk.items():
        yield name, slice(None), torch.tensordot(weights.to(each.dtype), each, 1)


def rows_of_nu(state: State, clients: Sequence[str], found: Pulled, weights: Tensor) -> Gradients:
    """w_i g_i of each client's own row; zero where a client did not answer."""
    whole = torch.zeros_like(state.theta[NU])
    whole[[state.clients.index(client) for client in clients]] = weights.to(whole.dtype)[:, None] * found.nu
    yield NU, slice(None), whole


def optimised(state: State) -> Optimised:
    return Optimised(state.theta, state.m, state.v, state.steps)


def moved(rest: Weights, steps: Iterable[tuple[float, Weights]]) -> dict[str, Tensor]:
    """rest + sum_i p_i Delta_i of (p_i, Delta_i); whole numbers stay."""
    made = {name: w.clone() for name, w in rest.items()}
    for p, delta in steps if made else ():
        for name, w in made.items():
            if w.is_floating_point():
                w.add_(delta[name], alpha=p)
    return made


def embeddings(hyper: State, room: int) -> Mapping[str, Table]:
    """Each client's embedding, for admins: nothing where there is no room for so many numbers."""
    nu = hyper.theta[NU]
    if nu.numel() > room:
        return EMPTY
    columns = tuple(f"nu {i + 1}" for i in range(nu.shape[1]))
    return {"embeddings of the clients": Table(hyper.clients, columns, tuple(map(tuple, nu.double().tolist())), admins=True)}


def scoring(offer: Offer[S, C, Models], hyper: Callable[[S], State], confidence: bool) -> Phase[C, S]:
    """A phase that scores each site's held-out rows by the models that it is sent; its accuracy is their mean.

    So id is the mean over clients of their own models' accuracies, and ood, of a domain that no site trained on, the mean of all.
    hyper(state): the hypernetwork in the method's state.
    """

    def fold(state: S, replies: Replies[Histogram], turn: Turn[C]) -> Folded[S]:
        return graded(state, replies, turn, hyper(state))

    score: Phase[C, S] = evaluate(offer, predict_by, takes=Models, confidence=confidence, each=models_in)
    return replace(score, fold=fold)


def graded(state: S, replies: Replies[Histogram], turn: Turn[Hyper], hyper: State) -> Folded[S]:
    """The state as it is; for the result the spread of the clients' models, and confidences where sites tell them."""
    apart = spread(phi(hyper, turn, client) for client in hyper.clients)
    names = [name for name in apart if hyper.rest.get(name) is None]
    table = Table(tuple(names), ("standard deviation",), tuple((apart[name],) for name in names))
    seen = histograms(state, replies, turn) if turn.config.confidence else state
    tables: Mapping[str, Table] = {"spread of the clients' models": table, **(seen.tables if isinstance(seen, Folded) else {})}
    return Folded(
        state,
        tables={**tables, **embeddings(hyper, MOST_VALUES - sum(len(each.rows) * len(each.columns) for each in tables.values()))},
    )
