"""What KD3A sends and stores, and a site's half: a source trains; the target lets the sources' models vote, and learns.

The tables of probabilities that the target votes by are in no message and no memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tideline import nets
from tideline.algorithms.source_free import source
from tideline.algorithms.source_free.family import Mine, Model
from tideline.algorithms.source_free.source import check_rows, network, parts
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.step import Outcome, Site, View, step
from tideline.learning.evaluate import accuracy, outputs
from tideline.learning.fit import Loss, cross_entropy, fit_at
from tideline.numerics.labels import knowledge
from tideline.numerics.labels.knowledge import leave_one_out, shapley

if TYPE_CHECKING:
    from tideline.algorithms.kd3a import KD3A

LOCAL, MIXED, SHAPLEY = "local", "mixed", "shapley"
EXACT = 6  # sources up to which all 2^S sets are looked at


@record
class Trained:
    """Up, from a source: w_k. The target gets it as it is."""

    f: Weights = field("like f", Exposure.WEIGHTS, audience=TO_BOTH, doc="the extractor as the source trained it, for the target")
    g: Weights = field(
        "like g", Exposure.WEIGHTS, audience=TO_BOTH, doc="the classifier as the source trained it, for the target"
    )


@record
class Counted(Trained):
    """Up, from a source, where weights go by counts: the same, and n_k."""

    samples: int = field("", Exposure.COUNT, low=1, doc="labelled training rows at the source")


@record
class Lesson(Model):
    """Down, to the target: the common model, and the models of the sources, without names."""

    sources: tuple[Model, ...] = field(doc="w_k of each source that has answered")
    shares: Tensor = field("parts", doc="zeros, for the target and each source, which the target's weights take the place of")


@record
class Distilled:
    """Up, from the target: its model, and how much each model should weigh."""

    f: Weights = field("like f", Exposure.WEIGHTS, doc="the extractor after distillation")
    g: Weights | None = field("like g", Exposure.WEIGHTS, doc="the classifier after distillation; none where heads are local")
    a: Tensor = field("parts", Exposure.STATISTIC, low=0, doc="weight of the target, and of each source by consensus focus")


@record
class DistilledCounted(Distilled):
    """Up, from the target, where weights go by counts: the same, and n_T."""

    samples: int = field("", Exposure.COUNT, low=1, doc="training rows at the target, all without labels")


@record
class State(Model):
    """What the coordinator knows: the common model; where heads are local, its classifier is the one that all began from."""

    taught: dict[str, Model] = field(doc="w_k of the sources that have trained in this round")
    samples: dict[str, int] = field(doc="n_k of these, where weights go by counts")
    weights: dict[str, float] = field(doc="the smoothed weight of each site that has been in an average")


@step(metrics=("loss",))
def train(order: Model, memory: Mine, site: Site[KD3A]) -> Outcome[Trained, Mine]:
    """E epochs of cross-entropy from w on the source's rows."""
    made, mine, loss = taught(order, memory, site)
    return Outcome(Trained(made.f, made.g), mine, {"loss": loss})


@step(metrics=("loss",))
def train_counted(order: Model, memory: Mine, site: Site[KD3A]) -> Outcome[Counted, Mine]:
    """The same, and how many rows there are."""
    made, mine, loss = taught(order, memory, site)
    return Outcome(Counted(made.f, made.g, len(site.data)), mine, {"loss": loss})


def taught(order: Model, memory: Mine, site: Site[KD3A]) -> tuple[Model, Mine, float]:
    """w_k, the source's next memory, and its mean loss of the last epoch."""
    net = begun(order.f, order.g, memory, site)
    loss = descended(net, site, cross_entropy)
    made = parts(nets.weights_of(net))
    return made, next_memory(made, memory, site), loss


@step(metrics=("loss", "confident"))
def distil(order: Lesson, memory: Mine, site: Site[KD3A]) -> Outcome[Distilled, Mine]:
    """Vote, distil, weigh."""
    made, mine, a, metrics = distilled(order, memory, site)
    return Outcome(Distilled(made.f, sent_head(made, site), a), mine, metrics)


@step(metrics=("loss", "confident"))
def distil_counted(order: Lesson, memory: Mine, site: Site[KD3A]) -> Outcome[DistilledCounted, Mine]:
    """The same, and how many rows there are."""
    made, mine, a, metrics = distilled(order, memory, site)
    return Outcome(DistilledCounted(made.f, sent_head(made, site), a, len(site.data)), mine, metrics)


def distilled(order: Lesson, memory: Mine, site: Site[KD3A]) -> tuple[Model, Mine, Tensor, dict[str, float]]:
    """The target's model, its next memory, the weights of all models, and its metrics."""
    check_rows(site)
    gate = gate_of(site.config, site.round)
    p = torch.stack(list(tables(order.sources, site)))
    agreed = knowledge.vote(p, gate)
    sure = float(agreed.sure.double().mean())
    a = knowledge.shares(focus(p, gate, site.config), sure)
    net = begun(order.f, order.g, memory, site)
    numbered = replace(site, data=replace(site.data, y=torch.arange(len(site.data))))
    loss = descended(net, numbered, mixed(agreed, site) if site.config.distillation == MIXED else as_printed(agreed))
    made = parts(nets.weights_of(net))
    return made, next_memory(made, memory, site), a, {"loss": loss, "confident": sure}


def tables(sources: tuple[Model, ...], site: Site[KD3A]) -> Iterator[Tensor]:
    """p_k (n, K) of each source on the target's rows, float32: one model in memory, the others are files."""
    for done, h in enumerate(sources, 1):
        yield knowledge.finite(outputs(network(site, h.f, h.g), site.data.x, site.device).softmax(1))
        site.tick(done / (2 * len(sources)))


def focus(p: Tensor, gate: float, c: KD3A) -> Tensor:
    """CF(k) of each source (S,) by its tables p (S, n, K): what the quality of the consensus owes to it."""
    top, label = knowledge.strongest(p)

    def quality(T: tuple[int, ...]) -> float:
        return knowledge.quality(top[list(T)], label[list(T)], p.shape[2], gate)

    return (shapley if c.focus == SHAPLEY and len(p) <= EXACT else leave_one_out)(quality, len(p))


def mixed(agreed: knowledge.Vote, site: Site[KD3A]) -> Loss:
    """Each row of a batch is mixed with another, by a share that the batch draws; it counts if the first of the two is sure."""

    def loss(net: nn.Module, x: Tensor, rows: Tensor) -> Tensor:
        order = torch.randperm(len(x), generator=site.rng)
        share = knowledge.share_of_pair(torch.rand(3, generator=site.rng))
        at = rows.cpu()
        vote = (agreed.label[at], agreed.label[at[order]], agreed.sure[at].to(x.dtype))
        label, partner, weight = (each.to(x.device) for each in vote)
        logits = net(share * x + (1 - share) * x[order.to(x.device)])
        return knowledge.mixed_cross_entropy(logits, label, partner, share, weight)

    return loss


def as_printed(agreed: knowledge.Vote) -> Loss:
    """mean of n_V KL(pbar || h(x)); a row of which no source is sure counts for 0.001."""
    weight = torch.where(agreed.sure, agreed.support.float(), torch.tensor(knowledge.UNSURE))

    def loss(net: nn.Module, x: Tensor, rows: Tensor) -> Tensor:
        at = rows.cpu()
        return knowledge.weighted_divergence(net(x), agreed.mean[at].to(x.device), weight[at].to(x.device))

    return loss


def gate_of(c: KD3A, r: int) -> float:
    """g of round r, from 1: in a straight line from the first round to the last."""
    return c.gate + (c.last_gate - c.gate) * (r - 1) / max(c.rounds - 1, 1)


def rate_of(c: KD3A, r: int) -> float:
    """The learning rate of round r, from 1: half a cosine over the rounds."""
    return c.rate * (1 + math.cos(math.pi * (r - 1) / c.rounds)) / 2


def begun(f: Weights, g: Weights, memory: Mine, site: Site[KD3A]) -> nn.Module:
    """Where a site begins: the common model; with the site's own classifier where heads are local."""
    return network(site, f, own_head(g, memory, site))


def own_head(g: Weights, memory: Mine, site: Site[KD3A]) -> Weights:
    """The classifier that the site uses: the common one, or its own once it has one."""
    return memory.g if site.config.heads == LOCAL and memory.g else g


def next_memory(made: Model, memory: Mine, site: Site[KD3A]) -> Mine:
    """The next memory: the site's own classifier where heads are local, and whatever it is scored with."""
    return replace(memory, g=made.g) if site.config.heads == LOCAL else memory


def sent_head(made: Model, site: Site[KD3A]) -> Weights | None:
    """The classifier, unless it is the target's own."""
    return None if site.config.heads == LOCAL else made.g


def descended(net: nn.Module, site: Site[KD3A], loss: Loss) -> float:
    """E epochs of SGD in place; the mean loss of the last."""
    c: KD3A = site.config
    check_rows(site)
    by = torch.optim.SGD(net.parameters(), lr=rate_of(c, site.round), momentum=c.momentum, weight_decay=c.weight_decay)
    return fit_at(site, net, loss, by, epochs=c.epochs, batch=c.batch)


@step(metrics=("accuracy",), view=View.HELD_OUT)
def score(order: Model, memory: Mine, site: Site[KD3A]) -> Outcome[Nothing, Mine]:
    """The model that the site would use now. It stores that, and its owner may export it."""
    mine = Mine(order.f, own_head(order.g, memory, site))
    value = accuracy(source.predict, Model(mine.f, mine.g), memory, site)
    return Outcome(Nothing(), mine, {} if value is None else {"accuracy": value})
