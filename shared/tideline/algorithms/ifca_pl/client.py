"""IFCA at a site: the model that suits its rows best, adapted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.algorithms.ifca_pl.messages import Chosen, Models
from tideline.algorithms.source_free.adapting import adapt, labelled, own_labels, seen
from tideline.algorithms.source_free.messages import Mine
from tideline.algorithms.source_free.source import network
from tideline.core.record import Weights
from tideline.core.step import Outcome, Site, step
from tideline.nets import layers
from tideline.numerics.labels.prototypes import information_maximisation

if TYPE_CHECKING:
    from tideline.algorithms.ifca_pl import Config

LEAST = torch.finfo(torch.float32).tiny  # of a probability, so that its logarithm is finite


@step(metrics=("loss",))
def choose(order: Models, memory: Mine, site: Site[Config]) -> Outcome[Chosen, Mine]:
    """E epochs from the model with the least F, the first of equals. One network is in memory; the models are files."""
    models = (order.f, *order.others)
    net = network(site, order.f, order.g)
    suits = [unfitness(filled(net, {**f, **order.g}), site) for f in models]
    best = suits.index(min(suits))
    loss = adapt(filled(net, {**models[best], **order.g}), site, own_labels(site))
    f = layers.backbone_of(nets.weights_of(net))
    return Outcome(Chosen(f, told(best, len(models))), memory, {"loss": loss})


def filled(net: nn.Module, h: Weights) -> nn.Module:
    """The network with other weights, in place."""
    net.load_state_dict(dict(h))
    return net


def told(best: int, k: int) -> Tensor:
    """A choice of k, (k,): 1 there, 0 elsewhere."""
    return torch.zeros(k).index_fill(0, torch.tensor([best]), 1.0)


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
