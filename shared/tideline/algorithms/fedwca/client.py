"""FedWCA at a site: which mixture of the clusters' models suits it, labels from two models, adaptation (algorithms 1 and 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tideline import nets
from tideline.algorithms.fedwca.messages import Mix, Start, Weighed
from tideline.algorithms.source_free.adapting import Aim, Seen, adapt, labelled, plain, seen
from tideline.algorithms.source_free.messages import Adapted, Mine
from tideline.algorithms.source_free.source import network
from tideline.core.record import Weights
from tideline.core.step import Outcome, Site, step
from tideline.nets import layers
from tideline.numerics.clustering.mixing import cosine_confidence, softmax_weights
from tideline.numerics.labels.neighbourhood import collapsed, soft_density
from tideline.numerics.labels.prototypes import Labelled, partners, two_model

if TYPE_CHECKING:
    from tideline.algorithms.fedwca import Config

LOCAL = "local"


@step(metrics=("loss", "agree"))
def adapt_from(order: Start, memory: Mine, site: Site[Config]) -> Outcome[Adapted, Mine]:
    """Adapt from f_init, or in the first round from f_S."""
    net = network(site, order.f, order.g)
    second = None if order.init is None else known(seen(net, site), site)
    if order.init is not None:
        pour(net, order.g, [(1.0, order.init)])
    f, told = adapted(net, site, second)
    return Outcome(Adapted(f), memory, told)


@step(metrics=("loss", "agree", "collapsed"))
def mix(order: Mix, memory: Mine, site: Site[Config]) -> Outcome[Weighed, Mine]:
    """alpha, beta and f_init, then adapt from there (algorithm 1, lines 13 to 16). One model is in memory; the rest are files."""
    net = network(site, order.f, order.g)
    if not order.soft:
        f, told = adapted(net, site, None)
        return Outcome(Weighed(f, torch.zeros(0), torch.tensor([1.0, 0.0])), memory, told)
    own = seen(net, site)
    alpha = cluster_weights(order, net, site)
    beta, flat = own_share(order, alpha, net, site, own)
    pour(net, order.g, [(float(beta[0]), order.f), *weights_of(float(beta[1]) * alpha, order)])
    f, told = adapted(net, site, known(own, site))
    return Outcome(Weighed(f, alpha.float(), beta.float()), memory, {**told, "collapsed": float(flat)})


def pour(net: nn.Module, g: Weights, terms: Sequence[tuple[float, Weights]]) -> None:
    """Make a network's f the sum of models with coefficients, buffers too, in place: a tensor at a time is in memory beside it.

    Whole numbers take the maximum, as a mean of counters is no counter.
    """
    for name, into in net.state_dict().items():
        if name in g:
            into.copy_(g[name])
        elif into.is_floating_point():
            into.zero_()
            for a, f in terms:
                into.add_(f[name].to(into.device), alpha=a)
        else:
            into.copy_(torch.stack([f[name] for _, f in terms]).amax(0))


def weights_of(shares: Tensor, order: Mix) -> list[tuple[float, Weights]]:
    """A share (C,) of each soft model."""
    return list(zip(shares.tolist(), order.soft, strict=True))


def known(given: Seen, site: Site[Config]) -> Labelled | None:
    """What the cluster's model says of the rows; nothing where one model labels alone."""
    return labelled(given, site.config) if site.config.two_models else None


def cluster_weights(order: Mix, net: nn.Module, site: Site[Config]) -> Tensor:
    """alpha_k (C,) (eq. 1): each soft model is put into the network in turn."""
    vectors = layers.class_vectors(net).cpu()
    confidence = []
    for f in order.soft:
        pour(net, order.g, [(1.0, f)])
        confidence.append(cosine_confidence(nets.features(net, site.data.x, site.device), vectors))
    return softmax_weights(torch.stack(confidence), site.config.t_a)


def own_share(order: Mix, alpha: Tensor, net: nn.Module, site: Site[Config], own: Seen) -> tuple[Tensor, bool]:
    """beta_k (2,) by soft neighbourhood density (eq. 3), and whether a model has collapsed.

    One that says the same of nearly all rows has the largest density of all: then each counts one half, which is ours.
    """
    c: Config = site.config
    if c.weights == LOCAL:
        return torch.tensor([0.0, 1.0]), False
    pour(net, order.g, weights_of(alpha, order))  # f_bar
    mean = seen(net, site)
    if collapsed(own.p) or collapsed(mean.p):
        return torch.tensor([0.5, 0.5]), True
    return softmax_weights(torch.tensor([soft_density(own.p), soft_density(mean.p)]), c.t_b), False


def adapted(net: nn.Module, site: Site[Config], second: Labelled | None) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Adapt f_init, which is in the network: f_k and what is told. second: what the cluster's model says of the rows."""
    c: Config = site.config
    agreed: list[float] = []
    loss = adapt(net, site, aim_with(second, site, agreed), fixed=c.fixed_labels, mu=c.mu)
    return layers.backbone_of(nets.weights_of(net)), {"loss": loss, "agree": round(agreed[-1], 2)}


def aim_with(second: Labelled | None, site: Site[Config], agreed: list[float]) -> Callable[[nn.Module], Aim]:
    """D_hat by the network's own labels and those of a second model; the share on which they agree goes into `agreed`."""

    def aim(net: nn.Module) -> Aim:
        first = labelled(seen(net, site), site.config)
        if second is None:
            agreed.append(1.0)
            return plain(first.labels)
        labels, agree = two_model(first, second)
        agreed.append(float(agree.double().mean()))
        return plain(labels) if site.config.mu == 0 else mixed_up(labels, agree, site)

    return aim


def mixed_up(labels: Tensor, agree: Tensor, site: Site[Config]) -> Aim:
    """Each row in dispute is mixed with one of the same label that both models agree on, where there is one."""
    rows, others = partners(labels, agree, site.rng)
    partner = torch.arange(len(labels))
    partner[rows] = others
    return Aim(labels, partner)
