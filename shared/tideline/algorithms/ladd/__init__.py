"""LADD: clusters by style (Shenaj et al.: Learning Across Domains and Devices: Style-Driven Source-Free Domain Adaptation in
Clustered Federated Learning, WACV 2023), for classification.

Sites without labels adapt a source model. Each tells its style, the low frequencies of its images; those of one style share some
layers, and all share the rest. And LADD with prototype labels that are fixed for a round and information maximisation, as Mori et
al. compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from tideline import nets
from tideline.algorithms.averaging import scored
from tideline.algorithms.ladd import client
from tideline.algorithms.ladd.client import Lesson, Pupil, SharedStyle, Start, State, Style
from tideline.algorithms.source_free import known_too, source
from tideline.algorithms.source_free import method as family_method
from tideline.algorithms.source_free.family import DEMO, TINY, Adapting, Counted, Local, Mine, Model, Taught
from tideline.algorithms.source_free.private import PRIVATELY
from tideline.algorithms.source_free.source import members_of
from tideline.core.algorithm import Algorithm
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.phase import Folded, Phase, Plan, Replies, Turn, to
from tideline.core.record import Nothing, Record, Weights
from tideline.core.rows import Takes
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import EMPTY, Plain, setting
from tideline.core.step import AnyStep, Site
from tideline.nets import layers
from tideline.nets.layers import backbone_of, check_layer, last_layer, layer_of, norms
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment.feature_maps import window_side
from tideline.numerics.clustering.clusters import silhouette_clusters

BATCH_NORM = "batch_norm"
MOST_CLUSTERS = 20
M = TypeVar("M", bound=Mine)
C = TypeVar("C", bound="Styled")


@dataclass(frozen=True)
class Styled(Local):
    """Settings of both."""

    style_transfer: bool = setting(
        False, doc="sources train on images in the targets' styles; each style then goes to the sources as it is"
    )
    cluster_layers: tuple[str, ...] = setting(
        (BATCH_NORM,),
        doc="layers averaged inside clusters: batch_norm, first, last, all, or beginnings of names; all else over all",
    )
    bootstrap: int = setting(0, low=0, doc="first rounds in which all layers are averaged over all")


@dataclass(frozen=True)
class Ladd(Styled):
    """Settings of LADD."""

    lambda_kd: float = setting(1.0, low=0.0, doc="weight of the divergence from the source model's outputs")
    teacher_from: int = setting(0, low=0, doc="t_s: round from which the teacher is a running mean; 0: half of the rounds")


@dataclass(frozen=True)
class LaddPL(Styled, Adapting):
    """Settings of LADD with prototype labels."""


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


# Styles and the source


def cluster(state: State, replies: Replies[Style] | Replies[SharedStyle], turn: Turn[Styled]) -> Folded[State]:
    """Clusters of those who answered, by k-means on their styles."""
    styles: dict[str, Tensor] = {k: reply.style.float() for k, reply in replies.items()}
    seed = int(torch.randint(2**31, (), generator=turn.rng))
    labels = silhouette_clusters(torch.stack([style.flatten() for style in styles.values()]), MOST_CLUSTERS, seed)
    members = dict(zip(styles, labels.tolist(), strict=True))
    groups = {f"cluster {c + 1}": members_of(members, c) for c in range(1 + max(members.values()))}
    return Folded(replace(state, members=members, styles=styles), groups=groups)


def styles_to_sources(state: State, turn: Turn[Styled]) -> dict[ClientId, Lesson]:
    """h and all styles to the sources; to none where the run has initial weights."""
    stacked = torch.stack([state.styles[k].float() for k in sorted(state.styles)])
    return dict.fromkeys(turn.sources(), Lesson(state.f, state.g, stacked))


def take_source(state: State, replies: Replies[Taught], turn: Turn[Styled]) -> State:
    h = source.mean_of(replies)
    return replace(state, f=h.f, g=h.g, source=h.f)


# Rounds


def own(state: State, k: str) -> Weights:
    """The model of a site's cluster; that of all for a site without one, and while clusters have none."""
    return state.models[state.members[k]] if state.models and k in state.members else state.f


def models_to_targets(state: State, turn: Turn[Styled]) -> dict[ClientId, Model]:
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
    models = (f | of_cluster(names, members_of(state.members, c), before[c], replies, rows) for c in sorted(before))
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


START: source.Start[Styled, State] = source.Start(
    State, lambda h, config, rng: State(f=h.f, g=h.g, source=h.f, models=(), members={}, styles={})
)


def plan_of(
    memory_type: type[M], adapt: AnyStep, ask: Callable[[State, Turn[Styled]], Mapping[ClientId, Record]]
) -> Callable[[Styled], Plan[Styled, State]]:
    """The plan of either: styles, the source model in their light, its score, rounds of adaptation."""
    work = Phase("adapt", adapt, ask=ask, fold=fold, sampled=True, asks=(Role.TARGET,))
    own = models_to_targets

    def plan(c: Styled) -> Plan[Styled, State]:
        style = Phase(
            "style",
            client.describing(c.style_transfer, memory_type),
            ask=to(Role.TARGET, Nothing),
            fold=cluster,
            asks=(Role.TARGET,),
        )
        first = (style, *(taught(c, memory_type),) * c.source_rounds, source.source_only(memory_type, own))
        return (*first, *scored(c, (work,), source.score(memory_type, own)))

    return plan


def taught(c: Styled, memory_type: type[M]) -> Phase[Styled, State]:
    """One exchange with the sources."""
    if c.style_transfer:
        return Phase("source", client.teaching(memory_type), ask=styles_to_sources, fold=take_source, asks=(Role.SOURCE,))
    return Phase("source", source.training(memory_type), ask=to(Turn.sources, Model), fold=take_source, asks=(Role.SOURCE,))


def prepare(config: Styled, site: Site[Styled]) -> Pupil:
    return Pupil(f={}, g={}, source={}, teacher={}, taken=0)


def sizes(config: Styled, world: World) -> Mapping[str, int]:
    """How large a style is."""
    if len(world.inputs) != 3:
        return EMPTY
    channels, height, width = world.inputs
    return {"channels": channels, "window": window_side(height, width)}


def check(config: Styled, world: World, roster: Roster) -> None:
    """The world is of images, and the network has the layers. Raises ConfigRefused."""
    if len(world.inputs) != 3:
        what = f"world.inputs is {list(world.inputs)}; styles are compared of images: channels, height, width"
        todo = "Write inputs: [1, 28, 28], or use a method that clusters without looking at rows"
        raise ConfigRefused(what, todo, path="world.inputs")
    own_names(layers.backbone_of(nets.template(world)), config)


def without_source(config: Styled, world: World, roster: Roster) -> tuple[str, ...]:
    """Initial weights have been trained already."""
    if not config.style_transfer or any(m.role is Role.SOURCE and m.labelled for m in roster):
        return ()
    return ("config.style_transfer is true, but the run brings its source model and has no source: no image takes another style",)


CLAIMS = (
    "A style is a mean over up to 100 training images: of images below 40 pixels the mean brightness of each channel.",
    "Not claimed: that a style tells nothing of single images. Of few images it is nearly theirs; a site with one is refused.",
    "A site is never told its cluster's number, size or members, nor anybody's cluster.",
    "With style_transfer each site's style goes to the sources as it is, without the site's name.",
    "Not claimed: that a site cannot guess. Of a cluster of two, its layers and the site's own give the other's.",
)


def method(
    name: str,
    paper: str,
    summary: str,
    config: type[C],
    plan: Callable[[C], Plan[C, State]],
    memory: type[M],
    prepare: Callable[[C, Site[C]], M],
    presets: Mapping[str, Mapping[str, Plain]],
    privately: tuple[str, ...],
) -> Algorithm[C, State, M]:
    return family_method(
        name,
        paper,
        summary,
        config,
        plan,
        start=START,
        memory=memory,
        prepare=prepare,
        check=check,
        takes=lambda config: STYLED,
        presets=presets,
        sizes=sizes,
        notes=notes,
        notes_with_weights=without_source,
        network="lenet",
        claims=CLAIMS,
        privately=privately,
        result=known_too(own),
    )


STYLES_ALONE = (
    "a style is a noised sum over all images of a site, each as if its numbers were between -1 and 1",
    "images that take a target's style are not held to the range of the source's images",
)
STYLED = Takes(frozenset({3}), why="clusters sites by the style of their images")
PAPER = (
    "Shenaj et al.: Learning Across Domains and Devices: Style-Driven Source-Free Domain Adaptation"
    " in Clustered Federated Learning, WACV 2023"
)

ladd = method(
    "ladd",
    PAPER,
    "Sites without labels adapt a source model, in clusters by style, under a teacher",
    Ladd,
    plan_of(Pupil, client.follow, starts),
    memory=Pupil,
    prepare=prepare,
    # Labels of a teacher that fails at some sites pull the layers of all: a tenth of the family's step.
    presets={"tiny": TINY, "demo": {**DEMO, "rate": 0.001}},
    privately=(*STYLES_ALONE, "a teacher is sure of a row from a probability of 0.9 on, whatever it says of other rows"),
)

ladd_pl = method(
    "ladd_pl",
    f"{PAPER}; Mori et al.: Federated Source-free Domain Adaptation for Classification",
    "Sites without labels adapt a source model, in clusters by style, by prototype labels",
    LaddPL,
    plan_of(Mine, client.by_prototypes, models_to_targets),
    memory=Mine,
    prepare=source.prepare,
    presets={"tiny": TINY, "demo": DEMO},
    privately=(*STYLES_ALONE, *PRIVATELY),
)
