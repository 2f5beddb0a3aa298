"""FedAMP with pseudo-labels (Huang et al.: Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021), as Mori et al.
compare with it: prototype labels, fixed for the round, and information maximisation.

Each site without labels has a model of its own. The coordinator keeps all of them and sends each site a mixture, in which models
near to the site's own weigh more; the site begins from that, and stays near it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tideline import nets
from tideline.algorithms.averaging import scored
from tideline.algorithms.source_free import begun, known_too, method, source
from tideline.algorithms.source_free.adapting import adapt, near, own_labels
from tideline.algorithms.source_free.family import Adapted, Adapting, Mine, Model
from tideline.algorithms.source_free.private import adapting_spends
from tideline.core.algorithm import Algorithm
from tideline.core.phase import Each, Folded, Phase, Plan, Replies, Table, Turn
from tideline.core.record import Weights, field, record
from tideline.core.run import ClientId, Role
from tideline.core.settings import EMPTY, pull, setting
from tideline.core.step import Outcome, Site, step
from tideline.nets import layers
from tideline.numerics.aggregation.robust import squared_distances
from tideline.numerics.clustering.mixing import attention, mixed, typical

SHOWN = 100  # sites whose attention is a table of the result: a round's tables hold so many squared


@dataclass(frozen=True)
class Config(Adapting):
    """Settings of FedAMP."""

    prox: float = setting(
        1e-2,
        low=0.0,
        sizes=pull("rate"),
        doc="weight of the term that keeps w_i near u_i, lambda / alpha; 0: u_i is a start only",
    )


@record
class State(Model):
    """What the coordinator knows: h_S, for sites that have not answered yet, and the models of those that have."""

    models: dict[str, Weights] = field(doc="w_i, the last model of each site that has answered")
    xi: Tensor = field("N N", doc="attention between these models, rows and columns in the order of the sites' names")


# At the coordinator


def clouds(state: State, turn: Turn[Config]) -> Each[Model]:
    """u_i = sum_j xi_ij w_j to each target; f_S to one that has no model yet, as to all in the first round."""
    rows: dict[str, Tensor] = dict(zip(sorted(state.models), state.xi, strict=True))
    models = [state.models[k] for k in rows]
    none = Model(state.f, state.g)
    return Each(turn.members(Role.TARGET), lambda k: Model(mixed(models, rows[k]), state.g) if k in rows else none)


def own(state: State, turn: Turn[Config]) -> dict[ClientId, Model]:
    """w_i back to its site, to be scored; h_S to one that has none."""
    return {k: Model(model_of(state, k), state.g) for k in turn.members(Role.TARGET)}


def model_of(state: State, site: str) -> Weights:
    return state.models.get(site, state.f)


def attend(state: State, replies: Replies[Adapted], turn: Turn[Config]) -> Folded[State]:
    """w_i of those who answered, beside the last of the others; then the attention between all of them."""
    models: dict[str, Weights] = {**state.models, **{str(k): reply.f for k, reply in replies.items()}}
    names = tuple(sorted(models))
    xi = weights([models[k] for k in names])
    values = tuple(tuple(row) for row in xi.tolist())
    tables: Mapping[str, Table] = {"attention, xi": Table(names, names, values)} if len(names) <= SHOWN else EMPTY
    return Folded(State(state.f, state.g, {k: models[k] for k in names}, xi), tables=tables)


def weights(models: list[Weights]) -> Tensor:
    """xi (N, N) for alpha = sigma / N, with which no xi_ii is below 1 / N. Models are compared by what is trained of them."""
    distances = squared_distances([layers.trained(f) for f in models])
    sigma = typical(distances)
    return attention(distances, sigma, sigma / len(models))


@step(metrics=("loss",), spends=adapting_spends())
def adapt_near(order: Model, memory: Mine, site: Site[Config]) -> Outcome[Adapted, Mine]:
    """E epochs from u_i on L_IM + lambda L_CE + (prox / 2) |w_i - u_i|^2, labels by u_i."""
    net = source.network(site, order.f, order.g)
    loss = adapt(net, site, own_labels(site), penalty=near(site.config.prox, order.f))
    f = layers.backbone_of(nets.weights_of(net))
    return Outcome(Adapted(f), Mine(f, order.g), {"loss": loss})


# No site has a model of its own yet.
START: source.Start[Config, State] = source.Start(
    State, lambda h, config, rng: State(h.f, h.g, {}, torch.zeros(0, 0, dtype=torch.float64))
)


def plan(c: Config) -> Plan[Config, State]:
    work = Phase("adapt", adapt_near, ask=clouds, fold=attend, sampled=True, asks=(Role.TARGET,))
    return (*begun(c, START.take_source), *scored(c, (work,), source.score(Mine, own)))


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
    start=START,
    claims=CLAIMS,
    result=known_too(model_of),
)
