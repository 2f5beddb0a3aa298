"""LADD: clusters by style (Shenaj et al.: Learning Across Domains and Devices: Style-Driven Source-Free Domain Adaptation in
Clustered Federated Learning, WACV 2023), for classification.

Sites without labels adapt a source model. Each tells its style, the low frequencies of its images; those of one style share some
layers, and all share the rest. And LADD with prototype labels that are fixed for a round and information maximisation, as Mori et
al. compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tideline import nets
from tideline.algorithms.ladd import client, server
from tideline.algorithms.ladd.layers import BATCH_NORM, notes, own_names
from tideline.algorithms.ladd.messages import Pupil, State
from tideline.algorithms.source_free import scoring, source
from tideline.algorithms.source_free.messages import Mine
from tideline.algorithms.source_free.settings import DEMO, TINY, Adapting, Local
from tideline.core.algorithm import Algorithm, InitialWeights
from tideline.core.errors import ConfigRefused
from tideline.core.phase import Phase, Plan, Turn
from tideline.core.record import Record
from tideline.core.run import EMPTY, ClientId, Role, Roster, World
from tideline.core.settings import Plain, setting
from tideline.core.step import AnyStep, Site
from tideline.nets import layers
from tideline.numerics.clustering.styles import window_side

M = TypeVar("M", bound=scoring.Kept)


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


C = TypeVar("C", bound=Styled)


def plan_of(
    keeps: type[M], adapt: AnyStep, ask: Callable[[State, Turn[Styled]], Mapping[ClientId, Record]]
) -> Callable[[Styled], Plan[Styled, State]]:
    """The plan of either: styles, the source model in their light, its score, rounds of adaptation."""
    work = Phase("adapt", adapt, ask=ask, fold=server.fold)
    own = server.models_to_targets

    def plan(c: Styled) -> Plan[Styled, State]:
        style = Phase("style", client.describing(c.style_transfer, keeps), ask=server.nothing_to_targets, fold=server.cluster)
        first = (style, *(taught(c, keeps),) * c.source_rounds, scoring.source_only(own, keeps))
        return (*first, *scoring.scored(c, lambda r: work, scoring.score(own, keeps)))

    return plan


def taught(c: Styled, keeps: type[M]) -> Phase[Styled, State]:
    """One exchange with the sources."""
    if c.style_transfer:
        return Phase("source", client.teaching(keeps), ask=server.styles_to_sources, fold=server.take_source)
    return Phase("source", source.training(keeps), ask=server.model_to_sources, fold=server.take_source)


def prepare(config: Styled, site: Site[Styled]) -> Pupil:
    """No model and no teacher yet."""
    return Pupil({}, {}, {}, {}, 0)


def sizes(config: Styled, world: World) -> Mapping[str, int]:
    """How large a style is."""
    if len(world.inputs) != 3:
        return EMPTY
    channels, height, width = world.inputs
    return {"channels": channels, "window": window_side(height, width)}


def needs_both(config: Styled, world: World, roster: Roster) -> None:
    """A source and targets, images, and layers that the network has. Raises ConfigRefused, RosterRefused."""
    source.needs_both(config, world, roster)
    check(config, world)


def needs_targets(config: Styled, world: World, roster: Roster) -> None:
    """What a run needs that brings its source model. Raises ConfigRefused, RosterRefused."""
    source.needs_targets(config, world, roster)
    check(config, world)


def check(config: Styled, world: World) -> None:
    """The world is of images, and the network has the layers. Raises ConfigRefused."""
    if len(world.inputs) != 3:
        raise ConfigRefused(
            f"world.inputs is {list(world.inputs)}; styles are compared of images: channels, height, width",
            "Write inputs: [1, 28, 28], or use a method that clusters without looking at rows",
            path="world.inputs",
        )
    own_names(layers.backbone_of(nets.template(world)), config)


def without_source(config: Styled, world: World, roster: Roster) -> tuple[str, ...]:
    """A source model that was brought has been trained already."""
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
) -> Algorithm[C, State, M]:
    """Either of the two."""
    return Algorithm(
        *(name, paper, summary, config, State, server.begin, plan, memory, prepare, needs_both),
        presets=presets,
        cast=(Role.SOURCE, Role.TARGET, Role.TARGET),
        keepsakes=scoring.keepsakes,
        notes=notes,
        sizes=sizes,
        claims=CLAIMS,
        initial_weights=InitialWeights(server.begin_with, needs_targets, without_source),
    )


PAPER = (
    "Shenaj et al.: Learning Across Domains and Devices: Style-Driven Source-Free Domain Adaptation"
    " in Clustered Federated Learning, WACV 2023"
)

ladd = method(
    "ladd",
    PAPER,
    "Sites without labels adapt a source model, in clusters by style, under a teacher",
    Ladd,
    plan_of(Pupil, client.follow, server.starts),
    memory=Pupil,
    prepare=prepare,
    # Labels of a teacher that fails at some sites pull the layers of all: a tenth of the family's step.
    presets={"tiny": TINY, "demo": {**DEMO, "rate": 0.001}},
)

ladd_pl = method(
    "ladd_pl",
    f"{PAPER}; Mori et al.: Federated Source-free Domain Adaptation for Classification",
    "Sites without labels adapt a source model, in clusters by style, by prototype labels",
    LaddPL,
    plan_of(Mine, client.by_prototypes, server.models_to_targets),
    memory=Mine,
    prepare=source.prepare,
    presets={"tiny": TINY, "demo": DEMO},
)
