"""Sources give their models once it is known who gets them, sealed for these alone; links whose source gives none are mended."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from tideline.algorithms.stlf.client import OFFERS
from tideline.algorithms.stlf.linking import NO_LINK, chosen, problem
from tideline.algorithms.stlf.messages import Chosen, Offered, State, Targets
from tideline.algorithms.stlf.settings import STLF
from tideline.core.phase import Folded, Replies, Turn
from tideline.core.run import ClientId
from tideline.numerics.links.link_problem import Problem, mended


def readers(state: State) -> dict[str, tuple[str, ...]]:
    """Of each source those devices that its model goes to, by any rule."""
    goes = (torch.stack([plan.alpha for plan in state.plans]) > 0).any(0).tolist()
    found = {source: tuple(itertools.compress(state.names, to)) for source, to in zip(state.names, goes, strict=True)}
    return {source: to for source, to in found.items() if to}


def unsealed(state: State, turn: Turn[STLF]) -> dict[ClientId, Targets]:
    """To each source its targets, where one of them has no sealed model of it yet. Nobody where there are no links."""
    to_be = readers(state).items()
    return {ClientId(source): Targets(to) for source, to in to_be if not set(to) <= set(state.readers.get(source, ()))}


def sealed(state: State, replies: Replies[Offered], turn: Turn[STLF]) -> State | Folded[State]:
    """Handles of the models that came. Without an answer a source's links are made anew, or done without when asking is over."""
    asked = unsealed(state, turn)
    came = {c: reply.h for c, reply in replies.items() if c in asked}
    state = replace(state, h=state.h | came, readers=state.readers | {c: asked[c].names for c in came})
    silent = [c for c in asked if c not in came]
    return anew(state, silent, turn) if silent else state


def anew(state: State, silent: Sequence[ClientId], turn: Turn[STLF]) -> Folded[State]:
    """Links without those who gave no model. Marked are they, whose links were made anew, and who is left without any model."""
    lost, over = [c for c in silent if c not in state.h], turn.round == OFFERS
    names = [n for n in state.names if n not in lost and not alone(state, n, lost, over)]
    waited = {n for source, to in unsealed(state, turn).items() for n in to.names if n not in state.readers.get(source, ())}
    made = relinked(replace(state, lost=(*state.lost, *lost)), names, turn, over)
    bare = set(state.names) - set(names) - set(lost)
    marks: dict[str, set[str]] = {"left out": set(lost), "linked anew": waited & set(names), "without a model": bare}
    return Folded(made, {word: tuple(map(ClientId, sorted(marked))) for word, marked in marks.items() if marked})


def alone(state: State, name: str, lost: Sequence[str], over: bool) -> bool:
    """Whether a device has no labels, and no other's model can reach it."""
    able = [n for n in state.names if state.labelled[n] and n not in lost]
    return not state.labelled[name] and not any(reaches(state, source, name, over) for source in able)


def reaches(state: State, source: str, name: str, over: bool) -> bool:
    """Whether there is a link; or, when asking is over, whether the source's model is sealed for the device."""
    if over:
        return name in state.readers.get(source, ())
    return float(state.K[state.roster.index(source), state.roster.index(name)]) != NO_LINK


def relinked(state: State, names: Sequence[str], turn: Turn[STLF], over: bool) -> State:
    """The plans between these devices: what is left of each target's weights, or its cheapest source where nothing is.

    over: only what is sealed for a device can reach it. One with labels that nothing reaches keeps its own model, as a source.
    """
    at = [state.names.index(name) for name in names]
    d = state.d[at][:, at]
    of = problem(state, tuple(names), d, turn)
    if over:
        given = np.array([[reaches(state, source, name, over) for name in names] for source in names], bool)
        of = replace(of, K=np.where(given, of.K, np.inf))
    return replace(state, names=tuple(names), d=d, plans=tuple(again(plan, of, at) for plan in state.plans))


def again(plan: Chosen, of: Problem, at: Sequence[int]) -> Chosen:
    """A rule's plan between those devices of it that are left."""
    return chosen(plan.rule, mended(of, plan.psi[at].numpy(), plan.alpha[at][:, at].numpy()))
