"""pFedHN (Shamsian, Navon, Fetaya, Chechik: Personalized Federated Learning using Hypernetworks, ICML 2021).

The coordinator generates each client's model from the client's embedding. A step takes one client: it trains from its model, and
what that added to it is the hypernetwork's gradient. Nothing is averaged, and clients are not weighed against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Generator

from tideline.algorithms import hypernetworks
from tideline.algorithms.averaging import scored, training
from tideline.algorithms.averaging.messages import Model
from tideline.algorithms.hypernetworks import METRICS, Hyper, trained
from tideline.algorithms.hypernetworks import State as Hypernetwork
from tideline.core.algorithm import Algorithm, InitialWeights, RunModel, SiteModels
from tideline.core.asked.private import Charge, Privacy
from tideline.core.asked.world import World
from tideline.core.phase import Phase, Plan, Replies, Turn
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import BATCH, ELSEWHERE, EPOCHS, RATE, ROUNDS, Plain, pull, setting, steps
from tideline.core.step import Outcome, Site, step
from tideline.learning.private.words import TRAINED
from tideline.numerics.aggregation.server_step import clipping, step_


@dataclass(frozen=True)
class Config(Hyper):
    """Settings of pFedHN."""

    rounds: int = setting(
        5000, low=0, high=100_000, sizes=ROUNDS, doc="steps of the coordinator, of one client each; N are a pass over all"
    )
    batches: int = setting(50, low=0, sizes=steps("batch"), doc="local mini-batches a step; 0: whole epochs")
    epochs: int = setting(2, low=1, sizes=EPOCHS, doc="local epochs a step, where batches is 0")
    batch: int = setting(64, low=1, sizes=BATCH, doc="rows in a mini-batch")
    rate: float = setting(5e-3, low=0.0, sizes=RATE, doc="learning rate of local training")
    weight_decay: float = setting(5e-5, low=0.0, sizes=pull("rate"), doc="weight decay of local training")
    clip_gradient: float = setting(50.0, low=0.0, doc="longest gradient of a mini-batch; longer ones are shortened; 0: none is")
    server_optimiser: str = setting(
        "sgd", choices=hypernetworks.SERVER_OPTIMISERS, doc="of the hypernetwork's parameters and embeddings"
    )
    server_rate: float = setting(1e-2, low=0.0, sizes=ELSEWHERE, doc="its learning rate")
    server_momentum: float = setting(0.9, low=0.0, high=1.0, doc="its momentum; adam has no use for it")
    server_weight_decay: float = setting(1e-3, low=0.0, sizes=ELSEWHERE, doc="its weight decay")
    server_clip: float = setting(50.0, low=1e-6, doc="largest norm of its gradient")


@record
class Shared:
    """Up, where one client is asked at a time: Delta_i. A share of it reaches the next one with what is not generated."""

    delta: Weights = field(
        "like model",
        Exposure.WEIGHTS,
        audience=TO_BOTH,
        difference=True,
        private=TRAINED,
        doc="the model after local training less the one before; a share of what is not generated reaches the next site",
    )


@record
class State:
    """What the coordinator knows."""

    hyper: Hypernetwork = field(doc="the hypernetwork, and what is averaged beside it")
    queue: tuple[str, ...] = field(doc="clients whose turn comes in this pass, the next one first")


def begin(c: Config, world: World, roster: Roster, rng: Generator) -> State:
    """A hypernetwork at random, and the order of the first pass."""
    return queued(hypernetworks.begin(c, world, roster, rng), rng)


def begin_from(c: Config, world: World, roster: Roster, rng: Generator, weights: Weights) -> State:
    return queued(hypernetworks.begin_from(c, world, roster, rng, weights), rng)


def queued(hyper: Hypernetwork, rng: Generator) -> State:
    return State(hyper, shuffled(hyper.clients, rng))


def shuffled(clients: Sequence[str], rng: Generator) -> tuple[str, ...]:
    return tuple(clients[i] for i in torch.randperm(len(clients), generator=rng).tolist())


def spends(config: Config, privacy: Privacy) -> tuple[Charge, ...]:
    """So many steps, or those of E epochs."""
    if not config.batches:
        return training(config, privacy)
    return (Charge(privacy.noise, privacy.rate, config.batches),) if privacy.noise else ()


@step(metrics=METRICS, spends=spends)
def train_alone(order: Model, memory: Nothing, site: Site[Config]) -> Outcome[Shared, Nothing]:
    """So many mini-batches, or E epochs, from phi_i, gradients cut to a norm; Delta_i."""
    delta, metrics = trained(order, site, site.config.batches)
    return Outcome(Shared(delta), memory, metrics)


def to_next(state: State, turn: Turn[Config]) -> dict[ClientId, Model]:
    """phi_i to the one whose turn it is."""
    client = ClientId(state.queue[0])
    return {client: Model(hypernetworks.phi(state.hyper, turn, client))}


def descend(state: State, replies: Replies[Shared], turn: Turn[Config]) -> State:
    """One step on J_i^T (phi_i - phi~_i), its norm clipped; of the rest a share, so that a pass is a mean. Consumes the state.

    Where the client did not answer, and the run goes on without it, its turn is over.
    """
    queue = state.queue[1:] or shuffled(state.hyper.clients, turn.rng)
    if not replies:
        return State(state.hyper, queue)
    c, (client, reply) = turn.config, next(iter(replies.items()))
    found = hypernetworks.pulled(state.hyper, (client,), (reply.delta,), turn)
    one = torch.ones(1, dtype=torch.float64)
    w = one * clipping(found.gram, one, c.server_clip)
    after = step_(
        hypernetworks.optimised(state.hyper),
        chain(hypernetworks.gradients(found, w), hypernetworks.rows_of_nu(state.hyper, (client,), found, w)),
        optimiser=c.server_optimiser,
        rate=c.server_rate,
        weight_decay=c.server_weight_decay,
        momentum=c.server_momentum,
    )
    rest = hypernetworks.moved(state.hyper.rest, [(1 / len(state.hyper.clients), reply.delta)])
    return State(replace(state.hyper, theta=after.theta, steps=after.steps, rest=rest), queue)


def plan(c: Config) -> Plan[Config, State]:
    """(step, score every so often) x R."""
    work = Phase("train", train_alone, ask=to_next, fold=descend, floor=0)
    score: Phase[Config, State] = hypernetworks.scoring(lambda state: state.hyper, c.confidence)
    return scored(c, (work,), score)


CLAIMS = (
    "Embeddings and the hypernetwork stay at the coordinator. A site is sent a model, and sends what its training added to it.",
    "One site is asked at a time, so that no sum over sites could take the place of its answer.",
    "What is not generated, such as batch norm's statistics, moves by a share of one site's change, and goes to the next site.",
    "A site that is only scored gets their mean, and so learns what steps between scorings changed; with unseen: each, all.",
    "Not claimed: that models tell nothing about rows. They are of the kind that averaging sends.",
)
LOCAL: dict[str, Plain] = {"batches": 0, "optimiser": "adam", "rate": 1e-3, "clip_gradient": 0.0}
COMPARED: dict[str, Plain] = {**LOCAL, "server_optimiser": "adam", "server_clip": 50.0}
PASSES: dict[str, Plain] = {"rounds": 600, "evaluate_every": 3, "unseen": "each"}  # 200 passes over three sites

pfedhn: Algorithm[Config, State, Nothing] = Algorithm(
    name="pfedhn",
    paper="Shamsian, Navon, Fetaya, Chechik: Personalized Federated Learning using Hypernetworks, 2021",
    summary="A hypernetwork generates each site's model, and learns from one site at a time",
    config=Config,
    state=State,
    begin=begin,
    plan=plan,
    fits=hypernetworks.check,
    presets={
        "pacs": {**COMPARED, **PASSES, "server_rate": 1e-2, "server_weight_decay": 1e-3, "weight_decay": 1e-5},
        "office_home": {**COMPARED, **PASSES, "server_rate": 1e-3, "server_weight_decay": 1e-4, "weight_decay": 1e-4},
        "vlcs": {**COMPARED, **PASSES, "server_rate": 1e-3, "server_weight_decay": 1e-4, "weight_decay": 1e-4},
        "demo": {**COMPARED, "rounds": 20, "evaluate_every": 5, "epochs": 1, "head_init": "matched", "server_rate": 3e-3},
        "tiny": {"rounds": 4, "evaluate_every": 2, "batches": 3, "batch": 16},
    },
    cast=(Role.SOURCE, Role.SOURCE, Role.TARGET),
    claims=CLAIMS,
    initial_weights=InitialWeights(begin_from, hypernetworks.check_initial_weights),
    admins=True,
    privately=("a step of config.batches mini-batches is as many steps, each on rows that are drawn by privacy.rate",),
    result=(
        RunModel(
            lambda config, world, state: hypernetworks.common(config, world, state.hyper),
            differs=lambda config: hypernetworks.DIFFERS,
        ),
        SiteModels(
            known=lambda config, world, state, site: hypernetworks.model_of(config, world, state.hyper, site),
            roles=(Role.SOURCE, Role.PEER),
        ),
    ),
)
