"""KD3A at a site: a source trains; the target asks all sources' models, lets them vote, and learns what they agree on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tideline import nets
from tideline.algorithms.kd3a.messages import Counted, Distilled, DistilledCounted, Lesson, Trained
from tideline.algorithms.source_free import scoring
from tideline.algorithms.source_free.messages import Mine, Model
from tideline.algorithms.source_free.source import check_rows, network, parts
from tideline.core.record import Nothing, Weights
from tideline.core.step import Outcome, Site, View, step
from tideline.learning.evaluate import accuracy, outputs
from tideline.learning.fit import Loss, cross_entropy, fit
from tideline.numerics.aggregation.shapley import leave_one_out, shapley
from tideline.numerics.labels import knowledge

if TYPE_CHECKING:
    from tideline.algorithms.kd3a import KD3A

LOCAL, MIXED, SHAPLEY = "local", "mixed", "shapley"
EXACT = 6  # sources up to which all 2^S sets are looked at


@step(metrics=("loss",))
def train(order: Model, memory: Mine, site: Site[KD3A]) -> Outcome[Trained, Mine]:
    """E epochs of cross-entropy from w on the source's rows."""
    made, kept, loss = taught(order, memory, site)
    return Outcome(Trained(made.f, made.g), kept, {"loss": loss})


@step(metrics=("loss",))
def train_counted(order: Model, memory: Mine, site: Site[KD3A]) -> Outcome[Counted, Mine]:
    """The same, and how many rows there are."""
    made, kept, loss = taught(order, memory, site)
    return Outcome(Counted(made.f, made.g, len(site.data)), kept, {"loss": loss})


def taught(order: Model, memory: Mine, site: Site[KD3A]) -> tuple[Model, Mine, float]:
    """w_k, what the source keeps, and its mean loss of the last epoch."""
    net = begun(order.f, order.g, memory, site)
    loss = descended(net, site, cross_entropy)
    made = parts(nets.weights_of(net))
    return made, keeping(made, memory, site), loss


@step(metrics=("loss", "confident"))
def distil(order: Lesson, memory: Mine, site: Site[KD3A]) -> Outcome[Distilled, Mine]:
    """Vote, distil, weigh."""
    made, kept, a, told = distilled(order, memory, site)
    return Outcome(Distilled(made.f, sent_head(made, site), a), kept, told)


@step(metrics=("loss", "confident"))
def distil_counted(order: Lesson, memory: Mine, site: Site[KD3A]) -> Outcome[DistilledCounted, Mine]:
    """The same, and how many rows there are."""
    made, kept, a, told = distilled(order, memory, site)
    return Outcome(DistilledCounted(made.f, sent_head(made, site), a, len(site.data)), kept, told)


def distilled(order: Lesson, memory: Mine, site: Site[KD3A]) -> tuple[Model, Mine, Tensor, dict[str, float]]:
    """The target's model, what it keeps, the weights of all models, and what it tells."""
    check_rows(site)
    gate = gate_of(site.config, site.round)
    p = torch.stack(list(tables(order.sources, site)))
    agreed = knowledge.vote(p, gate)
    sure = float(agreed.sure.double().mean())
    a = knowledge.shares(focus(p, gate, site.config), sure)
    net = begun(order.f, order.g, memory, site)
    loss = descended(net, replace(site, data=replace(site.data, y=torch.arange(len(site.data)))), lesson(agreed, site))
    made = parts(nets.weights_of(net))
    return made, keeping(made, memory, site), a, {"loss": loss, "confident": sure}


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


def lesson(agreed: knowledge.Vote, site: Site[KD3A]) -> Loss:
    """loss(net, x (b, *inputs), rows (b,)): distillation of the consensus, rows mixed in pairs or as the paper has it."""
    return mixed(agreed, site) if site.config.distillation == MIXED else as_printed(agreed)


def mixed(agreed: knowledge.Vote, site: Site[KD3A]) -> Loss:
    """Each row of a batch is mixed with another, by a share that the batch draws; it counts if the first of the two is sure."""

    def loss(net: nn.Module, x: Tensor, rows: Tensor) -> Tensor:
        order = torch.randperm(len(x), generator=site.rng)
        share = knowledge.share_of_pair(torch.rand(3, generator=site.rng))
        at = rows.cpu()
        told = (agreed.label[at], agreed.label[at[order]], agreed.sure[at].to(x.dtype))
        label, partner, weight = (each.to(x.device) for each in told)
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


def keeping(made: Model, memory: Mine, site: Site[KD3A]) -> Mine:
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
    return fit(net, site.data, loss, by, epochs=c.epochs, batch=c.batch, rng=site.rng, device=site.device, tick=site.tick)


@step(metrics=("accuracy",), view=View.HELD_OUT)
def score(order: Model, memory: Mine, site: Site[KD3A]) -> Outcome[Nothing, Mine]:
    """The model that the site would use now. It keeps that, and its owner may take it out."""
    mine = Mine(order.f, own_head(order.g, memory, site))
    value = accuracy(scoring.predict, Model(mine.f, mine.g), memory, site)
    return Outcome(Nothing(), mine, {} if value is None else {"accuracy": value})
