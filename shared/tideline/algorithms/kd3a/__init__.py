"""KD3A: a target without labels learns what the models of labelled sources agree on, and weighs sources by it.

Feng et al., "KD3A: Unsupervised Multi-Source Decentralized Domain Adaptation via Knowledge Distillation", ICML 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from tideline.algorithms.averaging import due
from tideline.algorithms.kd3a import client, server
from tideline.algorithms.kd3a.client import LOCAL, MIXED, SHAPLEY
from tideline.algorithms.kd3a.messages import State
from tideline.algorithms.source_free import scoring, source
from tideline.algorithms.source_free.messages import Mine
from tideline.core.algorithm import Algorithm, InitialWeights
from tideline.core.phase import Phase, Plan
from tideline.core.run import Role
from tideline.core.settings import Plain, setting
from tideline.core.step import AnyStep


@dataclass(frozen=True)
class KD3A:
    """Settings of KD3A."""

    rounds: int = setting(100, low=1, high=100_000, doc="rounds, R")
    epochs: int = setting(1, low=1, doc="local epochs a round, E")
    batch: int = setting(32, low=2, doc="rows in a mini-batch")
    rate: float = setting(1e-2, low=0.0, doc="learning rate of the first round; it falls as half a cosine over the rounds")
    momentum: float = setting(0.9, low=0.0, high=1.0, doc="momentum of the local SGD; fresh each round")
    weight_decay: float = setting(5e-4, low=0.0, doc="weight decay of the local SGD")
    gate: float = setting(0.9, low=0.0, high=1.0, doc="g of the first round: how sure a source must be to vote")
    last_gate: float = setting(0.95, low=0.0, high=1.0, doc="g of the last round; between them it rises in a straight line")
    distillation: str = setting(MIXED, choices=(MIXED, "paper"), doc="of mixed rows, as the code does, or as the paper prints it")
    focus: str = setting(SHAPLEY, choices=(SHAPLEY, "paper"), doc="consensus focus: Shapley value (up to 6 sources), or left out")
    smoothing: float = setting(0.9, low=0.0, high=1.0, doc="share of the last round's weights in the new ones")
    counted: bool = setting(False, doc="the paper's weights: a_T by counts of rows, a_k by n_k CF(k)")
    heads: str = setting(
        "averaged", choices=("averaged", LOCAL), doc="whether classifiers are averaged, or stay with their sites"
    )
    evaluate_every: int = setting(1, low=1, doc="rounds between scorings; the last round is always scored")
    confusion: bool = setting(False, doc="in the end targets count which classes are taken for which")
    label_shift: bool = setting(False, doc="in the end sites count rows by class, targets as their model has them")


def plan(c: KD3A) -> Plan[KD3A, State]:
    """(train, distil) x R, scored; which classes are taken for which, if that is asked for."""
    train = Phase("train", counted(c, client.train_counted, client.train), ask=server.model_to_sources, fold=server.keep)
    last = counted(c, client.distil_counted, client.distil)
    distil = Phase("distil", last, ask=server.models_to_target, fold=server.average)
    score = Phase("score", client.score, ask=server.model_to_all)
    rounds = ((train, distil, score) if due(c, r) else (train, distil) for r in range(1, c.rounds + 1))
    return (*chain.from_iterable(rounds), *(scoring.confusion(),) * c.confusion, *(scoring.dealt(),) * c.label_shift)


def counted(c: KD3A, yes: AnyStep, no: AnyStep) -> AnyStep:
    """Counts leave a site only where they are used."""
    return yes if c.counted else no


CLAIMS = (
    "The target's tables of probabilities, votes and consensus never leave it; it sends its model and a weight for each.",
    "A source's model goes to the target as it is, in one list with those of the others, without names.",
    "The number of a site's rows is not sent, unless weights go by counts (counted: true).",
    "Not claimed: that a source which lies weighs nothing. Shapley values and smoothing leave it a part.",
    "Not claimed: that weights tell nothing about the target. They say whose data its own are like.",
)
# As measured in benchmarks/README.md.
DIGITS: Mapping[str, Plain] = {"rounds": 20, "rate": 0.03, "gate": 0.8, "evaluate_every": 5}

kd3a = Algorithm(
    "kd3a",
    "Feng et al.: KD3A: Unsupervised Multi-Source Decentralized Domain Adaptation via Knowledge Distillation, 2021",
    "A site without labels learns what the sources' models agree on, and weighs them by it",
    KD3A,
    State,
    server.begin,
    plan,
    Mine,
    source.prepare,
    fits=source.needs_one_target,
    presets={
        "tiny": {"rounds": 2, "batch": 16, "rate": 0.05, "gate": 0.5, "last_gate": 0.6},
        "demo": {"rounds": 10, "rate": 0.03, "gate": 0.8},
        "digits": DIGITS,
    },
    cast=(Role.SOURCE, Role.SOURCE, Role.TARGET),
    network="lenet_bn",
    keepsakes=scoring.keepsakes,
    initial_weights=InitialWeights(server.begin_with, source.needs_one_target),
    claims=CLAIMS,
)
