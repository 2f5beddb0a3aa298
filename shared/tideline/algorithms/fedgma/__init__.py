"""FedGMA: federated averaging whose mean update is masked where clients disagree on its sign.

Tenison et al.: Gradient Masked Averaging for Federated Learning, 2022. Elements in which the domains of the clients pull one
way are moved; those in which they pull against each other are moved less, the less they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline.algorithms.averaging import COMPARED, PRESETS, Averaging, averaging
from tideline.algorithms.averaging.folds import Folding, shares
from tideline.algorithms.averaging.messages import State, Update
from tideline.core.asked.world import World
from tideline.core.phase import Replies, Turn
from tideline.core.settings import ELSEWHERE, Plain, setting
from tideline.nets import layers
from tideline.numerics.aggregation.averaging import masked_mean


@dataclass(frozen=True)
class FedGMA(Averaging):
    """Settings of FedGMA."""

    tau: float = setting(0.7, low=0.0, high=1.0, doc="agreement from which an element is moved in full; 0 is FedAvg")
    server_rate: float = setting(
        1.0, low=0.0, high=10.0, sizes=ELSEWHERE, doc="the coordinator's step along the masked mean, eta_s"
    )


def fold(state: State, replies: Replies[Update], turn: Turn[FedGMA]) -> State:
    """w <- w + eta_s m sum_i p_i Delta_i; buffers are the plain mean."""
    c: FedGMA = turn.config
    p = shares(replies, c)
    updates = ((p[client], reply.model) for client, reply in replies.items())
    return State(masked_mean(state.model, updates, c.tau, c.server_rate, layers.parameters(state.model)))


def notes(config: FedGMA, world: World) -> tuple[str, ...]:
    """What the mask asks of those who send."""
    return (
        "the mask counts the signs of each site's own update: the coordinator sees every site's model, and secure sums,"
        " which would show it the sum alone, cannot be used",
    )


TUNED: Mapping[str, Plain] = {**COMPARED, "weight_decay": 1e-4, "evaluate_every": 5}

fedgma = averaging(
    "fedgma",
    "Tenison et al.: Gradient Masked Averaging for Federated Learning, 2022",
    "Federated averaging that moves the model less where the sites' updates disagree in sign",
    FedGMA,
    presets={
        **PRESETS,
        "pacs": {**TUNED, "tau": 0.7, "server_rate": 1.0},
        "office_home": {**TUNED, "tau": 0.3, "server_rate": 1e-2},
        "vlcs": {**TUNED, "tau": 0.5, "server_rate": 1e-2},
    },
    folding=Folding(fold, notes=notes),
)
