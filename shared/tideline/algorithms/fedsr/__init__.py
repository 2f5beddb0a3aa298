"""FedSR: sites learn one encoder whose representations are simple, so that it holds in domains that nobody trained on.

Nguyen, Torr, Lim: FedSR: A Simple and Effective Domain Generalization Method for Federated Learning, NeurIPS 2022. A row's
representation is a distribution; one term keeps it short (L2R), the other near a reference of its class (CMI).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional

from tideline import nets
from tideline.algorithms.averaging import PRESETS, Training, learners, needs_teachers, scored
from tideline.algorithms.averaging.messages import Model, State
from tideline.algorithms.fedsr.client import predict, prepare, train
from tideline.algorithms.fedsr.messages import Mine, Update
from tideline.core.algorithm import Algorithm
from tideline.core.phase import Phase, Plan, Replies, Turn, to, to_all
from tideline.core.run import Roster, World
from tideline.core.settings import Plain, setting
from tideline.learning.evaluate import evaluate
from tideline.nets import probabilistic
from tideline.numerics.aggregation.averaging import weighted_sum


@dataclass(frozen=True)
class FedSR(Training):
    """Settings of FedSR."""

    a_l2r: float = setting(1e-2, low=0.0, doc="weight of the representation's length, alpha_L2R")
    a_cmi: float = setting(5e-4, low=0.0, doc="weight of the divergence from the class's reference, alpha_CMI")
    l2r: str = setting("norm", choices=("norm", "squared"), doc="length: the norm of z, or its square as the paper writes")
    draws: int = setting(20, low=0, high=10_000, doc="representations that a prediction is the mean over; 0: mu alone")


def begin(config: FedSR, world: World, roster: Roster, rng: Generator) -> State:
    """Encoder and classifier at random."""
    return State(nets.weights_of(probabilistic.build(world)))


def mean(state: State, replies: Replies[Update], turn: Turn[FedSR]) -> State:
    """The plain mean of encoders and classifiers."""
    return State(weighted_sum((1 / len(replies), reply.model) for reply in replies.values()))


def plan(c: FedSR) -> Plan[FedSR, State]:
    """(train, score) x R."""
    work = Phase("train", train, ask=to(learners, Model), fold=mean)
    return scored(c, (work,), evaluate(to_all(Model), predict, takes=Model, keeps=Mine, confidence=c.confidence))


def fits(config: FedSR, world: World, roster: Roster) -> None:
    """The network has an encoder to widen, and somebody has labels. Raises ConfigRefused, RosterRefused."""
    nets.check(world, made=probabilistic.build)
    needs_teachers(config, roster)


def keepsakes(config: FedSR, memory: Mine) -> Mapping[str, Mapping[str, Tensor]]:
    """The site's class references, r_mu and r_sigma (K, m), and C, once it has trained them."""
    if not bool(memory.r_mu.any()):
        return {}
    return {"references": {"r_mu": memory.r_mu, "r_sigma": functional.softplus(memory.r_s), "C": torch.tensor(memory.C)}}


CLAIMS = (
    "A site's class references never leave it. The number of its training rows is not sent: all sites weigh alike.",
    "Not claimed: that noise in the representation hides rows. It is drawn anew in training and no bound on it is kept.",
)
# As the comparisons of hFedF have it (Bartholet and others, 2024, table 10): 200 rounds of Adam, tuned for each data set.
COMPARED: Mapping[str, Plain] = {
    "rounds": 200,
    "epochs": 2,
    "batch": 64,
    "optimiser": "adam",
    "rate": 1e-3,
    "a_cmi": 5e-4,
    "evaluate_every": 5,
}

fedsr = Algorithm(
    "fedsr",
    "Nguyen, Torr, Lim: FedSR: A Simple and Effective Domain Generalization Method for Federated Learning, 2022",
    "Federated averaging of an encoder whose representations are kept short and near their classes'",
    FedSR,
    State,
    begin,
    plan,
    memory=Mine,
    prepare=prepare,
    fits=fits,
    presets={
        **PRESETS,
        "pacs": {**COMPARED, "a_l2r": 1e-1, "weight_decay": 1e-5},
        "office_home": {**COMPARED, "a_l2r": 1e-1, "weight_decay": 1e-4},
        "vlcs": {**COMPARED, "a_l2r": 1e-2, "weight_decay": 1e-4},
    },
    keepsakes=keepsakes,
    claims=CLAIMS,
)
