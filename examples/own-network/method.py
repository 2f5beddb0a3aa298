"""A method of one's own: the hospitals with labels train together, then the one without adapts what came by itself.

Tent (Wang, Shelhamer, Liu, Olshausen, Darrell: Fully Test-Time Adaptation by Entropy Minimization, 2021): batch norm takes the site's
own means and variances, and its scales and shifts go down the gradient of the predictions' entropy. Nothing leaves the site.
"""

from dataclasses import dataclass

import torch
from torch import nn

from tideline import nets
from tideline.algorithms.source_free import COMMON, SCORE_OWN, begun, method, source
from tideline.algorithms.source_free.family import DEMO, TINY, Mine, Model, Source, of_source
from tideline.core.phase import Phase, Plan, to
from tideline.core.record import Nothing
from tideline.core.run import Role
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.fit import remeasure
from tideline.nets import layers


@dataclass(frozen=True)
class Tent(Source):
    """Settings, with their bounds and what `tideline contract` says of them."""

    rounds: int = setting(1, low=0, high=1, doc="0 leaves the common model as it is")
    epochs: int = setting(4, low=0, doc="passes over the site's rows")
    batch: int = setting(50, low=2, doc="rows in a mini-batch")
    rate: float = setting(1e-3, low=0.0, doc="learning rate of Adam")


@step(metrics=("entropy",))
def adapt(order: Model, memory: Mine, site: Site[Tent]) -> Outcome[Nothing, Mine]:
    """At a site without labels: rows in, a model of its own in memory, and the mean entropy as a metric."""
    c = site.config
    net = source.network(site, order.f, order.g)
    remeasure(net, site.data.x, c.batch, site.rng, site.device)
    norms = [each for each in net.modules() if isinstance(each, (nn.BatchNorm1d, nn.BatchNorm2d))]
    optimiser = torch.optim.Adam([p for each in norms for p in each.parameters()], lr=c.rate)
    entropy = torch.zeros(())
    for epoch in range(c.epochs):
        for rows in torch.randperm(len(site.data), generator=site.rng).split(c.batch):
            log_p = net(site.data.x.batch(rows).to(site.device)).log_softmax(1)
            entropy = -(log_p.exp() * log_p).sum(1).mean()
            optimiser.zero_grad()
            entropy.backward()
            optimiser.step()
        site.tick((epoch + 1) / c.epochs)
    mine = Mine(layers.backbone_of(nets.weights_of(net)), order.g)
    return Outcome(Nothing(), mine, {"entropy": float(entropy.detach())})


def plan(c: Tent) -> Plan[Tent, Model]:
    """Who is asked what, in order: the sources' training and the score of what came, one adaptation, the score of that."""
    work: Phase[Tent, Model] = Phase("adapt", adapt, ask=to(Role.TARGET, Model))
    return (*begun(c, source.ALONE.take_source), *(work,) * c.rounds, SCORE_OWN)


TENT = method(
    "tent",
    "Wang et al.: Fully Test-Time Adaptation by Entropy Minimization, 2021",
    "the common model, adapted at each site without labels by the entropy of its predictions",
    Tent,
    plan,
    start=source.ALONE,
    result=COMMON,
    presets={"tiny": of_source(TINY), "demo": of_source(DEMO)},
)
METHODS = (("tent", "method:TENT"),)
