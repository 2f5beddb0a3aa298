"""What FedWCA sends and stores, and a site's half: which mixture of the clusters' models suits it, and how it adapts.

Algorithms 1 and 2. Who is in which cluster is a field of `State` and of no message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tideline import nets
from tideline.algorithms.fedwca.private import adapt_to_two, mixing, noised_confidence, starting
from tideline.algorithms.source_free.adapting import Aim, Seen, adapt, labelled, plain, seen
from tideline.algorithms.source_free.family import Adapted, Mine, Model
from tideline.algorithms.source_free.source import network
from tideline.core.asked.private import Meter
from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record
from tideline.core.step import Outcome, Site, step
from tideline.learning.private.statistics import spend_rest
from tideline.learning.private.words import SUMMED, UNREAD
from tideline.nets import layers
from tideline.numerics.clustering.mixing import cosine_confidence, softmax_weights
from tideline.numerics.labels.confidence import collapsed, soft_density
from tideline.numerics.labels.prototypes import Labelled, partners, two_model

if TYPE_CHECKING:
    from tideline.algorithms.fedwca import Config

LOCAL = "local"


@record
class Start:
    """Down, in the first round and where the coordinator makes f_init: two models, however many clusters there are."""

    f: Weights = field(doc="f_{c_k}, the model of the site's cluster; in the first round f_S")
    init: Weights | None = field(doc="f_init, where training begins; none: with the own model")
    g: Weights = field(doc="the classifier of the source")


@record
class Mix:
    """Down, in a full round: C + 1 models. How many there are tells the number of clusters, and nothing of their members."""

    f: Weights = field(doc="f_{c_k}, the model of the site's cluster")
    soft: tuple[Weights, ...] = field(doc="f~_c, the soft model of each cluster; none where there is but one cluster")
    g: Weights = field(doc="the classifier of the source")
    scores: Tensor = field("C", doc="zeros, one for each soft model, which the site's weights take the place of")


@record
class Weighed(Adapted):
    """Up, in a full round: f_k, and which models suited the site."""

    alpha: Tensor = field(
        "C", Exposure.STATISTIC, low=0, private=SUMMED, doc="how well each soft model suits the site, on the simplex (eq. 1)"
    )
    beta: Tensor = field(
        "2",
        Exposure.STATISTIC,
        low=0,
        private=UNREAD,
        doc="shares of the cluster's model and of the soft models' mean, on the simplex (eq. 3)",
    )


@record
class State(Model):
    """What the coordinator knows: h_S, for sites that come late, and the clusters."""

    models: tuple[Weights, ...] = field(doc="f_c, the model of each cluster")
    members: dict[str, int] = field(doc="the cluster of each site that has one")
    layers: Weights = field(doc="what each of them was clustered by")
    missed: dict[str, int] = field(doc="rounds in a row in which each of them did not answer")
    soft: Tensor = field("L C", doc="S: the share of f_c in each of the L models that a full round sends as soft ones")
    v: Weights = field(doc="v_k (C,): the share of f_c in a site's f_init (eq. 8), since its last full round")


@step(metrics=("loss", "agree"), spends=starting)
def adapt_from(order: Start, memory: Mine, site: Site[Config]) -> Outcome[Adapted, Mine]:
    """Adapt from f_init, or in the first round from f_S."""
    net = network(site, order.f, order.g)
    if site.private:
        return Outcome(Adapted(started_privately(order, net, site, site.private)), memory)
    second = None if order.init is None else known(seen(net, site), site)
    if order.init is not None:
        pour(net, order.g, [(1.0, order.init)])
    f, metrics = adapted(net, site, second)
    return Outcome(Adapted(f), memory, metrics)


@step(metrics=("loss", "agree", "collapsed"), spends=mixing)
def mix(order: Mix, memory: Mine, site: Site[Config]) -> Outcome[Weighed, Mine]:
    """alpha, beta and f_init, then adapt from there (algorithm 1, lines 13 to 16). One model is in memory; the rest are files."""
    net = network(site, order.f, order.g)
    if site.private:
        return mixed_privately(order, net, memory, site, site.private)
    if not order.soft:
        f, metrics = adapted(net, site, None)
        return Outcome(Weighed(f, torch.zeros(0), torch.tensor([1.0, 0.0])), memory, metrics)
    own = seen(net, site)
    alpha = cluster_weights(order, net, site)
    beta, flat = own_share(order, alpha, net, site, own)
    pour(net, order.g, [(float(beta[0]), order.f), *weights_of(float(beta[1]) * alpha, order)])
    f, metrics = adapted(net, site, known(own, site))
    return Outcome(Weighed(f, alpha.float(), beta.float()), memory, {**metrics, "collapsed": float(flat)})


def started_privately(order: Start, net: nn.Module, site: Site[Config], meter: Meter) -> dict[str, Tensor]:
    """f_k in a run that protects rows. An order without f_init asks less of them, and costs the same."""
    init = order.init

    def begin() -> None:
        if init is not None:
            pour(net, order.g, [(1.0, init)])

    adapt_to_two(net, begin, site, meter, second=init is not None)
    spend_rest(meter, starting(site.config, meter.asked))
    return layers.backbone_of(nets.weights_of(net))


def mixed_privately(order: Mix, net: nn.Module, memory: Mine, site: Site[Config], meter: Meter) -> Outcome[Weighed, Mine]:
    """`mix` in a run that protects rows: alpha of noised sums, and the own cluster's model for one half."""
    alpha, beta = torch.zeros(0), torch.tensor([1.0, 0.0])
    if order.soft:
        known = noised_confidence(net, order.soft, lambda f: pour(net, order.g, [(1.0, f)]), site, meter)
        alpha = softmax_weights(known, site.config.t_a).float()
        beta = torch.tensor([0.0, 1.0]) if site.config.weights == LOCAL else torch.tensor([0.5, 0.5])
        pour(net, order.g, [(1.0, order.f)])

    def begin() -> None:
        if order.soft:
            pour(net, order.g, [(float(beta[0]), order.f), *weights_of(float(beta[1]) * alpha, order)])

    adapt_to_two(net, begin, site, meter, second=bool(order.soft))
    spend_rest(meter, mixing(site.config, meter.asked))
    return Outcome(Weighed(layers.backbone_of(nets.weights_of(net)), alpha, beta), memory)


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
    """Adapt f_init, which is in the network: f_k and the metrics. second: what the cluster's model says of the rows."""
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
