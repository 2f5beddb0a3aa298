"""f-DAN at the coordinator: moments go to the other side, changes are averaged."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from tideline import nets
from tideline.algorithms.fdan.client import trained
from tideline.algorithms.fdan.messages import Change, Lesson, Moment, State, Width
from tideline.core.phase import MOST_VALUES, Folded, Replies, Table, Turn
from tideline.core.record import Weights
from tideline.core.run import ClientId, Role, Roster, World
from tideline.numerics.aggregation.averaging import weighted_sum

if TYPE_CHECKING:
    from tideline.algorithms.fdan import FDAN


def begin(config: FDAN, world: World, roster: Roster, rng: Generator) -> State:
    """w at random."""
    return begin_with(config, world, roster, rng, nets.weights_of(nets.build(world)))


def begin_with(config: FDAN, world: World, roster: Roster, rng: Generator, h: Weights) -> State:
    """w as it was brought; the seed of all random features."""
    model = trained(h)
    buffers = {name: w for name, w in h.items() if name not in model}
    return State(model, buffers, int(torch.randint(2**31, (), generator=rng)), 0.0, {})


def everybody(turn: Turn[FDAN]) -> tuple[ClientId, ...]:
    """Sources with labels, and the target."""
    return tuple(sorted((*turn.sources(), *turn.members(Role.TARGET))))


def take_width(state: State, replies: Replies[Width], turn: Turn[FDAN]) -> State:
    """s2."""
    (reply,) = replies.values()
    return replace(state, s2=reply.s2)


def take_moments(state: State, replies: Replies[Moment], turn: Turn[FDAN]) -> Folded[State]:
    """m of those who answered, beside the last of the others. One that is no mean of psi is left out, and named."""
    told = {k: reply.m.float() for k, reply in replies.items()}
    moments: dict[str, Tensor] = {**state.moments, **{str(k): m for k, m in told.items() if is_mean(m)}}
    marks = {"left out": odd} if (odd := tuple(k for k, m in told.items() if not is_mean(m))) else {}
    return Folded(replace(state, moments=moments), marks, tables=distances(moments, turn))


def is_mean(m: Tensor) -> bool:
    """Whether it can be a mean of psi, none of whose D numbers exceeds sqrt(2 / D)."""
    return float(m.abs().max()) <= math.sqrt(2 / len(m)) * (1 + 1e-5)


def distances(moments: dict[str, Tensor], turn: Turn[FDAN]) -> dict[str, Table]:
    """What people are told: |m_i - m_T|^2 of each source."""
    target = target_of(moments, turn)
    names = tuple(k for k in turn.sources() if k in moments)[:MOST_VALUES]
    if target is None or not names:
        return {}
    values = tuple((float((moments[k] - target).double().square().sum()),) for k in names)
    return {"distance from the target": Table(names, ("distance",), values)}


def target_of(moments: dict[str, Tensor], turn: Turn[FDAN]) -> Tensor | None:
    """m_T."""
    return next((moments[k] for k in turn.members(Role.TARGET) if k in moments), None)


def lessons(state: State, turn: Turn[FDAN]) -> dict[ClientId, Lesson]:
    """To each source m_T; to the target the mean of m_i, and by how much they differ."""
    given = state.model, state.buffers, state.seed, state.s2
    known = [state.moments[k] for k in turn.sources() if k in state.moments]
    made = dict.fromkeys(turn.sources(), Lesson(*given, target_of(state.moments, turn), 0.0))
    return {**made, **dict.fromkeys(turn.members(Role.TARGET), Lesson(*given, *centre(known)))}


def centre(moments: list[Tensor]) -> tuple[Tensor | None, float]:
    """The mean m of some moments (D,), and the mean of |m_i|^2 less |m|^2, not below 0."""
    if not moments:
        return None, 0.0
    all_ND = torch.stack(moments).double()
    mean = all_ND.mean(0)
    return mean.float(), max(0.0, float(all_ND.square().sum(1).mean() - mean.square().sum()))


def average(state: State, replies: Replies[Change], turn: Turn[FDAN]) -> State:
    """w <- w + the plain mean of changes."""
    changes = ((1 / len(replies), reply.delta) for reply in replies.values())
    return replace(state, model=weighted_sum([(1.0, state.model), *changes]))
