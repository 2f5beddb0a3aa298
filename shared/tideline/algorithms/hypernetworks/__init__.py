"""What methods share whose coordinator generates each client's model by a hypernetwork: settings, messages and both halves.

Embeddings and the hypernetwork itself are never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import TypeVar

import torch
from torch import Generator, Tensor, nn

from tideline import nets
from tideline.algorithms.averaging import Training, models_in, needs_teachers, predict_by, training
from tideline.algorithms.averaging.messages import Model, Models, counted
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.phase import MOST_VALUES, Each, Folded, Phase, Replies, Table, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.run import ClientId, Roster
from tideline.core.settings import ELSEWHERE, EMPTY, nearest, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import evaluate, histograms
from tideline.learning.local_training import loss_at, train_at
from tideline.learning.private.words import NUMBER, TRAINED
from tideline.learning.scoring.telling import Histogram
from tideline.nets.layers import parameters
from tideline.numerics.aggregation import hypernetwork
from tideline.numerics.aggregation.averaging import spread, weighted_sum
from tideline.numerics.aggregation.hypernetwork import HIDDEN, LAYERS, ChunkedPull, K, LinearPull, Pulled, Shapes, total, trunk
from tideline.numerics.aggregation.server_step import Optimised
from tideline.numerics.aggregation.server_step import begin as fresh

NU = "nu"
LINEAR, CHUNKED = "linear", "chunked"
MEAN, EACH = "mean", "each"
GB, FLOAT = 1e9, 4
NAMED = 4  # names in a refusal

C = TypeVar("C", bound="Hyper")
S = TypeVar("S")
METRICS = ("first_loss", "loss", "samples")
SERVER_OPTIMISERS = ("sgd", "adam")
Gradients = Iterator[tuple[str, slice, Tensor]]


@dataclass(frozen=True)
class Hyper(Training):
    """Settings that both methods have, over those of local training."""

    server_optimiser: str = setting("adam", choices=SERVER_OPTIMISERS, doc="of the hypernetwork's parameters and embeddings")
    server_rate: float = setting(1e-3, low=0.0, sizes=ELSEWHERE, doc="its learning rate, alpha")
    server_weight_decay: float = setting(1e-5, low=0.0, sizes=ELSEWHERE, doc="its weight decay")
    server_clip: float = setting(50.0, low=1e-6, doc="largest norm of its gradient, with sgd")
    embedding_size: int = setting(
        0, low=0, high=10_000, doc="numbers of a client's embedding, e; 0: floor(1 + N / 4) of N clients"
    )
    heads: str = setting(LINEAR, choices=(LINEAR, CHUNKED), doc="a linear head for each tensor, or one for chunks of all (ours)")
    chunk: int = setting(4096, low=1, high=1 << 24, doc="numbers of a chunk, s, with chunked heads")
    head_init: str = setting(
        "default",
        choices=("default", "matched"),
        doc="linear heads as layers are drawn; or around a draw of the clients' network",
    )
    unseen: str = setting(
        MEAN, choices=(MEAN, EACH), doc="what scores a domain that no site trains on: the mean of the models, or each of them"
    )
    generate: tuple[str, ...] = setting(("*",), doc="globs of the tensors that are generated; the rest is averaged")
    memory_limit: float = setting(8.0, low=1e-6, doc="GB that hypernetwork, its gradient and moments may take; more is refused")


def generated(c: Hyper, world: World) -> Shapes:
    """The tensors that are generated: trained ones that fit a glob. Costs no memory. Raises ConfigRefused for an idle glob."""
    template = nets.template(world)
    trained = parameters(template)
    for glob in c.generate:
        if not any(fnmatchcase(name, glob) for name in trained):
            more = f" and {len(trained) - NAMED} more" if len(trained) > NAMED else ""
            todo = f"Its tensors: {', '.join(trained[:NAMED])}{more}{nearest(glob, trained)}"
            raise ConfigRefused(
                f"config.generate has {glob!r}, which no tensor of {world.model} fits", todo, path="config.generate"
            )
    chosen = [name for name in trained if any(fnmatchcase(name, glob) for glob in c.generate)]
    if not chosen:
        raise ConfigRefused(
            "config.generate is empty, so nothing would be generated", "Leave it out: all is", path="config.generate"
        )
    return {name: template[name].shape for name in chosen}


def numbers(c: Hyper, world: World) -> int:
    """How many numbers the hypernetwork's heads have: 51 for each that linear ones generate."""
    P = total(generated(c, world))
    s = min(c.chunk, P)  # never more than there are to generate
    return (HIDDEN + 1) * P if c.heads == LINEAR else (HIDDEN + 1) * s + -(-P // s) * K + HIDDEN * (HIDDEN + K + 1)


def check(c: Hyper, world: World, roster: Roster) -> None:
    """Network and world fit, a client can teach, the hypernetwork is within its limit. Raises ConfigRefused, RosterRefused."""
    nets.check(world)
    check_memory(c, world, needs_teachers(c, roster))
    if c.heads == CHUNKED and c.head_init != "default":
        what = f"config.head_init is {c.head_init}, which is of linear heads, but config.heads is chunked"
        raise ConfigRefused(what, "Leave one of the two out", path="config.head_init")


def check_initial_weights(c: Hyper, world: World, roster: Roster) -> None:
    """As `check`, for initial weights, around which matched heads begin: linear ones. Raises ConfigRefused too."""
    check(c, world, roster)
    if c.heads == CHUNKED:
        what = "config.heads is chunked, and chunked heads cannot generate weights that are brought"
        raise ConfigRefused(what, "Use linear heads, or leave weights out", path="config.heads")


def check_memory(c: Hyper, world: World, N: int) -> None:
    """Raises ConfigRefused, with the figure, for a hypernetwork of N clients that would be too large."""
    P, made = total(generated(c, world)), numbers(c, world)
    e = c.embedding_size or 1 + N // 4
    made += (N + HIDDEN) * e + (LAYERS - 1) * HIDDEN**2
    times = 4 if c.server_optimiser == "adam" else 3  # parameters, gradient, and the optimiser's moments
    if c.heads == CHUNKED:
        times += N  # whose gradients of chunked heads are held side by side
    needs = times * FLOAT * made / GB
    if needs > c.memory_limit:
        raise ConfigRefused(
            f"Generating {P:,} numbers of {world.model} takes a hypernetwork of {made:,}: {needs:.3g} GB with its gradient and"
            f" moments, and config.memory_limit is {c.memory_limit:g}",
            "Generate less of it, such as generate: ['classifier.*'], set heads: chunked, or raise memory_limit",
            path="config.memory_limit",
        )


def learners(c: Hyper, roster: Roster) -> tuple[str, ...]:
    """Who trains, sorted: the clients that have an embedding."""
    return tuple(sorted(m.id for m in roster if m.labelled and m.role in c.roles))


@record
class Update:
    """Up: what local training added to it, Delta_i."""

    delta: Weights = field(
        "like model",
        Exposure.WEIGHTS,
        difference=True,
        private=TRAINED,
        doc="the model after local training less the one before",
    )


@record
class Counted(Update):
    """Up, where counts weigh what is averaged: Delta_i and n_i."""

    samples: int = field("", Exposure.COUNT, low=1, private=NUMBER, doc="labelled training rows at the site")


@record
class State:
    """What the coordinator knows: the hypernetwork with its optimiser's memory, and what is averaged beside it."""

    theta: Weights = field(doc="parameters by name, and nu (N, e), a row for each of `clients`")
    m: Weights = field(doc="first moments of theta")
    v: Weights = field(doc="second moments of theta; none with SGD")
    steps: int = field(doc="optimiser steps done")
    rest: Weights = field(doc="tensors that are not generated, buffers among them: their mean")
    clients: tuple[str, ...] = field(doc="who has an embedding, sorted")


# At a site


@step(metrics=METRICS, spends=training, by_unit=True)
def train(order: Model, memory: Nothing, site: Site[Hyper]) -> Outcome[Update, Nothing]:
    """E local epochs from phi_i; Delta_i."""
    delta, metrics = trained(order, site)
    return Outcome(Update(delta), memory, metrics)


train_counted = counted(train, Counted)


def trained(order: Model, site: Site[Hyper], steps: int = 0) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Delta_i, and the metrics: the loss of the first batch, which is phi_i's own, and the mean of the last epoch."""
    c, first = site.config, list[float]()
    net, labels = nets.loaded(site.world, order.model, site.device), loss_at(site)

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value = labels(net, x, y)
        if not first and not site.private:
            first.append(float(value.detach()))
        return value

    last = train_at(site, net, loss, epochs=c.epochs, batch=c.batch, steps=steps)
    delta = {name: w - order.model[name] for name, w in nets.weights_of(net).items()}
    return delta, {"first_loss": first[0] if first else last, "loss": last, "samples": len(site.data)}


# At the coordinator: a hypernetwork's beginning, the models that it generates, and what replies come to


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
    linear, chunk = c.heads == LINEAR, min(c.chunk, total(shapes))
    heads = hypernetwork.begin_heads(shapes, rng) if linear else hypernetwork.begin_chunked(shapes, chunk, rng)
    theta = hypernetwork.begin_trunk(e, rng) | heads
    if matched:
        theta = hypernetwork.match_heads(theta, trunk(theta, nu), {name: model[name] for name in shapes})
    begun = fresh({**theta, NU: nu}, c.server_optimiser)
    rest = {name: w for name, w in model.items() if name not in shapes}
    return State(theta=begun.theta, m=begun.m, v=begun.v, steps=begun.steps, rest=rest, clients=clients)


def phi(state: State, turn: Turn[Hyper], client: str) -> dict[str, Tensor]:
    return model_of(turn.config, turn.world, state, client)


def model_of(c: Hyper, world: World, state: State, client: str) -> dict[str, Tensor]:
    """phi_i = h(nu_i; theta) with the rest: a whole state dict of the client's network; empty for a site that does not train."""
    if client not in state.clients:
        return {}
    # A copy of the row: how a tensor lies in memory changes the last digits of what is made of it.
    row = state.theta[NU][state.clients.index(client)].clone()
    made = hypernetwork.generate if c.heads == LINEAR else hypernetwork.generate_chunked
    return {**made(state.theta, trunk(state.theta, row), generated(c, world)), **state.rest}


DIFFERS = (
    "It is the mean of the sites' models, for domains that no site trains on; the accuracies of labelled sites are of their own"
)


def to_learners(state: State, turn: Turn[Hyper]) -> Each[Model]:
    return Each(map(ClientId, state.clients), lambda client: Model(phi(state, turn, client)))


def common(c: Hyper, world: World, state: State) -> dict[str, Tensor]:
    """The mean of the sites' models, for domains without an embedding: with linear heads h at the mean of the trunk's outputs."""
    return weighted_sum((1 / len(state.clients), model_of(c, world, state, client)) for client in state.clients)


def to_be_scored(state: State, turn: Turn[Hyper]) -> Each[Models]:
    """phi_i to client i; to every other member, such as a domain that no site trains on, their mean, or the models of all."""

    @cache
    def others() -> Models:
        if turn.config.unseen == MEAN:
            return Models((common(turn.config, turn.world, state),))
        return Models(tuple(phi(state, turn, each) for each in state.clients))

    def made(client: ClientId) -> Models:
        return Models((phi(state, turn, client),)) if client in state.clients else others()

    return Each(turn.members(), made)


def pulled(state: State, clients: Sequence[str], deltas: Sequence[Weights], turn: Turn[Hyper]) -> Pulled:
    """What the deltas of these clients come to."""
    nu = state.theta[NU][[state.clients.index(client) for client in clients]]
    f, shapes = trunk(state.theta, nu), generated(turn.config, turn.world)
    kind = LinearPull if turn.config.heads == LINEAR else ChunkedPull
    return hypernetwork.pull(state.theta, nu, kind.of(state.theta, f, deltas, shapes))


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


def scoring(hyper: Callable[[S], State], confidence: bool) -> Phase[C, S]:
    """A phase that scores each site's held-out rows by the models that it is sent; its accuracy is their mean.

    So id is the mean over clients of their own models' accuracies. ood, of a domain that no site trained on, is that of the mean
    model, or, with `unseen: each`, the mean of all models' accuracies.
    hyper(state): the hypernetwork in the method's state.
    """

    def ask(state: S, turn: Turn[C]) -> Each[Models]:
        return to_be_scored(hyper(state), turn)

    def fold(state: S, replies: Replies[Histogram], turn: Turn[C]) -> Folded[S]:
        return graded(state, replies, turn, hyper(state))

    score: Phase[C, S] = evaluate(ask, predict_by, takes=Models, confidence=confidence, each=models_in)
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
