"""Federated averaging and its family: every client trains the common model, the coordinator takes the mean.

FedAvg (McMahan et al., AISTATS 2017) and FedProx (Li et al., MLSys 2020). A member of the family is one call of `averaging`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Protocol, TypeAlias, TypeVar

import torch
from torch import Generator, Tensor, nn

from tideline import nets
from tideline.algorithms.averaging import folds
from tideline.algorithms.averaging.folds import Folding
from tideline.algorithms.averaging.messages import Model, State, Update
from tideline.core.algorithm import Algorithm, InitialWeights
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.phase import Phase, Plan, Turn
from tideline.core.record import Nothing, Weights
from tideline.core.run import ClientId, Role, Roster, World
from tideline.core.settings import Plain, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.confusion import confused
from tideline.learning.evaluate import evaluate, outputs
from tideline.learning.fit import cross_entropy, fit
from tideline.learning.optimisers import OPTIMISERS, optimiser


@dataclass(frozen=True)
class Training:
    """Settings of local training, which all of the family have, and other methods whose sites train alike."""

    rounds: int = setting(10, low=0, high=100_000, doc="rounds of averaging, R")
    epochs: int = setting(1, low=1, doc="local epochs a round, E")
    batch: int = setting(32, low=1, doc="rows in a mini-batch")
    rate: float = setting(1e-2, low=0.0, doc="learning rate of local training, eta")
    momentum: float = setting(0.9, low=0.0, high=1.0, doc="momentum of the local SGD; fresh each round")
    weight_decay: float = setting(5e-4, low=0.0, doc="weight decay of local training")
    evaluate_every: int = setting(1, low=1, doc="rounds between scorings; the last round is always scored")
    roles: tuple[Role, ...] = setting((Role.SOURCE, Role.PEER), doc="whose labels are learnt from")
    optimiser: str = setting("sgd", choices=OPTIMISERS, doc="of local training; adam has no use for momentum")
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

    mu: float = setting(1e-2, low=0.0, doc="weight of the proximal term; 0 is FedAvg, bit for bit")


C = TypeVar("C")
A = TypeVar("A", bound=Averaging)
S = TypeVar("S")


class Rounds(Protocol):
    """Settings of how many rounds there are, and when models are scored."""

    @property
    def rounds(self) -> int: ...
    @property
    def evaluate_every(self) -> int: ...


Penalty: TypeAlias = Callable[[A, nn.Module, Weights], Tensor | None]


def no_penalty(config: Averaging, net: nn.Module, w: Weights) -> Tensor | None:
    """FedAvg's local objective is the plain loss F_i."""
    return None


def proximal(config: FedProx, net: nn.Module, w: Weights) -> Tensor | None:
    """FedProx's term (mu / 2) |w_i - w|^2 over the trainable parameters; absent for mu = 0."""
    if config.mu == 0:
        return None
    distance = sum((((p - w[name].to(p.device)) ** 2).sum() for name, p in net.named_parameters()), torch.tensor(0.0))
    return config.mu / 2 * distance


def averaging(
    name: str,
    paper: str,
    summary: str,
    config: type[A],
    penalty: Penalty[A] = no_penalty,
    told: tuple[str, ...] = ("accuracy",),
    presets: Mapping[str, Mapping[str, Plain]] | None = None,
    folding: Folding[A] = folds.ROBUST,  # type: ignore[assignment]
) -> Algorithm[A, State, Nothing]:
    """A method in which each client minimises F_i + penalty from the common model; `folding` makes the next model of replies."""

    @step(metrics=("loss", "samples"))
    def train(order: Model, memory: Nothing, site: Site[A]) -> Outcome[Update, Nothing]:
        """E epochs of SGD from w on the site's labelled rows."""
        net = nets.loaded(site.world, order.model, site.device)

        def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            extra = penalty(site.config, net, order.model)
            plain = cross_entropy(net, x, y)
            return plain if extra is None else plain + extra

        value = local_sgd(net, site, loss)
        update = Update(nets.weights_of(net), len(site.data))
        return Outcome(update, memory, {"loss": value, "samples": len(site.data)})

    def plan(c: A) -> Plan[A, State]:
        least, needs = folding.floor(c)
        fold = Phase("train", train, ask=model_to_learners, fold=folding.fold, floor=least, needs=needs)
        last = (confused(model_to_all, predict, takes=Model),) if c.confusion else ()
        return scored(c, fold, evaluate(model_to_all, predict, takes=Model, metrics=told, confidence=c.confidence)) + last

    def fits(c: A, world: World, roster: Roster) -> None:
        nets.check(world)
        folding.check(c)
        folding.check_number(c, needs_teachers(c, roster))

    def fits_brought(c: A, world: World, roster: Roster) -> None:
        # Weights that were brought may be scored, in no rounds, where nobody has labels to learn from.
        if c.rounds:
            return fits(c, world, roster)
        nets.check(world)
        return folding.check(c)

    return Algorithm(
        *(name, paper, summary, config, State, begin, plan),
        fits=fits,
        presets=presets or PRESETS,
        notes=folding.notes,
        initial_weights=InitialWeights(begin_from, fits_brought),
    )


def scored(c: Rounds, work: Phase[C, S], score: Phase[C, S]) -> Plan[C, S]:
    """Rounds 1 .. R of work, each followed by a scoring where one is due. Of no rounds, a scoring."""
    rounds = ((work, score) if due(c, r) else (work,) for r in range(1, c.rounds + 1))
    return tuple(chain.from_iterable(rounds)) or (score,)


def local_sgd(net: nn.Module, site: Site[Training], loss: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> float:
    """The family's local training, in place; gives the mean loss of the last epoch."""
    c = site.config
    by = optimiser(c, net.parameters())
    return fit(net, site.data, loss, by, epochs=c.epochs, batch=c.batch, rng=site.rng, device=site.device, tick=site.tick)


def due(c: Rounds, r: int) -> bool:
    """Whether round r is followed by a scoring."""
    return r == c.rounds or r % int(c.evaluate_every) == 0


def begin(config: Training, world: World, roster: Roster, rng: Generator) -> State:
    """w at random."""
    return State(nets.weights_of(nets.build(world)))


def begin_from(config: Training, world: World, roster: Roster, rng: Generator, weights: Weights) -> State:
    """w as it was brought."""
    return State(weights)


def needs_teachers(config: Training, roster: Roster) -> int:
    """How many have labels to learn from. Raises RosterRefused where nobody has, ConfigRefused for roles that never have."""
    if set(config.roles) <= {Role.TARGET}:
        said = ", ".join(r.value for r in config.roles) or "empty"
        what = f"config.roles is {said}; a target's labels are never learnt from"
        raise ConfigRefused(what, "Name source or peer", path="config.roles")
    teachers = [m.id for m in roster if m.labelled and m.role in config.roles]
    if not teachers:
        roles = " or ".join(r.value for r in config.roles)
        have = ", ".join(f"{m.id} ({m.role.value}{'' if m.labelled else ', no labels'})" for m in roster)
        raise RosterRefused(
            f"No member can teach: the method needs at least one {roles} with labels; the roster has {have}",
            f"Give a labelled site the role {roles}",
            path="roster",
        )
    return len(teachers)


def learners(turn: Turn[Training]) -> tuple[ClientId, ...]:
    """Who trains, sorted."""
    return tuple(sorted(m.id for m in turn.roster if m.labelled and m.role in turn.config.roles))


def model_to_learners(state: State, turn: Turn[Training]) -> dict[ClientId, Model]:
    """w to those who train."""
    return dict.fromkeys(learners(turn), Model(state.model))


def model_to_all(state: State, turn: Turn[Training]) -> dict[ClientId, Model]:
    """w to everybody."""
    return dict.fromkeys(turn.members(), Model(state.model))


def predict(order: Model, memory: Nothing, site: Site[Training], x: Tensor) -> Tensor:
    """Outputs of w."""
    return outputs(nets.loaded(site.world, order.model, site.device), x, site.device)


PRESETS: Mapping[str, Mapping[str, Plain]] = {
    "demo": {"rounds": 8, "epochs": 1, "batch": 32, "rate": 0.03},
    "tiny": {"rounds": 2, "epochs": 1, "batch": 16, "rate": 0.05},
}

fedavg = averaging(
    "fedavg",
    "McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017",
    "The mean of models trained at the labelled sites",
    FedAvg,
    # What FedAvg learns from the labelled sites alone is the source-only model.
    told=("accuracy", "source_only"),
)

fedprox = averaging(
    "fedprox",
    "Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, 2020",
    "Federated averaging with a term that keeps local models near the common one",
    FedProx,
    proximal,
)
