"""AdaBN: what batch norm measured at the sources is measured anew at each target; all weights stay as the sources left them.

Li, Wang, Shi, Liu, Hou, "Revisiting Batch Normalization For Practical Domain Adaptation", 2016 (arXiv 1603.04779).
"""

from __future__ import annotations

from dataclasses import dataclass

from tideline import nets
from tideline.algorithms.source_free import SCORE_OWN, begun_alone, method, source
from tideline.algorithms.source_free.family import DEMO, TINY, EndCounts, Mine, Model, Source, of_source
from tideline.core.algorithm import Algorithm
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.phase import Phase, Plan, to
from tideline.core.record import Nothing
from tideline.core.run import Role, Roster
from tideline.core.settings import BATCH, ROUNDS, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.fit import remeasure
from tideline.nets import layers


@dataclass(frozen=True)
class AdaBN(Source, EndCounts):
    """Settings of AdaBN."""

    rounds: int = setting(1, low=0, high=1, sizes=ROUNDS, doc="passes over a target's rows; 0 leaves the source model as it is")
    batch: int = setting(
        64, low=2, sizes=BATCH, doc="rows that batch norm measures at once; their means and variances are averaged"
    )


@step()
def measure(order: Model, memory: Mine, site: Site[AdaBN]) -> Outcome[Nothing, Mine]:
    """One pass over the site's rows, without labels. Nothing leaves."""
    source.check_rows(site)
    net = source.network(site, order.f, order.g)
    remeasure(net, site.data.x, site.config.batch, site.rng, site.device, site.tick)
    mine = Mine(layers.backbone_of(nets.weights_of(net)), order.g)
    return Outcome(Nothing(), mine)


def plan(c: AdaBN) -> Plan[AdaBN, Model]:
    """The source model, its score, one pass at each target."""
    work: Phase[AdaBN, Model] = Phase("measure", measure, ask=to(Role.TARGET, Model))
    return (*begun_alone(c), *(work,) * c.rounds, SCORE_OWN, *source.end_counts(c, source.predict_own, Mine))


def check_normed(config: AdaBN, world: World, roster: Roster) -> None:
    """Raises ConfigRefused for a network without batch norm below its classifier."""
    if not layers.norms(layers.backbone_of(nets.template(world))):
        what = f"world.model is {world.model}, which has no batch norm whose statistics could be a target's own"
        todo = "Use a network with batch norm, such as lenet_bn or resnet18 (docs/networks.md), or the method source_model"
        raise ConfigRefused(what, todo, path="world.model")


CLAIMS = (
    "A target sends nothing but metrics; what batch norm measures on its rows stays with it.",
    "Not claimed: that a model which its owner takes out tells nothing of rows. It holds means and variances of their features.",
)

adabn: Algorithm[AdaBN, Model, Mine] = method(
    "adabn",
    "Li et al.: Revisiting Batch Normalization For Practical Domain Adaptation, 2016",
    "The source model with each target's own batch-norm statistics",
    AdaBN,
    plan,
    start=source.ALONE,
    check=check_normed,
    claims=CLAIMS,
    unprotected="it is made of batch norm's statistics, and networks with batch norm mix rows, so that none can be bounded alone",
    presets={
        "tiny": of_source(TINY),
        "demo": of_source(DEMO),
        "digits": {**of_source(DEMO), "source_rounds": 10, "source_epochs": 1, "source_rate": 0.03},
    },
)
