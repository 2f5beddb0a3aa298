"""Who is in which cluster: once after the first round, and then only as sites come late or are lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tideline.algorithms.fedwca.messages import State, Weighed
from tideline.algorithms.source_free.messages import Adapted
from tideline.core.record import Weights
from tideline.core.run import ClientId
from tideline.nets import layers
from tideline.numerics.clustering.finch import agglomerative, finch, nearest_cluster, ranks, repaired

if TYPE_CHECKING:
    from tideline.algorithms.fedwca import Config

FINCH, AGGLOMERATIVE, GIVEN = "finch", "agglomerative", "given"
KINDS = (FINCH, AGGLOMERATIVE, GIVEN)
ADAPTIVE = "one-equal-adaptive"  # the weights for which the one soft model is the mean of all


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

    A given group of whom nobody was here gets a cluster.
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

    Where all are lost everything stays: there is nobody to change it for.
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
    total = made.sum(1, keepdim=True)
    return torch.where(total > 0, made / total.where(total > 0, 1), 1 / C)
