"""FedGMA: federated averaging whose mean update is masked where clients disagree on its sign.

Tenison et al.: Gradient Masked Averaging for Federated Learning, 2022. Elements in which the domains of the clients pull one
way are moved; those in which they pull against each other are moved less, the less they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tideline.algorithms.averaging import COMPARED, PRESETS, Averaging, averaging
from tideline.algorithms.averaging.folds import Folding, shares
from tideline.algorithms.averaging.messages import Model, State, Update
from tideline.algorithms.averaging.sums import by_rows
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import World
from tideline.core.phase import Replies, Sums, Turn
from tideline.core.record import Weights
from tideline.core.settings import ELSEWHERE, Plain, setting
from tideline.core.step import Site
from tideline.nets import layers
from tideline.numerics.aggregation import sums
from tideline.numerics.aggregation.averaging import mask, masked_mean, moved


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


def terms(reply: Update, order: Model, site: Site[FedGMA], asked: SecureSums) -> dict[str, Tensor]:
    """A site's change and share, as in a mean, the signs of its change, and that it is one."""
    w, trained = order.model, layers.parameters(order.model)
    signs = {f"sign/{name}": (reply.model[name] - w[name]).sign().double() for name in sorted(trained)}
    one = {"sites": torch.tensor(1.0, dtype=torch.float64)}
    return {**sums.terms(reply.model, w, by_rows(reply, site.config, asked), asked.clip), **signs, **one}


def shapes(order: Model, config: FedGMA, world: World) -> dict[str, tuple[int, ...]]:
    w = order.model
    signs = {f"sign/{name}": tuple(w[name].shape) for name in sorted(layers.parameters(w))}
    return {**sums.shapes_of(w), **signs, "sites": ()}


def fold_sums(total: Weights, state: State, turn: Turn[FedGMA], asked: SecureSums) -> State:
    """The same from sums over sites: of signs, and of changes."""
    c: FedGMA = turn.config
    w, n = state.model, round(float(total["sites"]))
    made = sums.mean_from(total, w, asked.clip)
    for name in layers.parameters(w):
        votes = total[f"sign/{name}"].round().float()
        made[name] = moved(w[name], made[name], c.server_rate * mask(votes, n, c.tau))
    return State(made)


SUMS: Sums[FedGMA, State] = Sums(shapes=shapes, of=terms, fold=fold_sums)

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
    folding=Folding(fold, sums=lambda config: SUMS),
)
