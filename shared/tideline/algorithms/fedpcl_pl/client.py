"""FedPCL at a site: a projection head of its own over the frozen source features, drawn to everybody's prototypes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.algorithms.fedpcl_pl.messages import Common, Described, Kept, Lesson
from tideline.algorithms.source_free.adapting import seen
from tideline.algorithms.source_free.source import network
from tideline.core.record import Nothing, Weights
from tideline.core.step import Outcome, Site, View, step
from tideline.learning.evaluate import accuracy, outputs
from tideline.learning.fit import fit
from tideline.numerics.labels.contrast import Sets, class_means, classified, contrast
from tideline.numerics.labels.prototypes import pseudo_labels

if TYPE_CHECKING:
    from tideline.algorithms.fedpcl_pl import Config

HIDDEN, WIDTH = 512, 256
LEAST = 5  # rows of a class that is sent: the mean of fewer would nearly be one of them


def prepare(config: Config, site: Site[Config]) -> Kept:
    """No head yet: its seed comes with the first order."""
    return Kept({}, {}, {}, torch.zeros(0, 0), torch.zeros(0, dtype=torch.bool))


@step()
def describe(order: Common, memory: Kept, site: Site[Config]) -> Outcome[Described, Kept]:
    """The first prototypes, by the head as it was drawn."""
    z, labels = labelled_rows(order, site)
    head = head_of(order, memory, site)
    return Outcome(described(head, z, labels, site), keeping(order, head))


@step(metrics=("loss",))
def learn(order: Lesson, memory: Kept, site: Site[Config]) -> Outcome[Described, Kept]:
    """E epochs of SGD on the head alone, and the prototypes by the head as it then is."""
    c: Config = site.config
    z, labels = labelled_rows(order.common, site)
    head = head_of(order.common, memory, site)
    mean = sets(order.common.mean[None], order.common.present[None], site)
    each = sets(order.each, order.there, site)

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return contrast(aligned(net(x), c), y, mean, each, c.tau)

    optimiser = torch.optim.SGD(head.parameters(), lr=c.rate, momentum=c.momentum, weight_decay=c.weight_decay)
    rows = replace(site.data, x=z, y=labels)
    many = {"epochs": c.epochs, "batch": c.batch}
    value = fit(head, rows, loss, optimiser, **many, rng=site.rng, device=site.device, tick=site.tick)
    return Outcome(described(head, z, labels, site), keeping(order.common, head), {"loss": value})


@step(metrics=("accuracy",), view=View.HELD_OUT)
def score(order: Common, memory: Kept, site: Site[Config]) -> Outcome[Nothing, Kept]:
    """What the site would use now: its head, and the mean prototypes."""
    value = accuracy(predict, order, memory, site)
    kept = keeping(order, head_of(order, memory, site))
    return Outcome(Nothing(), kept, {} if value is None else {"accuracy": value})


def predict(order: Common, memory: Kept, site: Site[Config], x: Tensor) -> Tensor:
    """z . Cbar^c for the classes that have a prototype; the source model's outputs where none has."""
    net = network(site, order.f, order.g)
    if not bool(order.present.any()):
        return outputs(net, x, site.device)
    head, c = head_of(order, memory, site), site.config
    z = aligned(projected(head, nets.features(net, x, site.device), site), c)
    return classified(z, aligned(order.mean, c), order.present)


def labelled_rows(order: Common, site: Site[Config]) -> tuple[Tensor, Tensor]:
    """f_S of the site's rows (n, q), and their prototype labels (n,): the same each round, as f_S is frozen."""
    given = seen(network(site, order.f, order.g), site)
    return given.z, pseudo_labels(given.z, given.p).labels


def described(head: nn.Module, z: Tensor, labels: Tensor, site: Site[Config]) -> Described:
    """C_i^c of the classes with enough rows."""
    return Described(*class_means(aligned(projected(head, z, site), site.config), labels, site.world.classes, LEAST))


def aligned(z: Tensor, c: Config) -> Tensor:
    """Rows (..., w) of unit length, where that is asked for; zeros stay."""
    return functional.normalize(z, dim=-1) if c.normalise else z


def sets(prototypes: Tensor, present: Tensor, site: Site[Config]) -> Sets:
    """Prototypes (S, M, w) as projections are compared with them, on the site's device."""
    return Sets(aligned(prototypes, site.config).to(site.device), present.to(site.device))


def projected(head: nn.Module, z: Tensor, site: Site[Config]) -> Tensor:
    """p(z) of features (n, q), without a gradient, on the CPU: (n, w)."""
    return outputs(head, z, site.device)


def head_of(order: Common, memory: Kept, site: Site[Config]) -> nn.Module:
    """The site's own head, on its device; in the beginning that of the common seed."""
    head = drawn(order.seed, nets.width(site.world))
    if memory.head:
        head.load_state_dict(dict(memory.head))
    return head.to(site.device)


def drawn(seed: int, q: int) -> nn.Module:
    """p: q -> 512 -> ReLU -> 256, the same for the same seed."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        return nn.Sequential(nn.Linear(q, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))


def keeping(order: Common, head: nn.Module) -> Kept:
    """The next memory."""
    weights: Weights = nets.weights_of(head)
    return Kept(order.f, order.g, weights, order.mean, order.present)
