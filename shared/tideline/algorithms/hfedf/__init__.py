"""hFedF (Bartholet, Kim, Beuret, Yun, Buhmann: Non-linear Fusion in Federated Learning: A Hypernetwork Approach to Federated
Domain Generalization, 2024).

The coordinator generates each client's model from the client's embedding, and learns from what local training adds to it: clients
share through the hypernetwork, and no mean of models is taken. GradAlign weighs the clients, a moving average steadies the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from tideline.algorithms.averaging import scored
from tideline.algorithms.hfedf import embedding, server
from tideline.algorithms.hypernetworks import client
from tideline.algorithms.hypernetworks.messages import State
from tideline.algorithms.hypernetworks.server import begin, begin_from, to_be_scored, to_learners
from tideline.algorithms.hypernetworks.settings import Hyper, check, check_supplied
from tideline.core.algorithm import Algorithm, InitialWeights
from tideline.core.phase import Phase, Plan
from tideline.core.record import Nothing
from tideline.core.run import Role
from tideline.core.settings import setting
from tideline.learning.optimisers import OPTIMISERS


@dataclass(frozen=True)
class Config(Hyper):
    """Settings of hFedF."""

    rounds: int = setting(200, low=0, high=100_000, doc="rounds, T")
    epochs: int = setting(2, low=1, doc="local epochs a round, E")
    batch: int = setting(64, low=1, doc="rows in a mini-batch")
    rate: float = setting(1e-3, low=0.0, doc="learning rate of local training")
    weight_decay: float = setting(1e-3, low=0.0, doc="weight decay of local training")
    optimiser: str = setting("adam", choices=OPTIMISERS, doc="of local training, fresh each round")
    weighting: str = setting("uniform", choices=("uniform", "samples"), doc="of the rest and of buffers: 1 / N, or n_i / n")
    grad_align: bool = setting(True, doc="weigh clients by how their gradients point (algorithm 3); false: all alike")
    align_sign: int = setting(1, choices=(1, -1), doc="1: softmax(gamma), weight grows with agreement; -1: as eq. 9 is printed")
    ema: float = setting(0.95, low=0.01, high=1.0, doc="a of the moving average (algorithm 4); 1: none")
    warm_up: int = setting(10, low=0, doc="rounds before the moving average begins, w")
    embeddings: str = setting(
        "learned",
        choices=("learned", "random", "autoencoder"),
        doc="of clients; autoencoder sends a statistic of each site's rows",
    )


def plan(c: Config) -> Plan[Config, State]:
    """(train, score) x R; before it the autoencoder, where it makes the embeddings."""
    embed = (Phase("embed", embedding.embed, ask=embedding.to_learners, fold=embedding.take),)
    work = Phase("train", client.train_counted if c.weighting == "samples" else client.train, ask=to_learners, fold=server.fuse)
    score = client.scoring(to_be_scored, server.grade, c.confidence)
    return (embed if c.embeddings == "autoencoder" and c.rounds else ()) + scored(c, work, score)


CLAIMS = (
    "Embeddings and the hypernetwork stay at the coordinator. A site is sent a model, and sends what its training added to it.",
    "The coordinator needs each site's Delta_i apart, for its gradient, so that no sum over sites could take their place.",
    "A site's model is made of what all sites sent, through the hypernetwork. A site that is only scored gets the models of"
    " all, and so learns how many there are.",
    "Not claimed: that models tell nothing about rows. They are of the kind that averaging sends.",
)

hfedf: Algorithm[Config, State, Nothing] = Algorithm(
    "hfedf",
    "Bartholet, Kim, Beuret, Yun, Buhmann: Non-linear Fusion in Federated Learning: A Hypernetwork Approach to Federated Domain"
    " Generalization, 2024",
    "A hypernetwork generates each site's model, for domains that nobody has seen",
    Config,
    State,
    begin,
    plan,
    fits=check,
    presets={
        "pacs": {"server_weight_decay": 1e-5, "ema": 0.95},
        "office_home": {"server_weight_decay": 1e-5, "ema": 0.75},
        "vlcs": {"server_weight_decay": 1e-3, "ema": 0.75},
        "demo": {"rounds": 10, "epochs": 1, "batch": 32, "head_init": "matched", "server_rate": 3e-3, "ema": 1.0},
        "tiny": {"rounds": 2, "epochs": 1, "batch": 16, "server_rate": 3e-3, "warm_up": 1},
    },
    cast=(Role.SOURCE, Role.SOURCE, Role.TARGET),
    notes=server.notes,
    claims=CLAIMS,
    initial_weights=InitialWeights(begin_from, check_supplied),
    admins=True,
)
