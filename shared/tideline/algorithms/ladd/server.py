"""LADD at the coordinator: styles, the clusters that they make, and a model for each cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from tideline import nets
from tideline.algorithms.ladd.client import Lesson, SharedStyle, Start, State, Style
from tideline.algorithms.source_free import source
from tideline.algorithms.source_free.messages import Counted, Model, Taught
from tideline.core.phase import Folded, Replies, Turn
from tideline.core.record import Weights
from tideline.core.run import ClientId, Role, World
from tideline.nets.layers import backbone_of, check_layer, last_layer, layer_of, norms
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.clustering.kmeans import silhouette_clusters

if TYPE_CHECKING:
    from tideline.algorithms.ladd import Styled

BATCH_NORM = "batch_norm"


def own_names(f: Mapping[str, Tensor], config: Styled) -> frozenset[str]:
    """The names of the parameters and buffers that are averaged inside clusters. f: of a template too.

    Raises ConfigRefused for a word that no layer fits.
    """
    own = {layer for i, word in enumerate(config.cluster_layers) for layer in meant(f, word, f"config.cluster_layers[{i}]")}
    return frozenset(name for name in f if layer_of(name) in own)


def meant(f: Mapping[str, Tensor], word: str, path: str) -> list[str]:
    """The layers that a word stands for. A network without batch norm has its last layer in its place."""
    if word == BATCH_NORM:
        return norms(f) or [last_layer(f)]
    return [layer_of(name) for name in check_layer(f, word, path)]


def notes(config: Styled, world: World) -> tuple[str, ...]:
    """Where the network has no batch norm, what stands in its place."""
    f = backbone_of(nets.template(world))
    if BATCH_NORM not in config.cluster_layers or norms(f):
        return ()
    instead = f"{last_layer(f)}, its last layer below the classifier, is averaged inside clusters instead"
    return (f"config.cluster_layers says {BATCH_NORM}, and {world.model} has no such layer: {instead}",)


MOST_CLUSTERS = 20


def of_model(h: Model, config: Styled, rng: Generator) -> State:
    """Nobody has told its style yet."""
    return State(h.f, h.g, h.f, (), {}, {})


# Styles and the source


def cluster(state: State, replies: Replies[Style] | Replies[SharedStyle], turn: Turn[Styled]) -> Folded[State]:
    """Clusters of those who answered, by k-means on their styles; people are told them."""
    styles: dict[str, Tensor] = {k: reply.style.float() for k, reply in replies.items()}
    seed = int(torch.randint(2**31, (), generator=turn.rng))
    labels = silhouette_clusters(torch.stack([style.flatten() for style in styles.values()]), MOST_CLUSTERS, seed)
    members = dict(zip(styles, labels.tolist(), strict=True))
    groups = {f"cluster {c + 1}": of(members, c) for c in range(1 + max(members.values()))}
    return Folded(replace(state, members=members, styles=styles), groups=groups)


def of(members: Mapping[str, int], c: int) -> tuple[ClientId, ...]:
    """Who is in a cluster, sorted."""
    return tuple(ClientId(k) for k in sorted(members) if members[k] == c)


def styles_to_sources(state: State, turn: Turn[Styled]) -> dict[ClientId, Lesson]:
    """h and all styles to the sources; to nobody where the source model was brought."""
    stacked = torch.stack([state.styles[k].float() for k in sorted(state.styles)])
    return dict.fromkeys(turn.sources(), Lesson(state.f, state.g, stacked))


def take_source(state: State, replies: Replies[Taught], turn: Turn[Styled]) -> State:
    """h_S."""
    h = source.mean_of(replies)
    return replace(state, f=h.f, g=h.g, source=h.f)


# Rounds


def own(state: State, k: ClientId) -> Weights:
    """The model of a site's cluster; that of all for a site without one, and while clusters have none."""
    return state.models[state.members[k]] if state.models and k in state.members else state.f


def models_to_targets(state: State, turn: Turn[Styled]) -> dict[ClientId, Model]:
    """Its cluster's model to every target."""
    return {k: Model(own(state, k), state.g) for k in turn.members(Role.TARGET)}


def starts(state: State, turn: Turn[Styled]) -> dict[ClientId, Start]:
    """Its cluster's model to every target, with f_S."""
    return {k: Start(own(state, k), state.source, state.g) for k in turn.members(Role.TARGET)}


def fold(state: State, replies: Replies[Counted], turn: Turn[Styled]) -> State:
    """The mean over all by n_i; for each cluster the same, but with the means of its members in the layers that are its own."""
    names = own_names(state.f, turn.config)
    rows = {k: reply.samples for k, reply in replies.items()}
    f = weighted_mean(replies, rows)
    if turn.round <= turn.config.bootstrap or not names:
        return replace(state, f=f, models=())
    before = {c: state.models[c] if state.models else state.f for c in state.members.values()}
    models = (f | of_cluster(names, of(state.members, c), before[c], replies, rows) for c in sorted(before))
    return replace(state, f=f, models=tuple(models))


def weighted_mean(
    replies: Mapping[ClientId, Counted], rows: Mapping[ClientId, int], names: frozenset[str] | None = None
) -> dict[str, Tensor]:
    """sum_i (n_i / n) f_i over the sites in rows, of all tensors or of some."""
    n = sum(rows.values())
    chosen = ((k, replies[k].f) for k in rows)
    return weighted_sum((rows[k] / n, f if names is None else {name: f[name] for name in sorted(names)}) for k, f in chosen)


def of_cluster(
    names: frozenset[str], members: tuple[ClientId, ...], before: Weights, replies: Replies[Counted], rows: Mapping[ClientId, int]
) -> dict[str, Tensor]:
    """A cluster's own layers: the mean over its members that answered, by n_i; as before, where none did.

    Where one of several answered, half of what was before stays, so that the others are not sent that site's layers as they are.
    """
    kept = {name: before[name] for name in sorted(names)}
    here = {k: rows[k] for k in members if k in rows}
    if not here:
        return kept
    mean = weighted_mean(replies, here, names)
    return mean if len(here) > 1 or len(members) == 1 else weighted_sum([(0.5, mean), (0.5, kept)])
