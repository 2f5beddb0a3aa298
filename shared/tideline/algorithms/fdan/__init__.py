"""f-DAN: sources and a target without labels draw their features together by moments of random features.

The federated form of Long et al., "Learning Transferable Features with Deep Adaptation Networks" (DAN, ICML 2015), which Peng et
al., "Federated Adversarial Domain Adaptation" (FADA, ICLR 2020), compare with under this name and say no more of. Moments are
those of Rahimi, Recht, "Random Features for Large-Scale Kernel Machines" (NeurIPS 2007).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from tideline.algorithms.averaging import due
from tideline.algorithms.fdan import client, server
from tideline.algorithms.fdan.messages import LEAST, Mine, State
from tideline.algorithms.source_free import source
from tideline.core.algorithm import Algorithm, InitialWeights
from tideline.core.errors import ConfigRefused
from tideline.core.phase import Phase, Plan
from tideline.core.run import Role, Roster, World
from tideline.core.settings import setting
from tideline.learning.confusion import confused
from tideline.learning.label_shift import label_shift
from tideline.numerics.alignment.random_features import BANDWIDTHS


@dataclass(frozen=True)
class FDAN:
    """Settings of f-DAN."""

    rounds: int = setting(20, low=1, high=100_000, doc="rounds of sharing moments and training, R")
    warm: int = setting(1, low=0, doc="rounds before, in which the sources train alone")
    epochs: int = setting(1, low=1, doc="local epochs a round, E")
    batch: int = setting(32, low=LEAST, doc="rows in a mini-batch; the mean of B rows lies too far off by about 1 / B")
    rate: float = setting(1e-2, low=0.0, doc="learning rate of the local SGD")
    momentum: float = setting(0.9, low=0.0, high=1.0, doc="momentum of the local SGD; fresh each round")
    weight_decay: float = setting(5e-4, low=0.0, doc="weight decay of the local SGD")
    lam: float = setting(1.0, low=0.0, doc="lambda, weight of the moments' distance; it rises from 0 over the rounds")
    features: int = setting(1280, low=len(BANDWIDTHS), high=1_000_000, doc="random features, D: a multiple of 5")
    evaluate_every: int = setting(1, low=1, doc="rounds between scorings; the last round is always scored")
    confusion: bool = setting(False, doc="in the end targets count which classes are taken for which")
    label_shift: bool = setting(False, doc="in the end sites count rows by class, targets as their model has them")


def plan(c: FDAN) -> Plan[FDAN, State]:
    """Warm up, measure the width once, then (share, train) x R."""
    warm = Phase("warm", client.warm, ask=server.to_sources, fold=server.average)
    width = Phase("width", client.width, ask=server.to_target, fold=server.take_width)
    share = Phase("share", client.share, ask=server.waves_to_all, fold=server.take_moments)
    train = Phase("train", client.train, ask=server.lessons, fold=server.average)
    score = (Phase("norms", client.settle_in, ask=server.to_all), Phase("score", client.score, ask=server.to_all))
    rounds = ((share, train, *score) if due(c, r) else (share, train) for r in range(1, c.rounds + 1))
    taken = confused(server.nothing_to_target, client.predict_own, keeps=Mine)
    dealt = label_shift(server.nothing_to_all, client.predict_own, keeps=Mine)
    return (*(warm,) * c.warm, width, *chain.from_iterable(rounds), *(taken,) * c.confusion, *(dealt,) * c.label_shift)


def sizes(config: FDAN, world: World) -> Mapping[str, int]:
    """A moment has D numbers."""
    return {"D": config.features}


def fits(config: FDAN, world: World, roster: Roster) -> None:
    """Sources, one target, features to draw together. Raises ConfigRefused, RosterRefused."""
    source.needs_one_target(config, world, roster)
    if config.features % len(BANDWIDTHS):
        raise ConfigRefused(
            f"config.features is {config.features}; each of {len(BANDWIDTHS)} bandwidths gets as many of them",
            f"Give a multiple of {len(BANDWIDTHS)}, such as 1280",
            path="config.features",
        )


CLAIMS = (
    "Features and batch-norm statistics never leave a site; it sends of its features one vector, a mean over all of its rows.",
    "The target's moment goes to the sources as it is; the target gets the mean of theirs, of one source its own.",
    "A site with fewer than 32 training rows sends nothing: its moment would nearly be a row.",
    "Not claimed: that a moment tells nothing of rows. By features that all sites know it describes their distribution.",
)

fdan = Algorithm(
    "fdan",
    "Long et al.: Learning Transferable Features with Deep Adaptation Networks, 2015; named f-DAN by Peng et al., 2020",
    "Sources and a target draw their features together by moments of random features",
    FDAN,
    State,
    server.begin,
    plan,
    Mine,
    client.prepare,
    fits=fits,
    presets={
        "tiny": {"rounds": 2, "rate": 0.05, "features": 320},
        "demo": {"rounds": 8, "rate": 0.03},
        "digits": {"rounds": 20, "rate": 0.03, "evaluate_every": 5},
    },
    cast=(Role.SOURCE, Role.SOURCE, Role.TARGET),
    network="lenet_bn",
    keepsakes=client.keepsakes,
    sizes=sizes,
    initial_weights=InitialWeights(server.begin_with, fits),
    claims=CLAIMS,
)
