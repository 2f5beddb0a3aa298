"""Methods with one model per client. Local: nobody sends anything; the lower reference of personalised learning.

A target has no labels, so it has no model of its own: it is left alone and reported without an accuracy; or, with `unseen`, it
is a domain that nobody trained on, and scores the others' models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Generator, Tensor

from tideline import nets
from tideline.algorithms.personal.messages import Mine, Start
from tideline.algorithms.personal.unseen import last_look, score_one
from tideline.core.algorithm import Algorithm
from tideline.core.errors import RosterRefused
from tideline.core.phase import Phase, Plan, Turn, unchanged
from tideline.core.record import Nothing
from tideline.core.run import ClientId, Roster, World
from tideline.core.settings import Plain, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import evaluate
from tideline.learning.fit import cross_entropy, fit
from tideline.learning.optimisers import OPTIMISERS, optimiser


@dataclass(frozen=True)
class LocalConfig:
    """Settings of local training."""

    rounds: int = setting(10, low=1, high=100_000, doc="exchanges, R; each site trains R x E epochs in all")
    epochs: int = setting(1, low=1, doc="epochs between two exchanges, E")
    batch: int = setting(32, low=1, doc="rows in a mini-batch")
    rate: float = setting(1e-2, low=0.0, doc="learning rate of SGD")
    momentum: float = setting(0.9, low=0.0, high=1.0, doc="momentum of SGD; fresh each exchange, as in averaging")
    weight_decay: float = setting(5e-4, low=0.0, doc="weight decay of SGD")
    evaluate_every: int = setting(1, low=1, doc="exchanges between scorings; the last is always scored")
    unseen: bool = setting(False, doc="at the end targets score every site's model, and tell the mean accuracy")
    optimiser: str = setting("sgd", choices=OPTIMISERS, doc="of training; adam has no use for momentum")
    confidence: bool = setting(False, doc="scorings tell the calibration error and confidences, too")


def prepare(config: LocalConfig, site: Site[LocalConfig]) -> Mine:
    """No model yet: the common seed comes with the first order."""
    return Mine({})


def begin(config: LocalConfig, world: World, roster: Roster, rng: Generator) -> Start:
    """One seed for all, so that sites start from common weights."""
    return Start(int(torch.randint(2**31, (), generator=rng)))


@step(metrics=("loss",))
def train(order: Start, memory: Mine, site: Site[LocalConfig]) -> Outcome[Nothing, Mine]:
    """E epochs on the site's own model. Nothing leaves."""
    c: LocalConfig = site.config
    net = nets.loaded(site.world, memory.model or initial(order, site.world), site.device)
    by = optimiser(c, net.parameters())
    loss = fit(
        net, site.data, cross_entropy, by, epochs=c.epochs, batch=c.batch, rng=site.rng, device=site.device, tick=site.tick
    )
    return Outcome(Nothing(), Mine(nets.weights_of(net)), {"loss": loss})


def initial(order: Start, world: World) -> dict[str, Tensor]:
    """The common initial weights."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(order.seed)
        return nets.weights_of(nets.build(world))


def seed_to_labelled(state: Start, turn: Turn[LocalConfig]) -> dict[ClientId, Start]:
    """The seed to all who have labels."""
    return dict.fromkeys(turn.labelled(), state)


def nothing_to_labelled(state: Start, turn: Turn[LocalConfig]) -> dict[ClientId, Nothing]:
    """Memory has the model already."""
    return dict.fromkeys(turn.labelled(), Nothing())


def predict(order: Nothing, memory: Mine, site: Site[LocalConfig], x: Tensor) -> Tensor:
    """Outputs of the site's own model."""
    return score_one(memory.model, memory, site, x)


def plan(c: LocalConfig) -> Plan[LocalConfig, Start]:
    """(train, score) x R."""
    work: Phase[LocalConfig, Start] = Phase("train", train, ask=seed_to_labelled, fold=unchanged)
    score = evaluate(nothing_to_labelled, predict, keeps=Mine, confidence=c.confidence)
    rounds = ((work, score) if r == c.rounds or r % c.evaluate_every == 0 else (work,) for r in range(1, c.rounds + 1))
    return (*chain.from_iterable(rounds), *(last_look(c.confidence) if c.unseen else ()))


def needs_labels(config: LocalConfig, world: World, roster: Roster) -> None:
    """The network fits the world, and somebody has labels."""
    nets.check(world)
    if not any(m.labelled for m in roster):
        raise RosterRefused("No member has labels, so nobody can train", "Add a source or a peer with labels", path="roster")


PRESETS: Mapping[str, Mapping[str, Plain]] = {
    "demo": {"rounds": 8, "epochs": 1, "batch": 32, "rate": 0.03},
    "tiny": {"rounds": 2, "epochs": 1, "batch": 16, "rate": 0.05},
}

local = Algorithm(
    "local",
    "Reference point: each site alone, as in the comparisons of personalised federated learning",
    "Every labelled site trains alone; nothing is shared",
    LocalConfig,
    Start,
    begin,
    plan,
    memory=Mine,
    prepare=prepare,
    fits=needs_labels,
    presets=PRESETS,
)
