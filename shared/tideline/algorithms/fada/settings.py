"""Settings of FADA and of f-DANN, symbols as in the paper; what both refuse, and what they do otherwise than asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from tideline import nets
from tideline.algorithms.source_free.family import EndCounts
from tideline.algorithms.source_free.source import check_peers
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.run import Role, Roster
from tideline.core.settings import BATCH, ELSEWHERE, EPOCHS, RATE, ROUNDS, ROWS, Plain, setting, steps
from tideline.learning.local_training import COSINE, SCHEDULES, LocalTraining, rate_at
from tideline.nets.disentangling import numbers
from tideline.nets.disentangling import sizes as network_sizes
from tideline.nets.layers import backbone_of, parameters
from tideline.numerics.alignment.adversarial import epsilon

DELTA, GRAD, PARAM = "delta", "grad", "param"
GRADIENTS, FEATURES = "gradients", "features"
FLATTENED, RAW, UNIFORM = "flattened", "raw", "uniform"
LEAST = 16  # rows that a half of DI's gradient is of: that of fewer tells their features


@dataclass(frozen=True)
class Aligned(EndCounts, LocalTraining):
    """Settings of both methods."""

    rounds: int = setting(20, low=1, high=100_000, sizes=ROUNDS, doc="rounds of identify, improve, follow")
    source_rounds: int = setting(
        5, low=0, high=100_000, sizes=ROUNDS, doc="rounds of averaging among the sources first, sealed; 0: none"
    )
    source_epochs: int = setting(1, low=1, sizes=EPOCHS, doc="local epochs of such a round")
    identify_steps: int = setting(10, low=1, high=10_000, sizes=ELSEWHERE, doc="steps of DI in a round, each an exchange")
    identify_batch: int = setting(64, low=LEAST, sizes=ROWS, doc="rows that a half of the gradient of eq. 4 is of")
    identify_rate: float = setting(
        25.0, low=0.0, high=1e6, sizes=ELSEWHERE, doc="learning rate of DI, at the coordinator, times the length of f"
    )
    epochs: int = setting(1, low=1, sizes=EPOCHS, doc="local epochs a round, E, at sources and targets")
    steps: int = setting(0, low=0, sizes=steps("batch"), doc="if not 0, so many mini-batches in place of epochs")
    batch: int = setting(32, low=LEAST, sizes=BATCH, doc="rows in a mini-batch, B")
    rate: float = setting(0.2, low=0.0, sizes=RATE, doc="learning rate of local training, eta")
    momentum: float = setting(0.0, low=0.0, high=1.0, doc="momentum of the local SGD; fresh each round")
    schedule: str = setting(COSINE, choices=SCHEDULES, doc="the rate over the rounds")
    lambda_adv: float = setting(0.1, low=0.0, doc="weight of eq. 5 once it is whole; 0: no alignment")
    kept: float = setting(
        0.5, low=0.0, high=1.0, doc="share of what eq. 5 made of G_t in earlier rounds that stays; 1: all of it, as in the paper"
    )
    meet: bool = setting(True, doc="sources begin each round from the mean of what they sent, sealed; false: each goes on alone")
    clustered: int = setting(256, low=2, high=100_000, doc="rows of a target whose features are watched: clusters, spread")
    evaluate_every: int = setting(5, low=1, doc="rounds between scorings; the last round is always scored")

    def identify_rate_of(self, d: int) -> float:
        """The learning rate of DI for features of length d: eq. 4 is the steeper the longer they are; overshot, it diverges."""
        return self.identify_rate / d

    def rate_of(self, number: int) -> float:
        """eta of a round, from 1."""
        return rate_at(self, self.rate, number, self.rounds)


@dataclass(frozen=True)
class FDANN(Aligned):
    """Steps 1 and 2, all sources alike."""

    mode: str = setting(DELTA, choices=(DELTA, PARAM), doc="what targets are sent: a change of G and C, or G and C")

    parts: ClassVar[str] = "II"
    attention: ClassVar[str] = UNIFORM
    critic: ClassVar[str] = GRADIENTS

    def weight(self, number: int) -> float:
        """lambda_adv (2 / (1 + exp(-10 p)) - 1), p the share of rounds done."""
        return self.lambda_adv * (2 / (1 + math.exp(-10 * (number - 1) / self.rounds)) - 1)


@dataclass(frozen=True)
class FADA(Aligned):
    """Attention, alignment and disentangling."""

    mode: str = setting(
        DELTA, choices=(DELTA, GRAD, PARAM), doc="what targets are sent: a change of G and C, a gradient, or G and C"
    )
    parts: str = setting("III", choices=("I", "II", "III"), doc="I: attention; II: and alignment; III: and disentangling")
    attention: str = setting(
        FLATTENED,
        choices=(FLATTENED, RAW, UNIFORM),
        doc="(1 + softmax) / (N + 1) of all gains so far, softmax of these, or 1 / N",
    )
    sharpness: float = setting(1.0, low=0.0, high=1e6, doc="what gains are multiplied by before the softmax")
    lambda_ent: float = setting(1.0, low=0.0, doc="weight of CI and of eq. 7")
    lambda_mi: float = setting(1e-4, low=0.0, doc="weight of eq. 8")
    lambda_rec: float = setting(1e-2, low=0.0, doc="weight of the reconstruction")
    ramp: float = setting(0.1, low=0.0, high=1.0, doc="share of the rounds over which lambda_adv grows from 0")
    critic: str = setting(
        GRADIENTS,
        choices=(GRADIENTS, FEATURES),
        doc="what DI learns from: gradients, or features of mini-batches that sites send",
    )
    clip: float = setting(1.0, low=1e-6, high=1e6, doc="features: longest row that is sent, c")
    noise: float = setting(1.0, low=0.0, high=1e6, doc="features: standard deviation of the noise in units of c, sigma")
    delta: float = setting(1e-5, low=1e-300, high=0.5, doc="features: delta of the (epsilon, delta) that is told")
    epsilon: float = setting(10.0, low=0.0, doc="features: epsilon above which the run's notes warn")

    def weight(self, number: int) -> float:
        """lambda_adv after a linear growth: from the start at full weight G_t may make one point of all rows."""
        grown = number / (self.ramp * self.rounds) if self.ramp else 1.0
        return self.lambda_adv * min(1.0, grown)


Either: TypeAlias = FADA | FDANN


def as_fada(c: Either) -> FADA:
    """Settings of what FADA alone does: gains, disentangling, a critic of features."""
    assert isinstance(c, FADA)
    return c


def aligns(c: Either) -> bool:
    """Whether there are domain identifiers at all."""
    return bool(c.parts != "I" and c.lambda_adv > 0)


def forgets(c: Either) -> bool:
    """Whether a target tells apart what eq. 5 made of G_t from what sources taught it. With mode param it never does."""
    return bool(aligns(c) and c.kept < 1 and c.mode != PARAM)


def begins_anew(c: Either) -> bool:
    """Whether a target that missed a round can begin where the sources do: they have one model, and it knows what eq. 5 made."""
    return bool(c.meet and c.mode != PARAM and (forgets(c) or not aligns(c)))


def disentangles(c: Either) -> bool:
    """Whether a source has networks beside G and C."""
    return isinstance(c, FADA) and c.parts == "III" and max(c.lambda_ent, c.lambda_mi, c.lambda_rec) > 0


PRESETS: Mapping[str, Mapping[str, Plain]] = {
    "demo": {"rounds": 8, "identify_steps": 4, "source_epochs": 2, "batch": 16, "evaluate_every": 4},
    "digits": {"rounds": 100, "identify_steps": 5, "identify_batch": 128, "source_epochs": 2, "evaluate_every": 10},
    "digits_small": {},
    "object": {"rounds": 40, "rate": 1e-3, "weight_decay": 1e-3, "identify_batch": 64, "evaluate_every": 10},
    "tiny": {"rounds": 2, "source_rounds": 1, "identify_steps": 2, "identify_batch": 24, "batch": 16},
}


def fits(config: Either, world: World, roster: Roster) -> None:
    """Raises ConfigRefused for settings that exclude each other, RosterRefused without a labelled source, or without a target."""
    nets.check(world)
    if config.mode == GRAD and config.steps != 1:
        what = f"config.mode is grad, the gradient of one mini-batch, and config.steps is {config.steps}"
        raise ConfigRefused(what, "Set steps to 1, or use mode delta", path="config.steps")
    if config.mode == GRAD and (config.optimiser != "sgd" or config.momentum):
        what = f"config.mode is grad, a step of plain SGD, and the optimiser is {config.optimiser}, momentum {config.momentum:g}"
        raise ConfigRefused(what, "Use optimiser: sgd and momentum: 0, or mode delta", path="config.optimiser")
    if config.critic == FEATURES and not aligns(config):
        what = "config.critic is features, and there is nothing that they are for: no alignment"
        raise ConfigRefused(what, "Use parts II or III and lambda_adv above 0, or leave critic out", path="config.critic")
    if config.critic == FEATURES and bare(world):
        what = f"{world.model} has nothing below its classifier: its features would be the rows themselves"
        raise ConfigRefused(what, "Use another network, or leave config.critic out", path="world.model")
    check_peers(roster, "sources teach, and targets are taught")
    blind = sorted(m.id for m in roster if m.role is Role.SOURCE and not m.labelled)
    if blind:
        what = f"{blind[0]} is a source, and has no labels"
        raise RosterRefused(what, "Make it a target, or leave it out", path=f"roster.{blind[0]}")
    for role in (Role.SOURCE, Role.TARGET):
        if not any(m.role is role for m in roster):
            raise RosterRefused(f"No member of the roster is a {role.value}", f"Add a site as {role.value}", path="roster")


def bare(world: World) -> bool:
    """Whether the network has no layers below its classifier."""
    return not parameters(backbone_of(nets.template(world)))


def sizes(config: Either, world: World) -> Mapping[str, int]:
    """p, the parameters of an identifier, and d, the features."""
    d = network_sizes(world)[1]
    return {"p": numbers(d), "d": d}


def notes(config: Either, world: World) -> tuple[str, ...]:
    """What noise is worth, what cannot be aligned, and what cannot be weighed."""
    said = []
    if config.attention != UNIFORM and config.clustered < world.classes:
        said.append(f"clustered is {config.clustered}, below {world.classes} classes: no clusters, so all sources weigh alike")
    if bare(world) and aligns(config):
        said.append(f"{world.model} has nothing below its classifier: the features are the rows, and are not aligned")
    if config.critic == FEATURES:
        said.append(worth(as_fada(config)))
    return tuple(said)


def worth(c: FADA) -> str:
    """The budget of all exchanges, in words."""
    releases = c.rounds * c.identify_steps
    if c.noise == 0:
        return f"{releases} exchanges show features without noise: epsilon is infinite"
    spent = epsilon(releases, c.noise, c.delta)
    said = f"{releases} exchanges show features at noise {c.noise:g}: epsilon {spent:.3g} at delta {c.delta:g}"
    return said + (f", above the limit of {c.epsilon:g}: raise noise, or have fewer exchanges" if spent > c.epsilon else "")
