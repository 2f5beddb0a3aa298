"""FedPCL with pseudo-labels (Tan et al.: Federated Learning from Pre-Trained Models: A Contrastive Learning Approach, NeurIPS
2022), as Mori et al. compare with it.

The source's feature extractor stays as it is. Each site without labels trains a small head over it, which never leaves; what
sites share are prototypes: the mean projection of each class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from tideline.algorithms.averaging import scored
from tideline.algorithms.fedpcl_pl import client
from tideline.algorithms.fedpcl_pl.client import LEAST, WIDTH, Common, Described, Lesson, Memory, State
from tideline.algorithms.source_free import begun, method, source
from tideline.algorithms.source_free.messages import Model, Taught
from tideline.algorithms.source_free.settings import DEMO, TINY, Source
from tideline.core.phase import Phase, Plan, Replies, Turn, to
from tideline.core.run import Role, World
from tideline.core.settings import setting
from tideline.numerics.labels.contrast import Sets, mean_prototypes


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


def of_model(h: Model, config: Config, rng: Generator) -> State:
    """One seed for all heads; nobody has sent a prototype yet."""
    return State(h.f, h.g, int(torch.randint(2**31, (), generator=rng)), {}, {})


def take_source(state: State, replies: Replies[Taught], turn: Turn[Config]) -> State:
    """h_S."""
    h = source.mean_of(replies)
    return replace(state, f=h.f, g=h.g)


def gathered(state: State, world: World) -> Sets:
    """All sites' prototypes, in the order of their names; without sites that have none."""
    known = [(state.prototypes[k], state.counts[k] >= LEAST) for k in sorted(state.prototypes)]
    known = [(prototypes, there) for prototypes, there in known if bool(there.any())]
    if not known:
        return Sets(torch.zeros(0, world.classes, WIDTH), torch.zeros(0, world.classes, dtype=torch.bool))
    return Sets(torch.stack([prototypes for prototypes, _ in known]), torch.stack([there for _, there in known]))


def common(state: State, turn: Turn[Config]) -> Common:
    """The frozen model, the seed and the mean prototypes."""
    mean = mean_prototypes(gathered(state, turn.world))
    return Common(state.f, state.g, state.seed, mean.prototypes[0], mean.present[0])


def lesson(state: State, turn: Turn[Config]) -> Lesson:
    """What is common, and all sites' prototypes."""
    each = gathered(state, turn.world)
    return Lesson(common(state, turn), each.prototypes, each.present)


def collect(state: State, replies: Replies[Described], turn: Turn[Config]) -> State:
    """The prototypes of those who answered, beside the last of the others."""
    prototypes: dict[str, Tensor] = {**state.prototypes, **{str(k): r.prototypes.float() for k, r in replies.items()}}
    counts: dict[str, Tensor] = {**state.counts, **{str(k): r.counts for k, r in replies.items()}}
    return replace(state, prototypes=prototypes, counts=counts)


START: source.Start[Config, State] = source.Start(of_model)


def plan(c: Config) -> Plan[Config, State]:
    """Source, its score, the first prototypes, then rounds."""
    first = (Phase("describe", client.describe, ask=to(Role.TARGET, common), fold=collect),) if c.rounds else ()
    work = Phase("learn", client.learn, ask=to(Role.TARGET, lesson), fold=collect)
    grade: Phase[Config, State] = Phase("score", client.score, ask=to(Role.TARGET, common))
    return (*begun(c, take_source, Memory), *first, *scored(c, (work,), grade))


def sizes(config: Config, world: World) -> Mapping[str, int]:
    """A prototype for each class, of the head's width."""
    return {"classes": world.classes, "width": client.WIDTH}


def keepsakes(config: Config, memory: Memory) -> Mapping[str, Mapping[str, Tensor]]:
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
    memory=Memory,
    prepare=client.prepare,
    sizes=sizes,
    keepsakes=keepsakes,
    start=START,
    claims=CLAIMS,
    # With dot products as they are, heads have to grow first, for which a demonstration is too short.
    presets={"tiny": TINY, "demo": {**DEMO, "normalise": True, "tau": 0.07}},
)
