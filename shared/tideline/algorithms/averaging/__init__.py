"""Federated averaging and its family: every client trains the common model, the coordinator takes the mean.

FedAvg (McMahan et al., AISTATS 2017) and FedProx (Li et al., MLSys 2020). A member of the family is one call of `averaging`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol, TypeAlias, TypeVar

import torch
from torch import Generator, Tensor, nn

from tideline import nets
from tideline.algorithms.averaging import folds
from tideline.algorithms.averaging.folds import Folding
from tideline.algorithms.averaging.messages import Model, Models, State, Trained, Update
from tideline.core.algorithm import Algorithm, InitialWeights, RunModel
from tideline.core.asked.private import Charge, Privacy
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.phase import Phase, Plan, Replies, Turn, to, to_all
from tideline.core.record import Nothing, Weights
from tideline.core.rows import Rows
from tideline.core.run import ClientId, Role, Roster, described
from tideline.core.settings import BATCH, EPOCHS, ROUNDS, Plain, Settings, pull, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import confused, evaluate, outputs
from tideline.learning.fit import training_spends
from tideline.learning.local_training import LocalTraining, loss_at, train_at
from tideline.numerics.aggregation.averaging import weighted_sum

A = TypeVar("A", bound="Averaging")
C = TypeVar("C")
M = TypeVar("M")
S = TypeVar("S")
Penalty: TypeAlias = Callable[[A, nn.Module, Weights], Tensor | None]


@dataclass(frozen=True)
class Training(LocalTraining):
    """Settings of local training, which all of the family have, and other methods whose sites train alike."""

    rounds: int = setting(10, low=0, high=100_000, sizes=ROUNDS, doc="rounds of averaging, R")
    epochs: int = setting(1, low=1, sizes=EPOCHS, doc="local epochs a round, E")
    batch: int = setting(32, low=1, sizes=BATCH, doc="rows in a mini-batch")
    evaluate_every: int = setting(1, low=1, doc="rounds between scorings; the last round is always scored")
    roles: tuple[Role, ...] = setting((Role.SOURCE, Role.PEER), doc="whose labels are learnt from")
    confidence: bool = setting(False, doc="scorings tell the calibration error and confidences, too")


@dataclass(frozen=True)
class Averaging(Training):
    """Settings that all of the family have."""

    weighting: str = setting("samples", choices=("samples", "uniform"), doc="coefficients of the mean: n_i / n, or 1 / N")
    confusion: bool = setting(False, doc="in the end sites count which classes are taken for which")


@dataclass(frozen=True)
class FedAvg(Averaging):
    """Settings of federated averaging."""

    robust: str = setting("none", choices=folds.RULES, doc="how replies are folded: the mean, or a robust rule")
    byzantine: int = setting(0, low=0, doc="how many sites may be wrong, f, for all rules but none and clip")
    clip_norm: float = setting(0.0, low=0.0, doc="for clip, the largest |w_i - w|; 0: the round's lower median")


@dataclass(frozen=True)
class FedProx(FedAvg):
    """Settings of FedProx."""

    mu: float = setting(1e-2, low=0.0, sizes=pull("rate"), doc="weight of the proximal term; 0 is FedAvg, bit for bit")


class Rounds(Protocol):
    """Settings of how many rounds there are, and when models are scored."""

    @property
    def rounds(self) -> int: ...
    @property
    def evaluate_every(self) -> int: ...


def training(config: Training, privacy: Privacy) -> tuple[Charge, ...]:
    """What a round of training costs in a run that protects rows."""
    return training_spends(config.epochs, privacy)


def near(net: nn.Module, w: Weights, weight: float) -> Tensor | None:
    """FedProx's term (weight / 2) |w_i - w|^2 over what the network trains; absent for a weight of 0."""
    if weight == 0:
        return None
    moving = ((name, p) for name, p in net.named_parameters() if p.requires_grad)
    return weight / 2 * sum((((p - w[name].to(p.device)) ** 2).sum() for name, p in moving), torch.tensor(0.0))


def averaging(
    name: str,
    paper: str,
    summary: str,
    config: type[A],
    penalty: Penalty[A] | None = None,
    metrics: tuple[str, ...] = ("accuracy",),
    presets: Mapping[str, Mapping[str, Plain]] | None = None,
    folding: Folding[A] = folds.ROBUST,  # type: ignore[assignment]
) -> Algorithm[A, State, Nothing]:
    """A method in which each client minimises F_i + penalty from the common model; `folding` makes the next model of replies.

    Without a penalty that is FedAvg's plain loss F_i.
    """

    @step(metrics=("loss", "samples"), spends=training, by_unit=True, adapts=True)
    def train(order: Model, memory: Nothing, site: Site[A]) -> Outcome[Update, Nothing]:
        """E epochs of SGD from w on the site's labelled rows."""
        net, labels = nets.loaded(site.world, order.model, site.device), loss_at(site)

        def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            extra = penalty(site.config, net, order.model) if penalty else None
            plain = labels(net, x, y)
            return plain if extra is None else plain + extra

        c, n = site.config, site.samples
        value = train_at(site, net, loss, epochs=c.epochs, batch=c.batch)
        return Outcome(Update(nets.weights_of(net), n), memory, {"loss": value, "samples": n})

    def plan(c: A) -> Plan[A, State]:
        least, needs = folding.floor(c) if folding.floor else (None, "")
        sums, whom = folding.sums(c), to(learners, Model)
        fold = Phase("train", train, ask=whom, fold=folding.fold, floor=least, needs=needs, sampled=True, sums=sums)
        last: Plan[A, State] = (confused(to_all(Model), predict, takes=Model),) if c.confusion else ()
        score: Phase[A, State] = evaluate(to_all(Model), predict, takes=Model, metrics=metrics, confidence=c.confidence)
        return scored(c, (fold,), score) + last

    def fits(c: A, world: World, roster: Roster, trains: bool = True) -> None:
        nets.check(world)
        if folding.check:
            folding.check(c)
        teachers = needs_teachers(c, roster) if trains else 0
        if trains and folding.check_number:
            folding.check_number(c, teachers)

    def fits_initial_weights(c: A, world: World, roster: Roster) -> None:
        # In no rounds, initial weights may be scored where no client has labels to learn from.
        fits(c, world, roster, trains=c.rounds > 0)

    return Algorithm(
        name=name,
        paper=paper,
        summary=summary,
        config=config,
        state=State,
        begin=at_random(begin_from),
        plan=plan,
        fits=fits,
        presets=presets or PRESETS,
        notes=folding.notes,
        initial_weights=InitialWeights(begin_from, fits_initial_weights),
        result=(RunModel(model_of),),
    )


def scored(c: Rounds, work: Plan[C, S] | Callable[[int], Plan[C, S]], *score: Phase[C, S]) -> Plan[C, S]:
    """Rounds r = 1 .. R of work, or of work(r), with a scoring where one is due and after the last. Of no rounds, a scoring."""

    def one(r: int) -> Plan[C, S]:
        due = r == c.rounds or r % c.evaluate_every == 0
        return (*(work(r) if callable(work) else work), *(score if due else ()))

    return tuple(chain.from_iterable(map(one, range(1, c.rounds + 1)))) or score


def at_random(begin_from: Callable[[C, World, Roster, Generator, Weights], S]) -> Callable[[C, World, Roster, Generator], S]:
    """The first state from weights at random, made as from initial weights."""
    return lambda config, world, roster, rng: begin_from(config, world, roster, rng, nets.weights_of(nets.build(world)))


def begin_from(config: Training, world: World, roster: Roster, rng: Generator, weights: Weights) -> State:
    return State(weights)


def model_of(config: object, world: World, state: Model) -> Weights:
    """The common model, which such a run ends in."""
    return state.model


def needs_teachers(config: Training, roster: Roster) -> int:
    """How many clients have labels to learn from. Raises RosterRefused for none, ConfigRefused for roles that never have any."""
    if set(config.roles) <= {Role.TARGET}:
        what = f"config.roles is {', '.join(config.roles) or 'empty'}; a target's labels are never learnt from"
        raise ConfigRefused(what, "Name source or peer", path="config.roles")
    teachers = [m.id for m in roster if m.labelled and m.role in config.roles]
    if not teachers:
        roles = " or ".join(config.roles)
        what = f"No member can teach: the method needs at least one {roles} with labels; the roster has {described(roster)}"
        raise RosterRefused(what, f"Give a labelled site the role {roles}", path="roster")
    return len(teachers)


def learners(turn: Turn[Training]) -> tuple[ClientId, ...]:
    return turn.labelled(*turn.config.roles)


def predict(order: Model, memory: Nothing, site: Site[Training], x: Tensor) -> Tensor:
    return predict_by(order.model, memory, site, x)


def predict_by(model: Weights, memory: M, site: Site[Settings], x: Tensor | Rows) -> Tensor:
    """Outputs of the world's network with these weights."""
    return outputs(nets.loaded(site.world, model, site.device), x, site.device)


def mean_as(name: str) -> Callable[[S, Replies[Trained], Turn[C]], S]:
    """A fold that makes the plain mean of models the state's field of this name."""

    def fold(state: S, replies: Replies[Trained], turn: Turn[C]) -> S:
        mean = weighted_sum((1 / len(replies), reply.model) for reply in replies.values())
        return replace(state, **{name: mean})  # type: ignore[type-var]

    return fold


def models_in(order: Models) -> tuple[Weights, ...]:
    """What a client scores one after the other: the models are mapped files, and one network is in memory."""
    return order.models


PRESETS: Mapping[str, Mapping[str, Plain]] = {
    "demo": {"rounds": 8, "epochs": 1, "batch": 32, "rate": 0.03},
    "tiny": {"rounds": 2, "epochs": 1, "batch": 16, "rate": 0.05},
}
# As the comparisons of hFedF have it (Bartholet and others, 2024, table 10); what else there is was tuned for each data set.
COMPARED: Mapping[str, Plain] = {"rounds": 200, "epochs": 2, "batch": 64, "optimiser": "adam", "rate": 1e-3}

fedavg = averaging(
    "fedavg",
    "McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017",
    "The mean of models trained at the labelled sites",
    FedAvg,
    # What FedAvg learns from the labelled sites alone is the source-only model.
    metrics=("accuracy", "source_only"),
)

fedprox = averaging(
    "fedprox",
    "Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, 2020",
    "Federated averaging with a term that keeps local models near the common one",
    FedProx,
    lambda config, net, w: near(net, w, config.mu),
)
