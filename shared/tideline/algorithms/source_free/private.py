"""Local adaptation in runs that protect rows: SHOT, each part of which is of one row, or made of sums with noise.

The batch's mean output o of L_IM mixes rows. Here it is the noised mean over all rows, asked with the labels and constant until
they are asked again: sum_m h_m log o_m of each row then has the gradient of sum_m o_m log o_m at that o. Prototypes are noised
sums of features of length 1, weighed by the outputs; a row's label is the class of the nearest, found once (eq. 4 goes on to the
means by these labels, and the nearest of those).

Shapes: n rows of q features, M classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from tideline.algorithms.source_free.family import PREDICTED, Adapting
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.step import Site, Spends
from tideline.learning.fit import Loss, fit_at, training_spends
from tideline.learning.private.statistics import Bound, each_row, statistics, statistics_spend
from tideline.nets import width

RAREST = 0.01  # of 1 / M: the share of a class that is said to be rarer, so that its logarithm is finite
SHORTEST = 1e-12
Penalty: TypeAlias = Callable[[nn.Module], Tensor | None]


@dataclass(frozen=True)
class Noised:
    """What noised sums tell of a site's rows by a network: o (M,), and prototypes of length 1 (M, q), none if not asked for."""

    o: Tensor
    prototypes: Tensor | None


# What gives each row its label (n,), of that row, a network and noised sums alone.
Labels: TypeAlias = Callable[[nn.Module, Noised, Site[Adapting]], Tensor]


def adapting_spends(fixed: Callable[[Adapting], bool] = lambda c: True, models: int = 1) -> Spends:
    """What adaptation costs: its steps, and the sums of so many models for each labelling, one an order if fixed(config)."""

    def spends(config: Adapting, privacy: Privacy) -> tuple[Charge, ...]:
        parts = 1 if fixed(config) else config.epochs
        return (*statistics_spend(privacy, models * parts), *training_spends(config.epochs // parts, privacy) * parts)

    return spends


def adapt_privately(
    net: nn.Module, site: Site[Adapting], meter: Meter, by: Optimizer, fixed: bool, penalty: Penalty | None, labels: Labels
) -> float:
    """E epochs on sum_m h_m log o_m + H(h) + lambda CE of each row, in place, g held; labels and o once, or before each epoch."""
    c, value, parts = site.config, 0.0, 1 if fixed else site.config.epochs
    for _ in range(parts):
        known = noised_sums(net, site, meter, by_prototypes=c.labels != PREDICTED)
        rows = replace(site.data, y=labels(net, known, site))
        loss = objective(known.o.float().log().to(site.device), c.lam, penalty)
        value = fit_at(site, net, loss, by, epochs=c.epochs // parts, batch=c.batch, data=rows)
    return value


def objective(log_o: Tensor, lam: float, penalty: Penalty | None) -> Loss:
    """loss(net, x (b, *inputs), y (b,)): the mean over rows. log_o (M,): of the constant mean output."""

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logits = net(x)
        log_h = logits.log_softmax(1).clamp_min(torch.finfo(logits.dtype).min)
        value: Tensor = (log_h.exp() * (log_o - log_h)).sum(1).mean() + lam * functional.cross_entropy(logits, y)
        extra = penalty(net) if penalty else None
        return value if extra is None else value + extra

    return loss


def noised_sums(net: nn.Module, site: Site[Any], meter: Meter, by_prototypes: bool) -> Noised:
    """o, and prototypes if they are asked for: in one charge."""
    M, q = site.world.classes, width(site.world)
    bounds = (Bound(1.0, M), Bound(1.0, M * q)) if by_prototypes else (Bound(1.0, M),)

    def of(x: Tensor) -> list[Tensor]:
        z, p = seen_rows(net, x)
        return [p, p[:, :, None] * unit(z)[:, None, :]] if by_prototypes else [p]

    sums = statistics(site, meter, of, bounds)
    o = shares(sums[0], meter.asked.rows)
    return Noised(o, unit(sums[1].view(M, q)) if by_prototypes else None)


def shares(outputs: Tensor, rows: int) -> Tensor:
    """A noised sum of outputs (M,) as shares of the classes, of which none is 0. rows: how many there are, about."""
    least = RAREST * rows / len(outputs)
    found = outputs.clamp_min(least)
    return found / found.sum()


def own_labels_of_rows(net: nn.Module, known: Noised, site: Site[Adapting]) -> Tensor:
    """The nearest prototype's class, or the likeliest."""
    return labelled_rows(net, known, site)[:, 0].long()


def labelled_rows(net: nn.Module, known: Noised, site: Site[Any]) -> Tensor:
    """Each row's label and its similarity to that class (n, 2) float64: a cosine, or where there are no prototypes an output."""

    def of(x: Tensor) -> Tensor:
        z, p = seen_rows(net, x)
        alike = p if known.prototypes is None else unit(z) @ known.prototypes.to(z).mT
        similarity, label = alike.max(1)
        return torch.stack([label.double(), similarity.double()], 1)

    return each_row(site, of)


def seen_rows(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Features (m, q) and outputs (m, M) of rows, in evaluation mode."""
    z = net.eval().get_submodule("features")(x)
    return z, net.get_submodule("classifier")(z).softmax(1)


def unit(z: Tensor) -> Tensor:
    """Rows of length 1; zeros stay, and what is not finite is nobody's business but that row's."""
    made: Tensor = z / torch.linalg.vector_norm(z, dim=-1, keepdim=True).clamp_min(SHORTEST)
    return made


PRIVATELY = (
    "the batch's mean output in L_IM, which mixes rows, is a noised mean over all rows, constant from one labelling to the next",
    "prototypes are noised sums, and the nearest is looked for once; with config.labels predicted they are left out",
)
