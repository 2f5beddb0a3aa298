"""How a site chooses among k models: by the objective that it would train them on, over all of its rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.algorithms.source_free.adapting import adapt, labelled, own_labels, seen
from tideline.algorithms.source_free.family import Adapting
from tideline.algorithms.source_free.private import adapting_spends, seen_rows, shares
from tideline.algorithms.source_free.source import network
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.errors import Malformed
from tideline.core.record import Weights, field, record
from tideline.core.settings import setting
from tideline.core.step import Site
from tideline.learning.private.statistics import Bound, statistics, statistics_spend
from tideline.nets import layers
from tideline.numerics.labels.prototypes import information_maximisation

LEAST = torch.finfo(torch.float32).tiny  # of a probability, so that its logarithm is finite


@dataclass(frozen=True)
class Config(Adapting):
    """Settings of IFCA."""

    k: int = setting(3, low=1, high=100, doc="models; as many as there are domains, where that is known")
    noise: float = setting(0.01, low=0.0, doc="by how much the first k models differ, in units of each tensor's deviation")


@record
class Models:
    """Down: the k models, of which the site takes one."""

    f: Weights = field(doc="theta_1")
    others: tuple[Weights, ...] = field(doc="theta_2 .. theta_k")
    g: Weights = field(doc="the classifier of the source")


@dataclass(frozen=True)
class Fitted:
    """What a site makes of the model with the least F: its place, from 0, the model as it became, and the last loss."""

    best: int
    f: Weights
    loss: float


def spends(config: Config, privacy: Privacy) -> tuple[Charge, ...]:
    """The choice, and adaptation."""
    return (*statistics_spend(privacy), *adapting_spends()(config, privacy))


def fitted(order: Models, site: Site[Config]) -> Fitted:
    """E epochs from the model with the least F, the first of equals. One network is in memory; the models are files."""
    models = (order.f, *order.others)
    check_k(len(models), site.config)
    net = network(site, order.f, order.g)
    if site.private:
        suits = noised_unfitness(net, models, order.g, site, site.private)
    else:
        suits = [unfitness(filled(net, {**f, **order.g}), site) for f in models]
    best = suits.index(min(suits))
    loss = adapt(filled(net, {**models[best], **order.g}), site, own_labels(site))
    return Fitted(best, layers.backbone_of(nets.weights_of(net)), loss)


def check_k(models: int, config: Config) -> None:
    """Raises Malformed for other than k models: of more than the owner has agreed to, most would be one site's alone."""
    if models != config.k:
        what = f"The coordinator offers {models} models, and the run has k = {config.k}"
        raise Malformed(what, "The coordinator is broken, or not to be trusted: ask its operator")


def one_hot(place: int, k: int) -> Tensor:
    """1 at a place, 0 at the others."""
    return functional.one_hot(torch.tensor(place), k).float()


def filled(net: nn.Module, h: Weights) -> nn.Module:
    """The network with other weights, in place."""
    net.load_state_dict(dict(h))
    return net


def unfitness(net: nn.Module, site: Site[Config]) -> float:
    """F(theta) = L_IM + the cross-entropy with theta's own pseudo-labels, over all rows, in evaluation mode.

    Infinite for a model whose outputs are not finite, so that one that another site spoilt is not chosen.
    """
    given = seen(net, site)
    if not bool(torch.isfinite(given.z).all()) or not bool(torch.isfinite(given.p).all()):
        return math.inf
    log_p = given.p.double().clamp_min(LEAST).log()
    labels = labelled(given, site.config).labels
    return float(information_maximisation(log_p) + functional.nll_loss(log_p, labels))


def noised_unfitness(net: nn.Module, models: tuple[Weights, ...], g: Weights, site: Site[Config], meter: Meter) -> list[float]:
    """F of each model in a run that protects rows, from one vector of noised sums: the mean output, the mean entropy, and the
    mean cross-entropy with the likeliest class. A row's are log M at most. A model whose outputs are not finite knows nothing of
    a row: all classes alike, as another site may have spoilt it, and the other models' sums are to stay.
    """
    M, rows = site.world.classes, meter.asked.rows

    def of(x: Tensor) -> list[Tensor]:
        outs = torch.stack([seen_rows(filled(net, {**f, **g}), x)[1] for f in models], 1).double()
        outs = torch.where(outs.isfinite().all(2, keepdim=True), outs, 1 / M)
        log_p = outs.clamp_min(LEAST).log()
        costs = torch.stack([-(outs * log_p).sum(2), -log_p.amax(2)], 2)
        return [outs, costs]

    k = len(models)
    bounds = (Bound(math.sqrt(k), k * M), Bound(math.sqrt(2 * k) * math.log(M), k * 2))
    outs, costs = statistics(site, meter, of, bounds)
    o = [shares(each, rows) for each in outs.view(k, M)]
    return [float((p * p.log()).sum() + cost.sum() / rows) for p, cost in zip(o, costs.view(k, 2), strict=True)]


def scattered(f: Weights, noise: float, rng: Generator) -> dict[str, Tensor]:
    """f + N(0, s^2), s = noise times the standard deviation of each tensor that is trained; what batch norm measures stays."""
    made, trained = dict(f), layers.parameters(f)
    for name in sorted(trained):
        w = f[name]
        s = noise * float(w.double().std(correction=0))
        made[name] = w + s * torch.randn(w.shape, generator=rng, dtype=w.dtype)
    return made
