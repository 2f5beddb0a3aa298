"""A client's half: training from the model that was generated for it, and scoring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from torch import Tensor, nn

from tideline import nets
from tideline.algorithms.averaging import models_in, predict_by
from tideline.algorithms.averaging.messages import Model, Models
from tideline.algorithms.hypernetworks import Counted, Hyper, Shared, Update
from tideline.core.phase import Folded, Phase, Replies, Turn
from tideline.core.record import Nothing
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import Histogram, Offer, evaluate
from tideline.learning.fit import cross_entropy, fit_at
from tideline.learning.optimisers import Descent, optimiser

C = TypeVar("C", bound=Hyper)
S = TypeVar("S")
METRICS = ("first_loss", "loss", "samples")


class Alone(Descent, Protocol):
    """Settings of a client that is asked alone: so many mini-batches, or epochs, gradients cut to a norm."""

    @property
    def epochs(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def max_norm(self) -> float: ...


@step(metrics=METRICS)
def train(order: Model, memory: Nothing, site: Site[Hyper]) -> Outcome[Update, Nothing]:
    """E local epochs from phi_i; Delta_i."""
    delta, metrics = trained(order, site)
    return Outcome(Update(delta), memory, metrics)


@step(metrics=METRICS)
def train_counted(order: Model, memory: Nothing, site: Site[Hyper]) -> Outcome[Counted, Nothing]:
    """E local epochs from phi_i; Delta_i and n_i."""
    delta, metrics = trained(order, site)
    return Outcome(Counted(delta, len(site.data)), memory, metrics)


@step(metrics=METRICS)
def train_alone(order: Model, memory: Nothing, site: Site[Alone]) -> Outcome[Shared, Nothing]:
    """So many mini-batches, or E epochs, from phi_i, gradients cut to a norm; Delta_i."""
    delta, metrics = trained(order, site, site.config.batches, site.config.max_norm)
    return Outcome(Shared(delta), memory, metrics)


def trained(
    order: Model, site: Site[Hyper | Alone], steps: int = 0, clip: float = 0.0
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Delta_i, and what is told: the loss of the first batch, which is phi_i's own, and the mean of the last epoch."""
    c, first = site.config, list[float]()
    net = nets.loaded(site.world, order.model, site.device)

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value = cross_entropy(net, x, y)
        if not first:
            first.append(float(value.detach()))
        return value

    by = optimiser(c, net.parameters())
    last = fit_at(site, net, loss, by, epochs=c.epochs, batch=c.batch, steps=steps, clip=clip)
    delta = {name: w - order.model[name] for name, w in nets.weights_of(net).items()}
    return delta, {"first_loss": first[0], "loss": last, "samples": len(site.data)}


def scoring(
    offer: Offer[S, C, Models], fold: Callable[[S, Replies[Histogram], Turn[C]], Folded[S]], confidence: bool
) -> Phase[C, S]:
    """A phase that scores each site's held-out rows by the models that it is sent; its accuracy is their mean.

    So id is the mean over clients of their own models' accuracies, and ood, of a domain that nobody trained on, the mean of all.
    """
    score: Phase[C, S] = evaluate(offer, predict_by, takes=Models, confidence=confidence, each=models_in)
    return replace(score, fold=fold)
