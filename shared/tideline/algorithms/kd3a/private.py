"""KD3A in runs that protect rows: a row's vote is of that row and the sources' models; what all rows say together has noise.

Shapes: S sources, n rows, K classes.
"""

from __future__ import annotations

from itertools import combinations
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from tideline.algorithms.source_free.family import Model
from tideline.algorithms.source_free.source import network
from tideline.core.asked.private import Meter
from tideline.core.step import Site
from tideline.learning.fit import Loss
from tideline.learning.private.statistics import Bound, each_row, statistics
from tideline.numerics.labels import knowledge

Set = tuple[int, ...]


def said_of(net: nn.Module, sources: tuple[Model, ...], x: Tensor) -> Tensor:
    """What each source's model says of rows: (m, S, K) probabilities. One network is in memory; the models are files."""
    said = []
    for h in sources:
        net.load_state_dict({**h.f, **h.g})
        said.append(knowledge.finite(net.eval()(x).softmax(1)))
    return torch.stack(said, 1)


def voters_row_by_row(sources: tuple[Model, ...], site: Site[Any]) -> Tensor:
    """p (S, n, K) of the target's rows."""
    net = network(site, sources[0].f, sources[0].g)
    return each_row(site, lambda x: said_of(net, sources, x)).movedim(1, 0)


def noised_qualities(
    sources: tuple[Model, ...], sets: list[Set], gate: float, site: Site[Any], meter: Meter
) -> tuple[Tensor, float]:
    """The quality of each set of sources, and the share of rows of which some source is sure, in one charge.

    A row adds to the quality of a set at most 1 for each source in it: they all vote, and none is surer than 1.
    """
    net = network(site, sources[0].f, sources[0].g)

    def of(x: Tensor) -> list[Tensor]:
        top, label = knowledge.strongest(said_of(net, sources, x).movedim(1, 0))
        found = [knowledge.qualities(top[list(T)], label[list(T)], site.world.classes, gate) for T in sets]
        return [torch.stack(found, 1), (top > gate).any(0).double()]

    most = sqrt(sum(len(T) ** 2 for T in sets))
    qualities, sure = statistics(site, meter, of, (Bound(most, len(sets)), Bound(1.0, 1)))
    return qualities, min(1.0, max(0.0, float(sure) / meter.asked.rows))


def sets_of(S: int, exact: bool) -> list[Set]:
    """The sets whose qualities are asked for: all but the empty one, or the whole and those without one source."""
    sizes = range(1, S + 1) if exact else sorted({max(S - 1, 1), S})
    return [T for size in sizes for T in combinations(range(S), size)]


def unmixed(agreed: knowledge.Vote) -> Loss:
    """Each row's cross-entropy with the consensus class, if some source is sure of the row."""

    def loss(net: nn.Module, x: Tensor, rows: Tensor) -> Tensor:
        at = rows.cpu()
        label, weight = agreed.label[at].to(x.device), agreed.sure[at].to(x.device, x.dtype)
        return knowledge.mixed_cross_entropy(net(x), label, label, 1.0, weight)

    return loss


PRIVATELY = (
    "no row is mixed with another: with config.distillation mixed each sure row learns the consensus class by itself",
    "consensus focus, and the target's own weight, come of noised sums over the target's rows",
)
