"""FedPCL with pseudo-labels (Tan et al.: Federated Learning from Pre-Trained Models: A Contrastive Learning Approach, NeurIPS
2022), as Mori et al. compare with it.

The source's feature extractor stays as it is. Each site without labels trains a small head over it, which never leaves; what
sites share are prototypes: the mean projection of each class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from tideline.algorithms.fedpcl_pl import client, server
from tideline.algorithms.fedpcl_pl.messages import Kept, State
from tideline.algorithms.source_free import method, scoring, source
from tideline.algorithms.source_free.settings import DEMO, TINY, Source
from tideline.core.algorithm import InitialWeights
from tideline.core.phase import Phase, Plan
from tideline.core.run import World
from tideline.core.settings import setting


@dataclass(frozen=True)
class Config(Source):
    """Settings of FedPCL."""

    rounds: int = setting(20, low=0, high=100_000, doc="rounds of training the heads, R; 0 leaves the source model as it is")
    epochs: int = setting(5, low=1, doc="local epochs a round, E")
    batch: int = setting(32, low=1, doc="rows in a mini-batch")
    rate: float = setting(1e-3, low=0.0, doc="learning rate of the head's SGD")
    momentum: float = setting(0.9, low=0.0, high=1.0, doc="momentum of the head's SGD; fresh each round")
    weight_decay: float = setting(1e-3, low=0.0, doc="weight decay of the head's SGD")
    tau: float = setting(70.0, low=1e-6, doc="temperature of the softmax over prototypes; 0.07 with normalise: true")
    normalise: bool = setting(False, doc="projections and prototypes of unit length")
    evaluate_every: int = setting(1, low=1, doc="rounds between scorings; the last round is always scored")


def plan(c: Config) -> Plan[Config, State]:
    """Source, its score, the first prototypes, then rounds."""
    taught = (source.phase(server.take_source, Kept),) * c.source_rounds
    first = (Phase("describe", client.describe, ask=server.to_targets, fold=server.collect),) if c.rounds else ()
    work = Phase("learn", client.learn, ask=server.lessons, fold=server.collect)
    grade = Phase("score", client.score, ask=server.to_targets)
    return (*taught, scoring.source_only(keeps=Kept), *first, *scoring.scored(c, lambda r: work, grade))


def sizes(config: Config, world: World) -> Mapping[str, int]:
    """A prototype for each class, of the head's width."""
    return {"classes": world.classes, "width": client.WIDTH}


def keepsakes(config: Config, memory: Kept) -> Mapping[str, Mapping[str, Tensor]]:
    """The frozen network, the site's head over its features, and the mean prototypes that projections are compared with."""
    if not memory.f:
        return {}
    prototypes = {"mean": memory.mean, "present": memory.present}
    return {"model": {**memory.f, **memory.g}, "head": memory.head, "prototypes": prototypes}


CLAIMS = (
    "No model leaves a site that adapts: its head stays, and the source's model is not changed.",
    "A site's prototypes go to all sites as they are, in one list with those of the others, without names.",
    "A class with fewer than 5 rows of its pseudo-label is not sent, and its count is told as 0.",
    "Not claimed: that prototypes tell nothing about rows. Each is the mean of as few as 5 projections, by a head whose first"
    " weights all sites know.",
    "Not claimed: that a site's prototypes cannot be followed from round to round. They stay in one place of the list.",
)

fedpcl_pl = method(
    "fedpcl_pl",
    "Tan et al.: Federated Learning from Pre-Trained Models: A Contrastive Learning Approach, 2022",
    "Sites without labels share prototypes over the source's frozen features",
    Config,
    plan,
    state=State,
    begin=server.begin,
    memory=Kept,
    prepare=client.prepare,
    sizes=sizes,
    keepsakes=keepsakes,
    initial_weights=InitialWeights(server.begin_with, source.needs_targets),
    claims=CLAIMS,
    # With dot products as they are, heads have to grow first, for which a demonstration is too short.
    presets={"tiny": TINY, "demo": {**DEMO, "normalise": True, "tau": 0.07}},
)
