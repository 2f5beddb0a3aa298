"""FedPCL at the coordinator: every site's prototypes, and their mean. It has no model but the source's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from tideline.algorithms.fedpcl_pl.client import LEAST, WIDTH
from tideline.algorithms.fedpcl_pl.messages import Common, Described, Lesson, State
from tideline.algorithms.source_free import source
from tideline.algorithms.source_free.messages import Model, Taught
from tideline.core.phase import Replies, Turn
from tideline.core.run import ClientId, Role, World
from tideline.numerics.labels.contrast import Sets, mean_prototypes

if TYPE_CHECKING:
    from tideline.algorithms.fedpcl_pl import Config


def of_model(h: Model, config: Config, rng: Generator) -> State:
    """One seed for all heads; nobody has sent a prototype yet."""
    return State(h.f, h.g, int(torch.randint(2**31, (), generator=rng)), {}, {})


def take_source(state: State, replies: Replies[Taught], turn: Turn[Config]) -> State:
    """h_S."""
    h = source.mean_of(replies)
    return replace(state, f=h.f, g=h.g)


def gathered(state: State, world: World) -> Sets:
    """All sites' prototypes, in the order of their names; without sites that have none."""
    known = [(state.prototypes[k], state.counts[k] >= LEAST) for k in sorted(state.prototypes)]
    known = [(prototypes, there) for prototypes, there in known if bool(there.any())]
    if not known:
        return Sets(torch.zeros(0, world.classes, WIDTH), torch.zeros(0, world.classes, dtype=torch.bool))
    return Sets(torch.stack([prototypes for prototypes, _ in known]), torch.stack([there for _, there in known]))


def common(state: State, each: Sets) -> Common:
    """The frozen model, the seed and the mean prototypes."""
    mean = mean_prototypes(each)
    return Common(state.f, state.g, state.seed, mean.prototypes[0], mean.present[0])


def to_targets(state: State, turn: Turn[Config]) -> dict[ClientId, Common]:
    """What is common, to every target."""
    return dict.fromkeys(turn.members(Role.TARGET), common(state, gathered(state, turn.world)))


def lessons(state: State, turn: Turn[Config]) -> dict[ClientId, Lesson]:
    """What is common and all sites' prototypes, to every target."""
    each = gathered(state, turn.world)
    return dict.fromkeys(turn.members(Role.TARGET), Lesson(common(state, each), each.prototypes, each.present))


def collect(state: State, replies: Replies[Described], turn: Turn[Config]) -> State:
    """The prototypes of those who answered, beside the last of the others."""
    prototypes: dict[str, Tensor] = {**state.prototypes, **{str(k): r.prototypes.float() for k, r in replies.items()}}
    counts: dict[str, Tensor] = {**state.counts, **{str(k): r.counts for k, r in replies.items()}}
    return replace(state, prototypes=prototypes, counts=counts)
