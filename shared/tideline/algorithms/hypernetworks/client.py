"""A client's half: training from the model that was generated for it, and scoring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from tideline import nets
from tideline.algorithms.hypernetworks.messages import Counted, Model, Models, Shared, Update
from tideline.core.data import View
from tideline.core.phase import Phase
from tideline.core.record import Nothing
from tideline.core.step import Outcome, Site, Step, step
from tideline.learning.evaluate import Histogram, Offer, outputs, tallied, told_of
from tideline.learning.fit import cross_entropy, fit
from tideline.learning.optimisers import optimiser
from tideline.numerics.calibration import nothing

METRICS = ("first_loss", "loss", "samples")


@step(metrics=METRICS)
def train(order: Model, memory: Nothing, site: Site) -> Outcome[Update, Nothing]:
    """Local epochs from phi_i; Delta_i."""
    delta, metrics = trained(order, site)
    return Outcome(Update(delta), memory, metrics)


@step(metrics=METRICS)
def train_counted(order: Model, memory: Nothing, site: Site) -> Outcome[Counted, Nothing]:
    """Local epochs from phi_i; Delta_i and n_i."""
    delta, metrics = trained(order, site)
    return Outcome(Counted(delta, len(site.data)), memory, metrics)


@step(metrics=METRICS)
def train_alone(order: Model, memory: Nothing, site: Site) -> Outcome[Shared, Nothing]:
    """Local training from phi_i; Delta_i."""
    delta, metrics = trained(order, site)
    return Outcome(Shared(delta), memory, metrics)


def trained(order: Model, site: Site) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Delta_i, and what is told: the loss of the first batch, which is phi_i's own, and the mean of the last epoch."""
    c, first = site.config, list[float]()
    net = nets.loaded(site.world, order.model, site.device)

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value = cross_entropy(net, x, y)
        if not first:
            first.append(float(value.detach()))
        return value

    last = fit(
        *(net, site.data, loss, optimiser(c, net.parameters())),
        epochs=c.epochs,
        batch=c.batch,
        rng=site.rng,
        device=site.device,
        tick=site.tick,
        steps=getattr(c, "batches", 0),
        clip=getattr(c, "max_norm", 0.0),
    )
    delta = {name: w - order.model[name] for name, w in nets.weights_of(net).items()}
    return delta, {"first_loss": first[0], "loss": last, "samples": len(site.data)}


def scoring(offer: Offer, tell: Callable[..., Any], confidence: bool) -> Phase:
    """A phase that scores each site's held-out rows by the models that it is sent; its accuracy is their mean.

    So id is the mean over clients of their own models' accuracies, and ood, of a domain that nobody trained on, the mean of all.
    """

    def score(order: Models, memory: Nothing, site: Site) -> Outcome[Any, Nothing]:
        found = nothing()
        for model in order.models:
            net = nets.loaded(site.world, model, site.device)
            found += tallied(by(net), order, memory, site)
        told = told_of(found, ("accuracy",))
        if confidence:
            return Outcome(Histogram(found.right, found.wrong), memory, told)
        return Outcome(Nothing(), memory, {name: value for name, value in told.items() if name == "accuracy"})

    metrics, gives = (("accuracy", "ece"), Histogram) if confidence else (("accuracy",), Nothing)
    return Phase("score", Step("score", score, Models, Nothing, gives, metrics, View.HELD_OUT), ask=offer, tell=tell)


def by(net: nn.Module) -> Any:
    """Outputs of this network."""
    return lambda order, memory, site, x: outputs(net, x, site.device)
