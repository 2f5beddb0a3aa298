"""Local training by settings: the optimiser, its rate over the rounds, and a cross-entropy that may be smoothed and weighed.

SGD with momentum (Sutskever et al., ICML 2013), Adam (Kingma, Ba, ICLR 2015), AdamW (Loshchilov, Hutter, ICLR 2019); half a
cosine (Loshchilov, Hutter, ICLR 2017); label smoothing (Szegedy et al., CVPR 2016). A method's settings are a subclass, with
its own defaults. An optimiser is fresh with each order; a schedule spans the rounds of a run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from tideline.core.errors import ConfigRefused
from tideline.core.settings import ELSEWHERE, RATE, ROUNDS, pull, setting
from tideline.core.step import Data, Site
from tideline.learning.fit import Loss, fit_at
from tideline.learning.stepping import fused

C = TypeVar("C", bound="LocalTraining")
P = TypeVar("P", bound="TrainingOptions")
Criterion = Callable[[Tensor, Tensor], Tensor]
OPTIMISERS = ("sgd", "adam", "adamw")
SCHEDULES = CONSTANT, COSINE, STEP = "constant", "cosine", "step"
BALANCED = "balanced"


@dataclass(frozen=True)
class TrainingOptions:
    """How a site trains a network, beside the rate: settings that all methods share whose sites train one."""

    optimiser: str = setting("sgd", choices=OPTIMISERS, doc="of local training; adam and adamw have no use for momentum")
    nesterov: bool = setting(False, doc="sgd: momentum after Nesterov")
    schedule: str = setting(CONSTANT, choices=SCHEDULES, doc="the rate over the rounds")
    warmup: int = setting(0, low=0, high=100_000, doc="first rounds, over which the rate rises to its full height")
    decay_every: int = setting(10, low=1, high=100_000, sizes=ELSEWHERE, doc="step: rounds after which the rate falls")
    decay_by: float = setting(0.1, low=0.0, high=1.0, doc="step: what the rate is multiplied by then")
    label_smoothing: float = setting(0.0, low=0.0, high=0.99, doc="share of a label that is spread over all classes")
    class_weights: str = setting("none", choices=("none", BALANCED), doc="balanced: a class counts alike however few rows it has")
    clip_gradient: float = setting(0.0, low=0.0, doc="longest gradient of a mini-batch; longer ones are shortened; 0: none is")
    patience: int = setting(
        0, low=0, high=100_000, doc="epochs without a better loss on validation rows that end an order's; 0: none"
    )

    def __post_init__(self) -> None:
        """Raises ConfigRefused for settings that do not go together."""
        if self.nesterov and self.optimiser != "sgd":
            what = f"config.nesterov is true, and config.optimiser is {self.optimiser}"
            raise ConfigRefused(what, "Leave nesterov out, or use optimiser: sgd", path="config.nesterov")


@dataclass(frozen=True)
class LocalTraining(TrainingOptions):
    """The same with the rate, for a method whose sites train in each of its rounds."""

    rounds: int = setting(10, low=0, high=100_000, sizes=ROUNDS, doc="rounds, R")
    rate: float = setting(1e-2, low=0.0, sizes=RATE, doc="learning rate of local training, eta")
    momentum: float = setting(0.9, low=0.0, high=1.0, doc="momentum of the local SGD; fresh each round")
    weight_decay: float = setting(5e-4, low=0.0, sizes=pull("rate"), doc="weight decay of local training")


def rate_at(c: TrainingOptions, rate: float, number: int, rounds: int) -> float:
    """The learning rate of a round, from 1, of so many: `rate` by the schedule.

    warmup W: r / W of it in round r <= W. cosine: (1 + cos(pi t / T)) / 2 of it after t of the T rounds that follow. step: times
    `decay_by` after each `decay_every` of them.
    """
    if number <= c.warmup:
        return rate * number / c.warmup
    t, left = number - 1 - c.warmup, max(rounds - c.warmup, 1)
    if c.schedule == COSINE:
        return rate * (1 + math.cos(math.pi * t / left)) / 2
    return rate * c.decay_by ** (t // c.decay_every) if c.schedule == STEP else rate


def optimiser(
    c: TrainingOptions, parameters: Iterable[nn.Parameter], rate: float, momentum: float, weight_decay: float
) -> Optimizer:
    """A fresh optimiser of the settings' name. Weight decay is a term of the gradient; in adamw it is apart from it."""
    moving = list(parameters)
    one = fused(moving)
    if c.optimiser == "adam":
        return torch.optim.Adam(moving, lr=rate, weight_decay=weight_decay, fused=one)
    if c.optimiser == "adamw":
        return torch.optim.AdamW(moving, lr=rate, weight_decay=weight_decay, fused=one)
    ahead = c.nesterov and momentum > 0  # without momentum it is the same step
    return torch.optim.SGD(moving, lr=rate, momentum=momentum, weight_decay=weight_decay, nesterov=ahead, fused=one)


def optimiser_of(c: LocalTraining, parameters: Iterable[nn.Parameter], number: int) -> Optimizer:
    """The same at the rate of a round, from 1."""
    return optimiser(c, parameters, rate_at(c, c.rate, number, c.rounds), c.momentum, c.weight_decay)


def shorten(parameters: Iterable[nn.Parameter], c: TrainingOptions) -> None:
    """Bring the gradient of a mini-batch to the settings' longest, in place, where it is longer."""
    if c.clip_gradient:
        nn.utils.clip_grad_norm_(parameters, c.clip_gradient)


def criterion(c: TrainingOptions, y: Tensor | None, classes: int, device: str = "cpu") -> Criterion:
    """The mean cross-entropy of logits (b, classes) and labels (b,), smoothed and weighed by the settings.

    y (n,): the training labels. balanced: a row of class k weighs n / (K n_k), K the number of classes that have rows, so that
    the mean over y is 1.
    """
    if c.class_weights != BALANCED and not c.label_smoothing:
        return functional.cross_entropy
    weight = None if c.class_weights != BALANCED or y is None else balanced(y, classes).to(device)
    return partial(functional.cross_entropy, weight=weight, label_smoothing=c.label_smoothing)


def balanced(y: Tensor, classes: int) -> Tensor:
    """The weight of each class (classes,) float32; 0 of one without rows."""
    n_k = torch.bincount(y, minlength=classes).float()
    weight = len(y) / (float((n_k > 0).sum()) * n_k.clamp(min=1.0))
    return torch.where(n_k > 0, weight, 0.0)


def loss_at(site: Site[P], data: Data | None = None) -> Loss:
    """The cross-entropy of a batch by the site's settings, with class weights by its labels or those of `data`."""
    rows = site.data if data is None else data
    measure = criterion(site.config, rows.y, site.world.classes, site.device)
    return lambda net, x, y: measure(net(x), y)


def train_at(
    site: Site[C],
    net: nn.Module,
    loss: Loss,
    *,
    epochs: int,
    batch: int,
    data: Data | None = None,
    moving: Iterable[nn.Parameter] | None = None,
    steps: int = 0,
    least: int = 2,
) -> float:
    """`fit_at` with a fresh optimiser by the site's settings, at the rate of its round. moving: what is trained, if not all."""
    c = site.config
    by = optimiser_of(c, net.parameters() if moving is None else moving, site.round)
    many = {"epochs": epochs, "batch": batch, "steps": steps, "least": least}
    return fit_at(site, net, loss, by, **many, data=data, clip=c.clip_gradient, patience=c.patience)


def patience_of(config: object) -> int:
    """The patience that a method's settings ask for, or a group among them; 0 where they have none."""
    return max((each.patience for each in options_in(config)), default=0)


def balances_classes(config: object) -> bool:
    """Whether a method's settings weigh classes by how many rows they have."""
    return any(each.class_weights == BALANCED for each in options_in(config))


def options_in(config: object) -> list[TrainingOptions]:
    """Options of training among a method's settings, and their groups."""
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        return []
    groups = (config, *(getattr(config, each.name) for each in dataclasses.fields(config)))
    return [each for each in groups if isinstance(each, TrainingOptions)]
