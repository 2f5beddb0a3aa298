"""f-DAN: sources and a target without labels draw their features together by moments of random features.

The federated form of Long et al., "Learning Transferable Features with Deep Adaptation Networks" (DAN, ICML 2015), which Peng et
al., "Federated Adversarial Domain Adaptation" (FADA, ICLR 2020), compare with under this name and say no more of. Moments are
those of Rahimi, Recht, "Random Features for Large-Scale Kernel Machines" (NeurIPS 2007).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from tideline.algorithms.averaging import at_random, scored
from tideline.algorithms.fdan import client
from tideline.algorithms.fdan.client import LEAST, Change, Lesson, Mine, Model, Moment, State, Waves, Width
from tideline.algorithms.source_free import source
from tideline.algorithms.source_free.family import EndCounts
from tideline.core.algorithm import Algorithm, InitialWeights, SiteModels
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.phase import MOST_VALUES, Folded, Phase, Plan, Replies, Sums, Table, Turn, marked, to
from tideline.core.record import Nothing, Weights
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import BATCH, EPOCHS, ROUNDS, setting
from tideline.core.step import Site
from tideline.learning.local_training import LocalTraining
from tideline.nets import layers
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment.feature_maps import BANDWIDTHS


@dataclass(frozen=True)
class FDAN(EndCounts, LocalTraining):
    """Settings of f-DAN."""

    rounds: int = setting(20, low=1, high=100_000, sizes=ROUNDS, doc="rounds of sharing moments and training, R")
    warm: int = setting(1, low=0, sizes=ROUNDS, doc="rounds before, in which the sources train alone")
    epochs: int = setting(1, low=1, sizes=EPOCHS, doc="local epochs a round, E")
    batch: int = setting(
        32, low=LEAST, sizes=BATCH, doc="rows in a mini-batch; the mean of B rows lies too far off by about 1 / B"
    )
    lam: float = setting(1.0, low=0.0, doc="lambda, weight of the moments' distance; it rises from 0 over the rounds")
    features: int = setting(1280, low=len(BANDWIDTHS), high=1_000_000, doc="random features, D: a multiple of 5")
    width: float = setting(
        0.0, low=0.0, later=True, doc="in a run that protects rows, s2, which is measured in others; 0: one for each feature"
    )
    evaluate_every: int = setting(1, low=1, doc="rounds between scorings; the last round is always scored")


def begin_with(config: FDAN, world: World, roster: Roster, rng: Generator, h: Weights) -> State:
    """w from initial weights; the seed of all random features."""
    model = layers.trained(h)
    buffers = {name: w for name, w in h.items() if name not in model}
    return State(model=model, buffers=buffers, seed=int(torch.randint(2**31, (), generator=rng)), s2=0.0, moments={})


def everybody(turn: Turn[FDAN]) -> tuple[ClientId, ...]:
    """Sources with labels, and the target."""
    return tuple(sorted((*turn.sources(), *turn.members(Role.TARGET))))


def take_width(state: State, replies: Replies[Width], turn: Turn[FDAN]) -> State:
    return replace(state, s2=next(iter(replies.values())).s2)


def take_moments(state: State, replies: Replies[Moment], turn: Turn[FDAN]) -> Folded[State]:
    """m of those who answered, beside the last of the others. One that is no mean of psi is left out, and named."""
    sent = {k: reply.m.float() for k, reply in replies.items()}
    moments: dict[str, Tensor] = {**state.moments, **{str(k): m for k, m in sent.items() if is_mean(m)}}
    marks = marked({"left out": (k for k, m in sent.items() if not is_mean(m))})
    return Folded(replace(state, moments=moments), marks, tables=distances(moments, turn))


def is_mean(m: Tensor) -> bool:
    """Whether it can be a mean of psi, none of whose D numbers exceeds sqrt(2 / D)."""
    return float(m.abs().max()) <= math.sqrt(2 / len(m)) * (1 + 1e-5)


def distances(moments: dict[str, Tensor], turn: Turn[FDAN]) -> dict[str, Table]:
    """For the run's result: |m_i - m_T|^2 of each source."""
    target = target_of(moments, turn)
    names = tuple(k for k in turn.sources() if k in moments)[:MOST_VALUES]
    if target is None or not names:
        return {}
    values = tuple((float((moments[k] - target).double().square().sum()),) for k in names)
    return {"distance from the target": Table(names, ("distance",), values)}


def target_of(moments: dict[str, Tensor], turn: Turn[FDAN]) -> Tensor | None:
    return next((moments[k] for k in turn.members(Role.TARGET) if k in moments), None)


def lessons(state: State, turn: Turn[FDAN]) -> dict[ClientId, Lesson]:
    """To each source m_T; to the target the mean of m_i, and by how much they differ."""
    given = state.model, state.buffers, state.seed, state.s2
    known = [state.moments[k] for k in turn.sources() if k in state.moments]
    made = dict.fromkeys(turn.sources(), Lesson(*given, target_of(state.moments, turn), 0.0))
    return {**made, **dict.fromkeys(turn.members(Role.TARGET), Lesson(*given, *centre(known)))}


def centre(moments: list[Tensor]) -> tuple[Tensor | None, float]:
    """The mean m of some moments (D,), and the mean of |m_i|^2 less |m|^2, not below 0."""
    if not moments:
        return None, 0.0
    all_ND = torch.stack(moments).double()
    mean = all_ND.mean(0)
    return mean.float(), max(0.0, float(all_ND.square().sum(1).mean() - mean.square().sum()))


def average(state: State, replies: Replies[Change], turn: Turn[FDAN]) -> State:
    """w <- w + the plain mean of changes."""
    changes = ((1 / len(replies), reply.delta) for reply in replies.values())
    return replace(state, model=weighted_sum([(1.0, state.model), *changes]))


def terms(reply: Change, order: Model | Lesson, site: Site[FDAN], asked: SecureSums) -> dict[str, Tensor]:
    """A site's change, and that it is one."""
    changes = {f"delta/{name}": w.double() / asked.clip for name, w in reply.delta.items()}
    return {**changes, "sites": torch.tensor(1.0, dtype=torch.float64)}


def shapes(order: Model | Lesson, config: FDAN, world: World) -> dict[str, tuple[int, ...]]:
    return {**{f"delta/{name}": tuple(w.shape) for name, w in order.model.items()}, "sites": ()}


def average_sums(total: Weights, state: State, turn: Turn[FDAN], asked: SecureSums) -> State:
    """w <- w + the plain mean of changes, from their sums."""
    n = float(total["sites"])
    changes = {name: (total[f"delta/{name}"] * (asked.clip / n)).to(w.dtype) for name, w in state.model.items()}
    return replace(state, model=weighted_sum([(1.0, state.model), (1.0, changes)]))


SUMS: Sums[FDAN, State] = Sums(shapes=shapes, of=terms, fold=average_sums, alike=("sites",), differs=True)


def plan(c: FDAN) -> Plan[FDAN, State]:
    """Warm up, measure the width once, then (share, train) x R."""
    warm = Phase("warm", client.warm, ask=to(Turn.sources, Model), fold=average, sums=SUMS, asks=(Role.SOURCE,))
    width = Phase("width", client.width, ask=to(Role.TARGET, Model), fold=take_width)
    share = Phase("share", client.share, ask=to(everybody, Waves), fold=take_moments)
    train = Phase("train", client.train, ask=lessons, fold=average, sums=SUMS)
    norms: Phase[FDAN, State] = Phase("norms", client.measure_norms, ask=to(everybody, Model))
    score: Phase[FDAN, State] = source.score(
        Mine, to(everybody, Model), takes=Model, kept=client.with_model, predict=client.predict_own, asks=()
    )
    counts: Plan[FDAN, State] = source.end_counts(c, client.predict_own, Mine, everybody=to(everybody, Nothing))
    return (*(warm,) * c.warm, width, *scored(c, (share, train), norms, score), *counts)


def sizes(config: FDAN, world: World) -> Mapping[str, int]:
    """A moment has D numbers."""
    return {"D": config.features}


def fits(config: FDAN, world: World, roster: Roster) -> None:
    """Sources, one target, features to draw together. Raises ConfigRefused, RosterRefused."""
    source.needs_one_target(config, world, roster)
    if config.features % len(BANDWIDTHS):
        what = f"config.features is {config.features}; each of {len(BANDWIDTHS)} bandwidths gets as many of them"
        raise ConfigRefused(what, f"Give a multiple of {len(BANDWIDTHS)}, such as 1280", path="config.features")


CLAIMS = (
    "Features and batch-norm statistics never leave a site; it sends of its features one vector, a mean over all of its rows.",
    "The target's moment goes to the sources as it is; the target gets the mean of theirs, of one source its own.",
    "A site with fewer than 32 training rows sends nothing: its moment would nearly be a row.",
    "Not claimed: that a moment tells nothing of rows. By features that all sites know it describes their distribution.",
)

PRIVATELY = (
    "moments are noised sums of vectors that are 1.1 long at most",
    "training draws each row along the distance of the site's own noised moment from the other side's, which stays for an order",
    "how far features lie apart is config.width, and not measured",
)

fdan = Algorithm(
    name="fdan",
    paper="Long et al.: Learning Transferable Features with Deep Adaptation Networks, 2015; named f-DAN by Peng et al., 2020",
    summary="Sources and a target draw their features together by moments of random features",
    config=FDAN,
    state=State,
    begin=at_random(begin_with),
    plan=plan,
    memory=Mine,
    prepare=client.prepare,
    fits=fits,
    presets={
        "tiny": {"rounds": 2, "rate": 0.05, "features": 320},
        "demo": {"rounds": 8, "rate": 0.03},
        "digits": {"rounds": 20, "rate": 0.03, "evaluate_every": 5},
    },
    cast=(Role.SOURCE, Role.SOURCE, Role.TARGET),
    network="lenet_bn",
    keepsakes=client.keepsakes,
    result=(SiteModels(client.own_model, roles=(Role.SOURCE, Role.TARGET)),),
    sizes=sizes,
    initial_weights=InitialWeights(begin_with, fits),
    claims=CLAIMS,
    privately=PRIVATELY,
)
