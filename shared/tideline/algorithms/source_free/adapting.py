"""Local adaptation: a site without labels moves f so that g, which stays, is sure of its rows and uses its classes alike.

SHOT (Liang, Hu, Feng: Do We Really Need to Access the Source Data? Source Hypothesis Transfer for Unsupervised Domain Adaptation,
ICML 2020) as Mori et al. write it (Federated Source-free Domain Adaptation for Classification, eq. 4 and 9).

Shapes: n samples of q features, M classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.algorithms import averaging
from tideline.algorithms.source_free.family import PREDICTED, Adapting, Local
from tideline.algorithms.source_free.private import Labels, Penalty, adapt_privately, own_labels_of_rows
from tideline.algorithms.source_free.source import check_rows
from tideline.core.record import Weights
from tideline.core.settings import Settings
from tideline.core.step import Site
from tideline.learning.fit import Loss, fit_at
from tideline.learning.local_training import optimiser, rate_at
from tideline.numerics.labels.prototypes import Labelled, information_maximisation, pseudo_labels


@dataclass(frozen=True)
class Seen:
    """What a network makes of a site's rows, in evaluation mode, on the CPU: features z (n, q) and softmax outputs p (n, M)."""

    z: Tensor
    p: Tensor


@dataclass(frozen=True)
class Aim:
    """D_hat: a label (n,) for each row, and the row that it is mixed with, (n,); itself where it is taken as it is."""

    labels: Tensor
    partner: Tensor


def near(weight: float, f: Weights) -> Penalty:
    """(weight / 2) |f_k - f|^2 over what is trained; absent for a weight of 0."""
    return lambda net: averaging.near(net, f, weight)


def seen(net: nn.Module, site: Site[Settings]) -> Seen:
    """One pass over the site's rows."""
    z = nets.features(net, site.data.x, site.device)
    classifier = net.get_submodule("classifier")
    with torch.no_grad():
        p = torch.cat([classifier(rows.to(site.device)).softmax(1).cpu() for rows in torch.split(z, nets.ROWS)])
    return Seen(z, p)


def labelled(given: Seen, c: Adapting) -> Labelled:
    """Pseudo-labels by prototypes (eq. 4); or the likeliest class, whose probability then stands for the similarity."""
    if c.labels == PREDICTED:
        similarity, labels = given.p.max(1)
        return Labelled(
            labels=labels,
            similarity=similarity.double(),
            prototypes=given.z.new_zeros(given.p.shape[1], 0),
            present=similarity.new_zeros(0).bool(),
            common=0.0,
        )
    return pseudo_labels(given.z, given.p)


def plain(labels: Tensor) -> Aim:
    """Each row with its label, as it is."""
    return Aim(labels, torch.arange(len(labels)))


def own_labels(site: Site[Adapting]) -> Callable[[nn.Module], Aim]:
    """An aim by the network's own pseudo-labels."""
    return lambda net: plain(labelled(seen(net, site), site.config).labels)


def adapt(
    net: nn.Module,
    site: Site[Adapting],
    aim: Callable[[nn.Module], Aim],
    *,
    fixed: bool = True,
    mu: float = 0.0,
    penalty: Penalty | None = None,
    privately: Labels = own_labels_of_rows,
) -> float:
    """E epochs of SGD on L_IM(D) + lambda L_CE(D_hat) (eq. 9) in place, g held; gives the mean loss of the last epoch.

    In a run that protects rows no row is mixed, and `privately` labels them in the place of `aim`.

    aim(net) -> D_hat: asked once (`fixed`), or before each epoch. mu: the share of its partner in a row that is mixed. Raises
    DataRefused for a site with a single row, whose batch has no variance.
    """
    c: Adapting = site.config
    by = optimiser_of(net, site)
    if site.private:
        return adapt_privately(net, site, site.private, by, fixed, penalty, privately)
    # A row's number goes where its label would: the aim has more to say of a row than one.
    rows = replace(site.data, y=torch.arange(len(site.data)))
    value, parts = 0.0, 1 if fixed else c.epochs
    for part in range(parts):
        loss = objective(site, aim(net), mu, penalty)

        def tick(done: float, part: int = part) -> None:
            site.tick((part + done) / parts)

        each = replace(site, tick=tick)
        value = fit_at(each, net, loss, by, epochs=c.epochs // parts, batch=c.batch, data=rows, clip=c.clip_gradient)
    return value


def optimiser_of(net: nn.Module, site: Site[Local]) -> torch.optim.Optimizer:
    """An optimiser of f by the site's settings, with g held. Raises DataRefused for a site with a single row."""
    c: Local = site.config
    check_rows(site)
    for parameter in net.get_submodule("classifier").parameters():
        parameter.requires_grad_(False)
    moving = [p for p in net.parameters() if p.requires_grad]
    return optimiser(c, moving, rate_at(c, c.rate, site.round, c.rounds), c.momentum, c.weight_decay)


def objective(site: Site[Adapting], aim: Aim, mu: float, penalty: Penalty | None) -> Loss:
    """loss(net, x (b, *inputs), rows (b,)).

    Rows that are mixed pass through the network beside the batch, which L_IM is of; the others once for both terms.
    """

    def loss(net: nn.Module, x: Tensor, rows: Tensor) -> Tensor:
        rows = rows.cpu()
        other = aim.partner[rows]
        mixed = other != rows
        x_hat = (1 - mu) * x[mixed.to(x.device)] + mu * site.data.x.batch(other[mixed], site.rng).to(x.device)
        x_hat = x_hat.to(x.dtype)  # token ids, of which none is mixed, stay whole numbers
        logits = net(torch.cat([x, x_hat]))
        of_batch = logits[: len(x)]
        of_hat = torch.cat([of_batch[~mixed.to(x.device)], logits[len(x) :]])
        y = torch.cat([aim.labels[rows][~mixed], aim.labels[rows][mixed]]).to(x.device)
        value: Tensor = information_maximisation(of_batch) + site.config.lam * functional.cross_entropy(of_hat, y)
        extra = penalty(net) if penalty else None
        return value if extra is None else value + extra

    return loss
