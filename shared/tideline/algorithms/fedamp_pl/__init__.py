"""FedAMP with pseudo-labels (Huang et al.: Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021), as Mori et al.
compare with it: prototype labels, fixed for the round, and information maximisation.

Each site without labels has a model of its own. The coordinator keeps all of them and sends each site a mixture, in which models
near to the site's own weigh more; the site begins from that, and stays near it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tideline import nets
from tideline.algorithms.fedamp_pl import server
from tideline.algorithms.fedamp_pl.messages import Adapted, State
from tideline.algorithms.source_free import method, scoring, source
from tideline.algorithms.source_free.adapting import adapt, near, own_labels
from tideline.algorithms.source_free.messages import Mine, Model
from tideline.algorithms.source_free.settings import Adapting
from tideline.core.algorithm import Algorithm, InitialWeights
from tideline.core.phase import Phase, Plan
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step
from tideline.nets import layers


@dataclass(frozen=True)
class Config(Adapting):
    """Settings of FedAMP."""

    prox: float = setting(1e-2, low=0.0, doc="weight of the term that keeps w_i near u_i, lambda / alpha; 0: u_i is a start only")


@step(metrics=("loss",))
def adapt_near(order: Model, memory: Mine, site: Site[Config]) -> Outcome[Adapted, Mine]:
    """E epochs from u_i on L_IM + lambda L_CE + (prox / 2) |w_i - u_i|^2, labels by u_i."""
    net = source.network(site, order.f, order.g)
    loss = adapt(net, site, own_labels(site), penalty=near(site.config.prox, order.f))
    f = layers.backbone_of(nets.weights_of(net))
    return Outcome(Adapted(f), Mine(f, order.g), {"loss": loss})


def plan(c: Config) -> Plan[Config, State]:
    """Source, its score, then rounds."""
    taught = (source.phase(server.take_source),) * c.source_rounds
    work = Phase("adapt", adapt_near, ask=server.clouds, fold=server.attend)
    return (*taught, scoring.source_only(), *scoring.scored(c, lambda r: work, scoring.score(server.own)))


CLAIMS = (
    "A site is never sent another site's model, but mixtures of all of them in which its own weighs 1 / N at least, of N sites.",
    "Who weighs how much in a mixture is not sent to sites. The coordinator's result has it, for up to 100 sites.",
    "Not claimed: that a site cannot guess. Of two sites, the mixture and the own model give the other's but for one number.",
    "Counts of rows are not sent: the weights are by distance alone.",
)

fedamp_pl: Algorithm[Config, State, Mine] = method(
    "fedamp_pl",
    "Huang et al.: Personalized Cross-Silo Federated Learning on Non-IID Data, 2021",
    "Sites without labels adapt a model each, drawn to those that are near",
    Config,
    plan,
    state=State,
    begin=server.begin,
    initial_weights=InitialWeights(server.begin_with, source.needs_targets),
    claims=CLAIMS,
)
