"""KD3A: a target without labels learns what the models of labelled sources agree on, and weighs sources by it.

Feng et al., "KD3A: Unsupervised Multi-Source Decentralized Domain Adaptation via Knowledge Distillation", ICML 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from tideline.algorithms.averaging import scored
from tideline.algorithms.kd3a import client
from tideline.algorithms.kd3a.client import LOCAL, MIXED, SHAPLEY, Counted, Distilled, DistilledCounted, Lesson, State, Trained
from tideline.algorithms.source_free import source
from tideline.algorithms.source_free.family import EndCounts, Mine, Model
from tideline.core.algorithm import Algorithm, InitialWeights
from tideline.core.phase import MOST_VALUES, Folded, Phase, Plan, Replies, Table, Turn, to, to_all
from tideline.core.record import Weights
from tideline.core.run import Role
from tideline.core.settings import Plain, setting
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment.divergences import batch_norm_distance


@dataclass(frozen=True)
class KD3A(EndCounts):
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


def of_model(h: Model, config: KD3A, rng: Generator) -> State:
    return State(h.f, h.g, {}, {}, {})


def store_models(state: State, replies: Replies[Trained | Counted], turn: Turn[KD3A]) -> State:
    taught = {str(k): Model(reply.f, reply.g) for k, reply in replies.items()}
    counts = {str(k): reply.samples for k, reply in replies.items() if isinstance(reply, Counted)}
    return replace(state, taught=taught, samples=counts)


def lesson(state: State, turn: Turn[KD3A]) -> Lesson:
    """w and all w_k, in the order of their sources' names."""
    sources = tuple(state.taught[k] for k in sorted(state.taught))
    return Lesson(state.f, state.g, sources, torch.zeros(1 + len(sources), dtype=torch.float64))


def average(state: State, replies: Replies[Distilled | DistilledCounted], turn: Turn[KD3A]) -> Folded[State]:
    """w <- a_T w_T + sum_k a_k w_k, what batch norm measured included."""
    ((target, reply),) = replies.items()
    a = smoothed(state.weights, given(state, target, reply), turn.config.smoothing)
    models: dict[str, Model] = {**state.taught, target: Model(reply.f, reply.g or {})}
    f = weighted_sum((a[k], models[k].f) for k in a)
    g = state.g if turn.config.heads == LOCAL else classifier(a, models)
    made = State(f, g, {}, {}, {**state.weights, **a})
    return Folded(made, tables=tables(a, reply.f, state.taught))


def classifier(a: Mapping[str, float], models: Mapping[str, Model]) -> dict[str, Tensor]:
    """The average of the classifiers that were sent, which are all of them unless the target's agent is not ours."""
    sent = [k for k in a if models[k].g]
    return weighted_sum(zip(simplex([a[k] for k in sent]), (models[k].g for k in sent), strict=True))


def given(state: State, target: str, reply: Distilled | DistilledCounted) -> dict[str, float]:
    """The weights of this round, on the simplex, the target's first: as the target says; by counts, as the paper has it.

    By counts a_T = n_T / n, and a_k goes by n_k CF(k). Weights that are all 0, which no agent of ours sends, are equal.
    """
    names = [target, *sorted(state.taught)]
    a = dict(zip(names, simplex(reply.a.double().tolist()), strict=True))
    if not isinstance(reply, DistilledCounted):
        return a
    own = reply.samples / (reply.samples + sum(state.samples.values()))
    others = simplex([a[k] * state.samples[k] for k in names[1:]])
    return dict(zip(names, [own, *((1 - own) * each for each in others)], strict=True))


def simplex(values: list[float]) -> list[float]:
    """Numbers that are not negative, divided by their sum; equal ones where that is 0."""
    total = sum(values)
    return [value / total if total > 0 else 1 / len(values) for value in values]


def smoothed(old: Mapping[str, float], new: Mapping[str, float], share: float) -> dict[str, float]:
    """share old + (1 - share) new, over the sites of this round; a site that had no weight yet counts with its new one."""
    before = simplex([old.get(k, each) for k, each in new.items()])
    return {k: share * was + (1 - share) * each for was, (k, each) in zip(before, new.items(), strict=True)}


def tables(a: Mapping[str, float], own: Weights, taught: Mapping[str, Model]) -> dict[str, Table]:
    """The weight of each model, and how far what batch norm measured is from the target's."""
    names = tuple(sorted(a))[: MOST_VALUES // 2]
    weight = {"weight of each site": Table(names, ("weight",), tuple((a[k],) for k in names))}
    sources = simplex([a[k] for k in taught])
    terms = zip(sources, (h.f for h in taught.values()), strict=True)
    distance = batch_norm_distance(own, terms)
    return weight if distance is None else {**weight, "batch-norm distance": Table(("distance",), ("distance",), ((distance,),))}


START: source.Start[KD3A, State] = source.Start(State, of_model)


def plan(c: KD3A) -> Plan[KD3A, State]:
    """(train, distil) x R, scored; which classes are taken for which, if that is asked for."""
    # Counts leave a site only where they are used.
    teach, learn = (client.train_counted, client.distil_counted) if c.counted else (client.train, client.distil)
    train = Phase("train", teach, ask=to(Turn.sources, Model), fold=store_models)
    distil = Phase("distil", learn, ask=to(Role.TARGET, lesson), fold=average)
    score: Phase[KD3A, State] = Phase("score", client.score, ask=to_all(Model))
    return (*scored(c, (train, distil), score), *source.end_counts(c, source.predict_own, Mine))


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
    START.begin,
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
    keepsakes=source.keepsakes,
    initial_weights=InitialWeights(START.begin_with, source.needs_one_target),
    claims=CLAIMS,
)
