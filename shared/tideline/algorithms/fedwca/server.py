"""FedWCA at the coordinator: clusters, their models, and how these are mixed (algorithm 1, lines 7 to 10 and 17 to 22).

Who is in which cluster is settled after the first round; it changes only as sites come late or are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from tideline.algorithms.fedwca.client import Mix, Start, State, Weighed
from tideline.algorithms.source_free.family import Adapted, Model
from tideline.algorithms.source_free.source import members_of
from tideline.core.phase import MOST_VALUES, Folded, Replies, Table, Turn
from tideline.core.record import Weights
from tideline.core.run import ClientId, Role
from tideline.core.settings import EMPTY
from tideline.nets import layers
from tideline.numerics.aggregation.averaging import on_simplex, weighted_sum
from tideline.numerics.clustering.clusters import agglomerative, finch, nearest_cluster, ranks, repaired
from tideline.numerics.clustering.mixing import mean_weights, mixed, soft_weights, start_weights

if TYPE_CHECKING:
    from tideline.algorithms.fedwca import Config

FINCH, AGGLOMERATIVE, GIVEN = "finch", "agglomerative", "given"
KINDS = (FINCH, AGGLOMERATIVE, GIVEN)
ADAPTIVE = "one-equal-adaptive"  # the weights for which the one soft model is the mean of all

FULL, LOCAL, ONE_HOT, EQUAL, ONE_EQUAL = "full", "local", "one-hot", "equal", "one-equal"
MEASURED = (FULL, ADAPTIVE, LOCAL)


def point(f: Weights, config: Config) -> Tensor:
    """What a site is clustered by: the parameters of a layer of f_k, (p,)."""
    return layers.layer(f, config.cluster_on, "config.cluster_on")


def clustered(points: Mapping[str, Tensor], config: Config) -> dict[str, int]:
    """The cluster of each site, numbered from 0 in the order of their first members."""
    names = sorted(points)
    if config.clustering == GIVEN:
        groups = [config.given[k] for k in names]
        return {k: list(dict.fromkeys(groups)).index(group) for k, group in zip(names, groups, strict=True)}
    stacked = torch.stack([points[k] for k in names])
    few = min(config.clusters, len(names))
    labels = agglomerative(stacked, few) if config.clustering == AGGLOMERATIVE else finch(stacked)
    return dict(zip(names, labels.tolist(), strict=True))


def assigned(state: State, replies: Mapping[ClientId, Adapted | Weighed], config: Config) -> State:
    """Those who answered and have no cluster join that of the site with the nearest layer, or of their given group.

    A given group without a cluster gets a cluster.
    """
    for k in (k for k in replies if k not in state.members):
        here = point(replies[k].f, config)
        c = place_of(state, k, here, config)
        if c == len(state.models):
            state = widened(state, replies[k].f, config)
        state = replace(state, members={**state.members, k: c}, layers={**state.layers, k: here})
    return state


def widened(state: State, f: Weights, config: Config) -> State:
    """The state with one cluster more. What was known of weights stays: none is given to it, and its soft model is its own."""
    C = len(state.models)
    soft = first_soft(C + 1, config)
    if config.weights != ADAPTIVE:
        soft[:C, :C] = state.soft
    v = {k: torch.cat([v, v.new_zeros(1)]) for k, v in state.v.items()}
    return replace(state, models=(*state.models, f), soft=soft, v=v)


def first_soft(C: int, config: Config) -> Tensor:
    """S while nothing is known of weights: f~_c = f_c, or, for one-equal-adaptive, always the mean of all."""
    return torch.full((1, C), 1 / C, dtype=torch.float64) if config.weights == ADAPTIVE else torch.eye(C, dtype=torch.float64)


def place_of(state: State, k: ClientId, here: Tensor, config: Config) -> int:
    """The cluster that a site joins; one after the last, where its given group has none."""
    if config.clustering == GIVEN:
        mates = [c for other, c in sorted(state.members.items()) if config.given[other] == config.given[k]]
        return mates[0] if mates else len(state.models)
    names = sorted(state.members)
    labels = torch.tensor([state.members[each] for each in names])
    return nearest_cluster(here, torch.stack([state.layers[each] for each in names]), labels)


def parted(state: State, config: Config) -> State:
    """Without those who have missed too many rounds in a row. Of a cluster of one, the site joins its nearest; of none, it goes.

    Where all are lost everything stays: no site is left to change it for.
    """
    left = sorted(k for k, n in state.missed.items() if n < config.lost_after)
    if not left or len(left) == len(state.members):
        return state
    old = torch.tensor([state.members[k] for k in left])
    # Numbers without gaps, whichever cluster is gone.
    labels = repaired(old, torch.stack([state.layers[k] for k in left])) if config.clustering == FINCH else ranks(old)
    return renumbered(state, dict(zip(left, labels.tolist(), strict=True)))


def renumbered(state: State, members: Mapping[str, int]) -> State:
    """The state with the sites and clusters that are left. What was a cluster's weight goes to where its members went."""
    into = {old: c for k, c in sorted(members.items(), reverse=True) for old in [state.members[k]]}
    C = 1 + max(members.values())
    # A cluster keeps the model of the largest that went into it.
    size = {old: sum(1 for k in members if state.members[k] == old) for old in into}
    kept = [max((old for old in into if into[old] == c), key=lambda old: (size[old], -old)) for c in range(C)]
    return replace(
        state,
        models=tuple(state.models[old] for old in kept),
        members=dict(members),
        layers={k: state.layers[k] for k in members},
        missed={k: state.missed[k] for k in members},
        soft=moved(state.soft if len(state.soft) != len(state.models) else state.soft[kept], into, C),
        v={k: moved(v[None], into, C)[0] for k, v in state.v.items() if k in members},
    )


def moved(weights: Tensor, into: Mapping[int, int], C: int) -> Tensor:
    """Rows of weights of the old clusters (n, C_old) as rows of weights of the new ones (n, C), of sum one again.

    The weight of a cluster that is gone is shared out in proportion; equally, where no other had any.
    """
    made = torch.zeros(len(weights), C, dtype=weights.dtype)
    for old, new in into.items():
        made[:, new] += weights[:, old]
    return on_simplex(made)


# Those whose sites measure something; of the others the coordinator knows all weights.
WEIGHTS = (*MEASURED, ONE_HOT, EQUAL, ONE_EQUAL)


def of_model(h: Model, config: Config, rng: Generator) -> State:
    return State(f=h.f, g=h.g, models=(), members={}, layers={}, missed={}, soft=torch.zeros(0, 0, dtype=torch.float64), v={})


def own_to_targets(state: State, turn: Turn[Config]) -> dict[ClientId, Model]:
    """The model of its cluster to every target; h_S to one that has none."""
    made = [Model(f, state.g) for f in state.models]
    none = Model(state.f, state.g)
    return {k: made[state.members[k]] if k in state.members else none for k in turn.members(Role.TARGET)}


def model_of(state: State, site: str) -> Weights:
    """f of a site's cluster; f_S for a site that has none."""
    return state.models[state.members[site]] if site in state.members else state.f


# The first round


def source_start(state: State, turn: Turn[Config]) -> Start:
    """f_S, where all begin."""
    return Start(state.f, None, state.g)


def cluster(state: State, replies: Replies[Adapted], turn: Turn[Config]) -> Folded[State]:
    """Clusters of those who answered, by a layer of their f_k; the mean of each (lines 8 to 10)."""
    layers: dict[str, Tensor] = {k: point(reply.f, turn.config) for k, reply in replies.items()}
    members = clustered(layers, turn.config)
    C = 1 + max(members.values())
    models = tuple(mean_of([(1, replies[k].f) for k in members_of(members, c)]) for c in range(C))
    state = replace(state, models=models, members=members, layers=layers, missed=dict.fromkeys(members, 0))
    return reported(replace(state, soft=first_soft(C, turn.config), v={}))


def mean_of(terms: list[tuple[int, Weights]]) -> dict[str, Tensor]:
    """The mean of models that count so many times."""
    n = sum(count for count, _ in terms)
    return weighted_sum((count / n, f) for count, f in terms)


# Later rounds


def models_to_mix(state: State, turn: Turn[Config]) -> dict[ClientId, Mix]:
    """C + 1 models to each site with a cluster. One that has none adapts from f_S as in the first round."""
    softs = tuple(mixed(state.models, state.soft[c]) for c in shown(state)) if len(state.models) > 1 else ()
    slots = torch.zeros(len(softs))
    made = [Mix(f, softs, state.g, slots) for f in state.models]
    none = Mix(state.f, (), state.g, torch.zeros(0))
    return {k: made[state.members[k]] if k in state.members else none for k in turn.members(Role.TARGET)}


def shown(state: State) -> list[int]:
    """The rows of S in the order in which their models are sent: by the numbers in the clusters' models.

    Clusters count in the order of their first members' names, and where f~_c = f_c, a site finds its own among the soft ones.
    """
    rows = range(len(state.soft))
    if len(state.soft) != len(state.models):
        return list(rows)
    return sorted(rows, key=lambda c: [float(w.sum(dtype=torch.float64)) for _, w in sorted(state.models[c].items())])


def starts(state: State, turn: Turn[Config]) -> dict[ClientId, Start]:
    """f_init and the own cluster's model to each site (appendix D); f_S to one that has no cluster."""
    none = Start(state.f, None, state.g)
    return {k: start_of(state, k, turn.config) if k in state.members else none for k in turn.members(Role.TARGET)}


def start_of(state: State, k: ClientId, config: Config) -> Start:
    """f_init = sum_c v_{k,c} f_c of now, with the weights of the last full round."""
    own, v = state.members[k], shares(state, k, config)
    alone = float(v[own]) == 1.0
    return Start(state.models[own], None if alone else mixed(state.models, v), state.g)


def shares(state: State, k: ClientId, config: Config) -> Tensor:
    """v_k (C,): measured in the last full round, or by rule. All on the own cluster where nothing was measured."""
    C, own = len(state.models), state.members[k]
    v = torch.zeros(C, dtype=torch.float64)
    v[own] = 1
    if config.weights in MEASURED:
        return state.v.get(k, v)
    if config.weights == EQUAL:
        return torch.full_like(v, 1 / C)
    if config.weights == ONE_EQUAL and C > 1:
        return torch.full_like(v, (1 - config.one_share) / (C - 1)).index_fill(0, torch.tensor([own]), config.one_share)
    return v


def fold(state: State, replies: Replies[Adapted] | Replies[Weighed], turn: Turn[Config]) -> Folded[State]:
    """The clusters' models after a round in which nothing was measured."""
    return reported(parted(averaged(assigned(state, replies, turn.config), replies), turn.config), before=state)


def fold_measured(state: State, replies: Replies[Weighed], turn: Turn[Config]) -> Folded[State]:
    """The clusters' models after a full round, v of each site, and S for the next (lines 17 to 20, eq. 8)."""
    measured = assigned(weighed(state, replies, turn.config), replies, turn.config)
    return reported(parted(averaged(measured, replies), turn.config), before=state, with_weights=True)


def averaged(state: State, replies: Mapping[ClientId, Adapted | Weighed]) -> State:
    """f_c: the mean over its members; one that did not answer counts as the model that it was to begin with.

    So a cluster of which one site answered is not that site's model, which the others would be sent.
    """
    models = []
    for c, f in enumerate(state.models):
        members = members_of(state.members, c)
        here = [k for k in members if k in replies]
        absent = len(members) - len(here)
        terms = [(1, replies[k].f) for k in here] + ([(absent, f)] if absent else [])
        models.append(mean_of(terms) if here else f)
    missed = {k: 0 if k in replies else state.missed.get(k, 0) + 1 for k in state.members}
    return replace(state, models=tuple(models), missed=missed)


def weighed(state: State, replies: Replies[Weighed], config: Config) -> State:
    """v of those who measured on the models that the state sent, and S from the means over clusters."""
    if len(state.models) == 1:
        return state
    at = torch.tensor(shown(state))  # weights come in the order in which soft models were sent
    here = ((k, on_simplex(r.alpha.double()), on_simplex(r.beta.double())) for k, r in replies.items() if k in state.members)
    sent = {k: (torch.empty_like(alpha).index_copy_(0, at, alpha), beta) for k, alpha, beta in here}
    v: dict[str, Tensor] = {k: start_weights(state.members[k], alpha, beta, state.soft) for k, (alpha, beta) in sent.items()}
    state = replace(state, v={**state.v, **v})
    if config.weights != FULL:
        return state
    clusters = [state.members[k] for k in sent]
    means = mean_weights([a for a, _ in sent.values()], [b for _, b in sent.values()], clusters, len(state.models))
    return replace(state, soft=soft_weights(means, config.mixing))


def reported(state: State, before: State | None = None, with_weights: bool = False) -> Folded[State]:
    """The state; for the result who is in which cluster, where that changed, and v of each site, where it was measured."""
    names = tuple(f"cluster {c + 1}" for c in range(len(state.models)))
    changed = before is None or before.members != state.members
    groups = {name: members_of(state.members, c) for c, name in enumerate(names)} if changed else EMPTY
    return Folded(state, groups=groups, tables=tables(state, names) if with_weights else EMPTY)


def tables(state: State, names: tuple[str, ...]) -> Mapping[str, Table]:
    """v of each site; the means of clusters where that is more than is kept of a round; nothing where these are, too."""
    rows = {k: state.v[k] for k in sorted(state.v)}
    what = "weights of the clusters' models, v"
    if len(rows) * len(names) > MOST_VALUES:
        members = {name: [k for k in members_of(state.members, c) if k in rows] for c, name in enumerate(names)}
        rows = {name: torch.stack([rows[k] for k in here]).mean(0) for name, here in members.items() if here}
        what = "weights of the clusters' models, mean v of a cluster's sites"
    if not rows or len(rows) * len(names) > MOST_VALUES:
        return EMPTY
    return {what: Table(tuple(rows), names, tuple(tuple(v.tolist()) for v in rows.values()))}
