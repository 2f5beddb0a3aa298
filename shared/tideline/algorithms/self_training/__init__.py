"""Self-training beside sources: after some rounds of averaging targets train, too, on their own labels of rows they are sure of.

Pseudo-labels are those of Lee, "Pseudo-Label: The Simple and Efficient Semi-Supervised Learning Method for Deep Neural Networks"
(ICML workshop 2013). A threshold of its own for each class keeps those that are predicted with less confidence, as in Zou, Yu,
Kumar, Wang, "Unsupervised Domain Adaptation for Semantic Segmentation via Class-Balanced Self-Training" (ECCV 2018). The sources
stay beside the target, which SHOT (Liang, Hu, Feng, ICML 2020) does without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tideline import nets
from tideline.algorithms.averaging import (
    PRESETS,
    Averaging,
    at_random,
    begin_from,
    learners,
    model_of,
    needs_teachers,
    predict_by,
    scored,
    training,
)
from tideline.algorithms.averaging.messages import Model, State, Trained
from tideline.algorithms.averaging.sums import by_rows, mean_of
from tideline.core.algorithm import Algorithm, InitialWeights, RunModel
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import World
from tideline.core.errors import RosterRefused
from tideline.core.phase import Folded, Phase, Plan, Replies, Sums, Turn, marked, to, to_all
from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import ROUNDS, setting
from tideline.core.step import Data, Outcome, Site, step
from tideline.learning.evaluate import confused, evaluate
from tideline.learning.fit import Loss
from tideline.learning.loading.ahead import in_parts
from tideline.learning.local_training import loss_at, train_at
from tideline.learning.private.statistics import each_row
from tideline.learning.private.words import NUMBER
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.labels.confidence import surest

LEAST = 2  # rows that a target trains on: batch norm wants two
UNSURE = -1


@dataclass(frozen=True)
class SelfTraining(Averaging):
    """Settings of self-training beside sources."""

    rounds: int = setting(10, low=0, high=100_000, sizes=ROUNDS, doc="rounds of averaging before targets join, R")
    times: int = setting(3, low=0, high=10_000, doc="how often targets label their rows anew, T; 0 is FedAvg")
    rounds_between: int = setting(
        5, low=1, high=10_000, sizes=ROUNDS, doc="rounds of averaging after each labelling, targets among them, B"
    )
    quantile: float = setting(0.5, low=0.0, high=1.0, doc="share of the rows of each predicted class that are not sure enough")

    threshold: float = setting(
        0.0, low=0.0, high=1.0, later=True, doc="in a run that protects rows, how sure is sure enough, in the place of quantile"
    )

    @property
    def all_rounds(self) -> int:
        return self.rounds + self.times * self.rounds_between

    def labelling(self, r: int) -> int:
        """Which labelling, from 1, round r of averaging trains on, r > R."""
        return 1 + (r - self.rounds - 1) // self.rounds_between


@record
class Mine:
    """A target's memory: the model that its labels are of. A source's is empty."""

    labelling: int = field(doc="which labelling the model came with, from 1; 0: none yet")
    model: Weights = field(doc="the model that came first since then")


@record
class Joined(Trained):
    """What a site answers: its model and how many rows it trained on. A target with 0 sends the model that it got."""

    samples: int = field(
        "", Exposure.COUNT, low=0, private=NUMBER, doc="rows trained on: all of a source's, of a target's the sure ones"
    )


def prepare(config: SelfTraining, site: Site[SelfTraining]) -> Mine:
    return Mine(0, {})


# At a site


@step(metrics=("loss", "samples"), spends=training)
def train(order: Model, memory: Mine, site: Site[SelfTraining]) -> Outcome[Joined, Mine]:
    """E epochs of cross-entropy from w, on labels that are there, or on a target's own."""
    c: SelfTraining = site.config
    mine, data = (memory, site.data) if site.data.labelled else own_labels(order, memory, site)
    if len(data) < max(LEAST, site.least_rows) and not (data is site.data or site.private):
        return Outcome(Joined(order.model, 0), mine, {"loss": 0.0, "samples": 0})
    net = nets.loaded(site.world, order.model, site.device)
    over_all = replace(site, config=replace(c, rounds=c.all_rounds))  # the rounds that the rate's schedule spans
    loss = of_sure_rows(loss_at(site, data)) if site.private else loss_at(site, data)
    n = site.samples if site.private else len(data)
    value = train_at(over_all, net, loss, epochs=c.epochs, batch=c.batch, data=data)
    return Outcome(Joined(nets.weights_of(net), n), mine, {"loss": value, "samples": n})


def own_labels(order: Model, memory: Mine, site: Site[SelfTraining]) -> tuple[Mine, Data]:
    """The rows that the labelling's model is sure of, with its labels. They are computed again in each round, and not stored.

    In a run that protects rows all of them, and UNSURE is the label of the others.
    """
    number = site.config.labelling(site.round)
    mine = memory if memory.labelling == number else Mine(number, order.model)
    return mine, row_by_row_labels(mine.model, site) if site.private else sure_rows(mine.model, site)


def row_by_row_labels(model: Weights, site: Site[SelfTraining]) -> Data:
    """Each row's label follows from that row and a model that everybody knows, and so does whether it is sure enough."""
    net, least = nets.loaded(site.world, model, site.device).eval(), site.config.threshold

    def labels(x: Tensor) -> Tensor:
        top, guess = net(x).softmax(1).max(1)
        sure: Tensor = guess.where(top >= least, UNSURE)
        return sure

    return replace(site.data, y=each_row(site, labels))


def of_sure_rows(loss: Loss) -> Loss:
    """The loss of single rows (1,), 0 for one whose label is UNSURE."""
    return lambda net, x, y: loss(net, x, y.clamp(min=0)) * (y >= 0).all()


def sure_rows(model: Weights, site: Site[SelfTraining]) -> Data:
    """Of each class that a model predicts, the surer rows."""
    net, data = nets.loaded(site.world, model, site.device).eval(), site.data
    confidence, label, done = torch.zeros(len(data)), torch.zeros(len(data), dtype=torch.int64), 0
    for x in in_parts(data.x) if len(data) else ():
        with torch.no_grad():
            top, guess = net(x.to(site.device)).softmax(1).max(1)
        here, done = slice(done, done + len(x)), done + len(x)
        confidence[here], label[here] = top.cpu(), guess.cpu()
        site.tick(done / len(data))
    kept = surest(confidence, label, site.config.quantile).nonzero().flatten()
    return replace(data, x=data.x.at(kept), y=label[kept], domain=data.domain[kept])


def predict(order: Model, memory: Mine, site: Site[SelfTraining], x: Tensor) -> Tensor:
    return predict_by(order.model, memory, site, x)


# At the coordinator


def fold(state: State, replies: Replies[Joined], turn: Turn[SelfTraining]) -> Folded[State]:
    """w <- sum_i (n_i / n) w_i, or the plain mean, over those who trained."""
    uniform = turn.config.weighting == "uniform"
    counts = {client: 1 if uniform else reply.samples for client, reply in replies.items() if reply.samples > 0}
    n = sum(counts.values())
    made = weighted_sum((count / n, replies[client].model) for client, count in counts.items()) if n else state.model
    return Folded(State(made), marked({"left out": (client for client in replies if client not in counts)}))


def of_those_who_trained(reply: Joined, config: SelfTraining, asked: SecureSums) -> float:
    """The share of a site in the mean: none of one that is sure of too few rows."""
    return by_rows(reply, config, asked) if reply.samples > 0 else 0.0


# Who trained on nothing counts nothing, so that sites do not weigh alike, and no noise can be added.
SUMS: Sums[SelfTraining, State] = replace(mean_of(of_those_who_trained), alike=None)


def everybody(turn: Turn[SelfTraining]) -> tuple[ClientId, ...]:
    """Those with labels to learn from, and the targets."""
    return tuple(sorted({*learners(turn), *turn.members(Role.TARGET)}))


def plan(c: SelfTraining) -> Plan[SelfTraining, State]:
    """train x R by the sources, what that scores at the targets, train x T B by all; scored."""
    alone, together = (
        Phase("train", train, ask=to(who, Model), fold=fold, sampled=True, sums=SUMS) for who in (learners, everybody)
    )
    baseline: Phase[SelfTraining, State] = evaluate(
        to(Role.TARGET, Model), predict, takes=Model, keeps=Mine, name="source_only", metrics=("source_only",)
    )
    score: Phase[SelfTraining, State] = evaluate(to_all(Model), predict, takes=Model, keeps=Mine, confidence=c.confidence)
    first = (replace(baseline, sampled=False, asks=(Role.TARGET,)),)

    def work(r: int) -> Plan[SelfTraining, State]:
        return (alone if r <= c.rounds else together, *(first if r == c.rounds else ()))

    last: Plan[SelfTraining, State] = (confused(to_all(Model), predict, takes=Model, keeps=Mine),) if c.confusion else ()
    return (*(() if c.rounds else first), *scored(replace(c, rounds=c.all_rounds), work, score), *last)


def fits(config: SelfTraining, world: World, roster: Roster) -> None:
    """The network is there, somebody has labels, and somebody has none. Raises ConfigRefused, RosterRefused."""
    fits_initial_weights(config, world, roster)
    needs_teachers(config, roster)


def fits_initial_weights(config: SelfTraining, world: World, roster: Roster) -> None:
    """Who brings a model needs no labels in no rounds before targets join. Raises ConfigRefused, RosterRefused."""
    nets.check(world)
    if config.rounds:
        needs_teachers(config, roster)
    if not any(m.role is Role.TARGET for m in roster):
        what = "No member of the roster is a target, so nobody labels its own rows"
        raise RosterRefused(what, "Add a site as target, or use the method fedavg", path="roster")


CLAIMS = (
    "A target's labels of its own, and how sure they are, never leave it.",
    "From the first labelling on a target sends what a source sends: the model that it trained, and how many rows that was.",
    "Not claimed: that a target's models tell nothing of its rows. They are what a source's are.",
)

PRIVATELY = (
    "a target's row is sure enough if its confidence is config.threshold or more: a quantile would be of all rows together",
    "a target says that it trained on as many rows as the run names, and trains also where no row is sure",
)

self_training = Algorithm(
    name="self_training",
    paper="Lee: Pseudo-Label: The Simple and Efficient Semi-Supervised Learning Method for Deep Neural Networks, 2013",
    summary="Federated averaging in which targets take part with labels of their own for the rows they are sure of",
    config=SelfTraining,
    state=State,
    begin=at_random(begin_from),
    plan=plan,
    memory=Mine,
    prepare=prepare,
    fits=fits,
    presets={
        "demo": {**PRESETS["demo"], "rounds_between": 2},
        "tiny": {**PRESETS["tiny"], "times": 2, "rounds_between": 2, "evaluate_every": 3},
    },
    cast=(Role.SOURCE, Role.SOURCE, Role.TARGET),
    initial_weights=InitialWeights(begin_from, fits_initial_weights),
    claims=CLAIMS,
    privately=PRIVATELY,
    result=(RunModel(model_of),),
)
