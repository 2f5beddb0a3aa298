"""FedWCA: weighted cluster aggregation (Mori et al.: Federated Source-free Domain Adaptation for Classification: Weighted Cluster
Aggregation for Unlabeled Data, WACV 2025).

Sites without labels adapt a source model. The coordinator puts those whose first layers moved alike into clusters; each site then
begins from the mixture of the clusters' models that suits its data, and learns from labels that two models agree on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tideline import nets
from tideline.algorithms.averaging import scored
from tideline.algorithms.fedwca import client, server
from tideline.algorithms.fedwca.client import State
from tideline.algorithms.fedwca.private import PRIVATELY as OTHERWISE
from tideline.algorithms.fedwca.server import AGGLOMERATIVE, FINCH, GIVEN, KINDS
from tideline.algorithms.source_free import begun, known_too, method, source
from tideline.algorithms.source_free.family import DEMO, TINY, Adapting, Mine
from tideline.algorithms.source_free.private import PRIVATELY
from tideline.core.algorithm import Algorithm
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.phase import Phase, Plan, to
from tideline.core.rows import ANYTHING, Takes
from tideline.core.run import Role, Roster
from tideline.core.settings import ELSEWHERE, EMPTY, nearest, setting
from tideline.nets import layers
from tideline.numerics.clustering.mixing import MIXINGS


@dataclass(frozen=True)
class Config(Adapting):
    """Settings of FedWCA. Round 0 of the paper, after which the clusters are made, is the first of `rounds`."""

    t_a: float = setting(0.01, low=1e-6, doc="temperature of the soft models' weights alpha, T_a (eq. 1)")
    t_b: float = setting(0.05, low=1e-6, doc="temperature of the shares beta, T_b (eq. 3)")
    mu: float = setting(
        0.55, low=0.0, high=1.0, sizes=ELSEWHERE, doc="share of its partner in a row that the two models dispute; 0: no mixup"
    )
    two_models: bool = setting(True, doc="labels from f_init and the cluster's model; false: from f_init alone")
    fixed_labels: bool = setting(True, doc="labels once a round; false: before each epoch")
    refresh_every: int = setting(5, low=1, doc="U: rounds of which the first sends all soft models; 1 is the original protocol")
    weights: str = setting(server.FULL, choices=server.WEIGHTS, doc="how a site's f_init is mixed of the clusters' models")
    one_share: float = setting(0.8, low=0.0, high=1.0, doc="one-equal: weight of the own cluster, p")
    mixing: str = setting("column", choices=MIXINGS, doc="A of eq. 2: normalised as its text says, or line 19 as printed")
    clustering: str = setting(FINCH, choices=KINDS, doc="finch: without a number; agglomerative: into so many; given: by name")
    clusters: int = setting(0, low=0, doc="agglomerative: how many clusters")
    given: Mapping[str, str] = setting(EMPTY, doc="given: the group of each target, by name; stays at the coordinator", kept=True)
    cluster_on: str = setting("first", doc="what is compared: the first layer, last, all, or a layer by its name")
    lost_after: int = setting(3, low=1, doc="rounds in a row without an answer after which a site leaves its cluster")


START: source.Start[Config, State] = source.Start(State, server.of_model)


def plan(c: Config) -> Plan[Config, State]:
    """Source; the first round, which makes the clusters; then one full round in U, and light ones between."""
    targets = (Role.TARGET,)
    first = Phase("first", client.adapt_from, ask=to(Role.TARGET, server.source_start), fold=server.cluster, asks=targets)
    full = Phase("full", client.mix, ask=server.models_to_mix, fold=server.fold_measured, asks=targets)
    light = Phase("light", client.adapt_from, ask=server.starts, fold=server.fold, asks=targets)

    def of(r: int) -> Plan[Config, State]:
        if r == 1:
            return (first,)
        return (full,) if c.weights in server.MEASURED and (r - 2) % c.refresh_every == 0 else (light,)

    return (*begun(c, START.take_source), *scored(c, of, source.score(Mine, server.own_to_targets)))


def takes(config: Config) -> Takes:
    """Rows in dispute are mixed with others, unless mu is 0."""
    return Takes(why="mixes rows, which are amounts then (config.mu: 0 mixes none)") if config.mu else ANYTHING


def check(config: Config, world: World, roster: Roster) -> None:
    """The layer exists, and the clustering has what it asks for. Raises ConfigRefused."""
    layers.check_layer(layers.backbone_of(nets.template(world)), config.cluster_on, "config.cluster_on")
    targets = sorted(m.id for m in roster if m.role is Role.TARGET)
    if config.clustering == GIVEN:
        check_given(config, targets)
    elif config.given:
        what = f"config.given names groups, but config.clustering is {config.clustering}, which makes its own"
        raise ConfigRefused(what, "Leave given out, or set clustering to given", path="config.given")
    if (config.clustering == AGGLOMERATIVE) != (config.clusters > 0) or config.clusters > len(targets):
        raise ConfigRefused(
            f"config.clusters is {config.clusters}, config.clustering {config.clustering}, and there are {len(targets)} targets",
            f"With agglomerative give 1 to {len(targets)} clusters; with another clustering leave clusters out",
            path="config.clusters",
        )


def check_given(config: Config, targets: Sequence[str]) -> None:
    """Every target has a group, and no other site. Raises ConfigRefused."""
    without = [k for k in targets if not config.given.get(k)]
    if without:
        raise ConfigRefused(
            f"config.given has no group for {without[0]}", "Name the group of each target", path=f"config.given.{without[0]}"
        )
    strange = sorted(set(config.given) - set(targets))
    if strange:
        what = f"config.given names {strange[0]!r}, which is no target of this run{nearest(strange[0], targets)}"
        raise ConfigRefused(what, "Correct the name", path=f"config.given.{strange[0]}")


CLAIMS = (
    "A site is never told its cluster's number, size or members, nor anybody's cluster.",
    "The number of soft models that a full round sends is the number of clusters.",
    "alpha and beta tell the coordinator which clusters' models suit a site: how like other sites its data are.",
    "Not claimed: that a site cannot guess. Of a cluster of two, its model and the site's own give the other's.",
    "With clustering given or agglomerative a cluster may have one member: all others are then sent that site's model.",
    "Counts of rows are not sent, nor batch norm's counters: every member of a cluster counts alike.",
)

fedwca: Algorithm[Config, State, Mine] = method(
    "fedwca",
    "Mori et al.: Federated Source-free Domain Adaptation for Classification: Weighted Cluster Aggregation for Unlabeled Data",
    "Sites without labels adapt a source model, in clusters that mix",
    Config,
    plan,
    start=START,
    check=check,
    takes=takes,
    claims=CLAIMS,
    privately=(*PRIVATELY, *OTHERWISE),
    result=known_too(server.model_of),
    presets={
        "tiny": {**TINY, "rounds": 3, "refresh_every": 2},
        "demo": {**DEMO, "refresh_every": 3},
        "digit_five": {"rounds": 100},
        "digit_five_synth": {"rounds": 100, "t_a": 0.001},
        "pacs": {"rounds": 100, "rate": 1e-4, "lam": 0.3, "t_a": 0.1},
        "office_home": {"rounds": 50, "rate": 1e-4, "lam": 0.3},
        "office_home_clipart": {"rounds": 50, "rate": 1e-4, "lam": 0.3, "t_a": 0.1},
    },
)
