"""pFedHN (Shamsian, Navon, Fetaya, Chechik: Personalized Federated Learning using Hypernetworks, ICML 2021).

The coordinator generates each client's model from the client's embedding. A step takes one client: it trains from its model, and
what that added to it is the hypernetwork's gradient. Nothing is averaged, and clients are not weighed against each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from tideline.algorithms.averaging import scored
from tideline.algorithms.hypernetworks import client
from tideline.algorithms.hypernetworks.settings import Hyper, check, check_supplied
from tideline.algorithms.pfedhn import server
from tideline.algorithms.pfedhn.messages import State
from tideline.core.algorithm import Algorithm, InitialWeights
from tideline.core.phase import Phase, Plan
from tideline.core.record import Nothing
from tideline.core.run import Role
from tideline.core.settings import Plain, setting
from tideline.learning.optimisers import OPTIMISERS


@dataclass(frozen=True)
class Config(Hyper):
    """Settings of pFedHN."""

    rounds: int = setting(5000, low=0, high=100_000, doc="steps of the coordinator, of one client each; N are a pass over all")
    batches: int = setting(50, low=0, doc="local mini-batches a step; 0: whole epochs")
    epochs: int = setting(2, low=1, doc="local epochs a step, where batches is 0")
    batch: int = setting(64, low=1, doc="rows in a mini-batch")
    rate: float = setting(5e-3, low=0.0, doc="learning rate of local training")
    weight_decay: float = setting(5e-5, low=0.0, doc="weight decay of local training")
    optimiser: str = setting("sgd", choices=OPTIMISERS, doc="of local training, fresh each step")
    max_norm: float = setting(50.0, low=0.0, doc="largest norm of a local gradient; 0: any")
    server_optimiser: str = setting("sgd", choices=OPTIMISERS, doc="of the hypernetwork's parameters and embeddings")
    server_rate: float = setting(1e-2, low=0.0, doc="its learning rate")
    server_momentum: float = setting(0.9, low=0.0, high=1.0, doc="its momentum; adam has no use for it")
    server_weight_decay: float = setting(1e-3, low=0.0, doc="its weight decay")
    server_clip: float = setting(50.0, low=1e-6, doc="largest norm of its gradient")


def plan(c: Config) -> Plan[Config, State]:
    """(step, score every so often) x R."""
    work = Phase("train", client.train_alone, ask=server.to_next, fold=server.descend, floor=0)
    score = client.scoring(server.to_be_scored, server.grade, c.confidence)
    return scored(c, work, score)


CLAIMS = (
    "Embeddings and the hypernetwork stay at the coordinator. A site is sent a model, and sends what its training added to it.",
    "One site is asked at a time, so that no sum over sites could take the place of its answer.",
    "What is not generated, such as batch norm's statistics, moves by a share of one site's change, and goes to the next site.",
    "A site that is only scored gets the models of all: it learns how many there are, and what steps between scorings changed.",
    "Not claimed: that models tell nothing about rows. They are of the kind that averaging sends.",
)
COMPARED: dict[str, Plain] = {
    "batches": 0,
    "optimiser": "adam",
    "rate": 1e-3,
    "max_norm": 0.0,
    "server_optimiser": "adam",
    "server_clip": 50.0,
}
PASSES: dict[str, Plain] = {"rounds": 600, "evaluate_every": 3}  # 200 passes over three sites

pfedhn: Algorithm[Config, State, Nothing] = Algorithm(
    "pfedhn",
    "Shamsian, Navon, Fetaya, Chechik: Personalized Federated Learning using Hypernetworks, 2021",
    "A hypernetwork generates each site's model, and learns from one site at a time",
    Config,
    State,
    server.begin,
    plan,
    fits=check,
    presets={
        "pacs": {**COMPARED, **PASSES, "server_rate": 1e-2, "server_weight_decay": 1e-3, "weight_decay": 1e-5},
        "office_home": {**COMPARED, **PASSES, "server_rate": 1e-3, "server_weight_decay": 1e-4, "weight_decay": 1e-4},
        "vlcs": {**COMPARED, **PASSES, "server_rate": 1e-3, "server_weight_decay": 1e-4, "weight_decay": 1e-4},
        "demo": {**COMPARED, "rounds": 20, "evaluate_every": 5, "epochs": 1, "head_init": "matched", "server_rate": 3e-3},
        "tiny": {"rounds": 4, "evaluate_every": 2, "batches": 3, "batch": 16},
    },
    cast=(Role.SOURCE, Role.SOURCE, Role.TARGET),
    claims=CLAIMS,
    initial_weights=InitialWeights(server.begin_from, check_supplied),
    admins=True,
)
