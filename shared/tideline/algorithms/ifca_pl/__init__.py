"""IFCA with pseudo-labels (Ghosh et al.: An Efficient Framework for Clustered Federated Learning, NeurIPS 2020), as Mori et al.
compare with it: prototype labels, fixed for the round, and information maximisation.

The coordinator keeps k models. Each round every site without labels takes the one that suits its rows best and adapts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline.algorithms.ifca_pl import client, server
from tideline.algorithms.ifca_pl.messages import State
from tideline.algorithms.source_free import method, scoring, source
from tideline.algorithms.source_free.messages import Mine
from tideline.algorithms.source_free.settings import Adapting
from tideline.core.algorithm import Algorithm, InitialWeights
from tideline.core.phase import Phase, Plan
from tideline.core.run import World
from tideline.core.settings import setting


@dataclass(frozen=True)
class Config(Adapting):
    """Settings of IFCA."""

    k: int = setting(3, low=1, high=100, doc="models; as many as there are domains, where that is known")
    noise: float = setting(0.01, low=0.0, doc="by how much the first k models differ, in units of each tensor's deviation")


def plan(c: Config) -> Plan[Config, State]:
    """Source, its score, then rounds."""
    taught = (source.phase(server.take_source),) * c.source_rounds
    work = Phase("adapt", client.choose, ask=server.all_models, fold=server.fold)
    return (*taught, scoring.source_only(), *scoring.scored(c, lambda r: work, scoring.score(server.own)))


def sizes(config: Config, world: World) -> Mapping[str, int]:
    """A choice is one of k."""
    return {"k": config.k}


CLAIMS = (
    "The choice tells the coordinator which sites have like data. No site is told another's choice.",
    "A model that a single site chose is that site's own, and is sent to all in the next round: so f is declared for peers.",
    "Not claimed: that a site cannot guess. A model that came back as it was is one that nobody chose.",
    "Counts of rows are not sent: all who chose a model count alike.",
)

ifca_pl: Algorithm[Config, State, Mine] = method(
    "ifca_pl",
    "Ghosh et al.: An Efficient Framework for Clustered Federated Learning, 2020",
    "Sites without labels adapt the one of k models that suits them best",
    Config,
    plan,
    state=State,
    begin=server.begin,
    sizes=sizes,
    initial_weights=InitialWeights(server.begin_with, source.needs_targets),
    claims=CLAIMS,
)
