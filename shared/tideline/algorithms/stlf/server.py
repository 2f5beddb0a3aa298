"""The coordinator's side: who trains, which pairs train a classifier, and who gets whose model. It reads no hypothesis."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from tideline.algorithms.stlf import messages
from tideline.algorithms.stlf.client import MAIN, OFFERS
from tideline.algorithms.stlf.linking import NO_LINK, chosen, comparison, errors_of, of_links, problem
from tideline.algorithms.stlf.messages import Assignment, Pairs, State, Targets
from tideline.algorithms.stlf.settings import STLF
from tideline.core.asked.secure import SecureSums
from tideline.core.phase import Each, Folded, Replies, Turn, marked
from tideline.core.record import Nothing
from tideline.core.run import ClientId
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment.divergences import blocks
from tideline.numerics.links.link_problem import mended

SLOWEST, FASTEST = 1.0, 1e14  # bit/s that a line can have


def averaged(state: State, replies: Replies[messages.Update], turn: Turn[STLF]) -> State:
    total = sum(reply.count for reply in replies.values())
    return replace(state, model=weighted_sum((reply.count / total, reply.model) for reply in replies.values()))


def by_count(reply: messages.Update, config: STLF, asked: SecureSums) -> float:
    """A device's share in the mean, by its labelled rows."""
    return min(reply.count, asked.rows) / asked.rows


def store_profiles(state: State, replies: Replies[messages.Profile], turn: Turn[STLF]) -> State | Folded[State]:
    """What each device reports of itself. A device that reports nothing, or what cannot be, is out."""
    valid = {c: r for c, r in replies.items() if r.labelled <= r.count}
    state = replace(
        state,
        count={c: r.count for c, r in valid.items()},
        labelled={c: r.labelled for c, r in valid.items()},
        error={c: min(r.error, 1.0) for c, r in valid.items()},
    )
    return without(state, [c for c in turn.members() if c not in valid])


def partners(state: State, turn: Turn[STLF], block: int) -> dict[str, tuple[str, ...]]:
    """Whom each device meets in a block of the tournament, in its order; who was lost meets nobody."""
    names = tuple(sorted(state.count))
    met: dict[str, list[str]] = {name: [] for name in names}
    for i, j in blocks(len(names), turn.config.blocks)[block] if len(names) > 1 else ():
        if not {names[i], names[j]} & set(state.lost):
            met[names[i]].append(names[j])
            met[names[j]].append(names[i])
    return {name: tuple(others) for name, others in met.items() if others}


def halves(state: State, turn: Turn[STLF]) -> Mapping[ClientId, Pairs]:
    """To each device the start, or what its partners made in the exchange before."""
    block, exchange = divmod(turn.round - 1, turn.config.exchanges)
    if exchange:
        return newest_halves(state, turn, block)
    return {ClientId(name): Pairs(others, {}, state.start) for name, others in partners(state, turn, block).items()}


def finished(state: State, turn: Turn[STLF]) -> dict[ClientId, Pairs]:
    return newest_halves(state, turn, turn.round - 1)


def newest_halves(state: State, turn: Turn[STLF], block: int) -> dict[ClientId, Pairs]:
    """To each device of a block what its partners made last."""
    made = state.separators
    pairs = partners(state, turn, block).items()
    return {ClientId(name): Pairs(others, {i: made[pair(i, name)] for i in others}, {}) for name, others in pairs}


def pair(maker: str, reader: str) -> str:
    return f"{maker} for {reader}"


def store_halves(state: State, replies: Replies[messages.Separated], turn: Turn[STLF]) -> State | Folded[State]:
    """Handles of the newest halves. A device that did not answer is out of the tournament, and of the links."""
    asked = partners(state, turn, (turn.round - 1) // turn.config.exchanges)
    read = {c: reply.own for c, reply in replies.items() if reply.own.keys() >= set(asked.get(c, ()))}
    made = {pair(c, other): own[other] for c, own in read.items() for other in asked.get(c, ())}
    return without(replace(state, separators=made), [name for name in asked if name not in read])


def without(state: State, gone: Sequence[str]) -> State | Folded[State]:
    """The state without devices that were lost."""
    lost = map(ClientId, gone)
    return Folded(replace(state, lost=(*state.lost, *gone)), marked({"left out": lost})) if gone else state


def store_errors(state: State, replies: Replies[messages.Errors], turn: Turn[STLF]) -> State | Folded[State]:
    """Errors of finished classifiers, of each device for each partner."""
    read = dict(replies.items())
    known = state.errors | {c: state.errors.get(c, {}) | errors_of(reply.errors, state.count) for c, reply in read.items()}
    missing = [name for name in partners(state, turn, turn.round - 1) if name not in replies]
    rates = dict(state.rates)
    for client, reply in read.items():
        new = {name: rate for name, rate in reply.rates.items() if name in state.count and SLOWEST <= rate <= FASTEST}
        rates[client] = rates.get(client, {}) | new
    sent = state.sent | {c: reply.sent for c, reply in read.items() if SLOWEST <= reply.sent <= FASTEST}
    return without(replace(state, errors=known, separators={}, rates=rates, sent=sent), missing)


def classifier_to_all(state: State, turn: Turn[STLF]) -> dict[ClientId, messages.Whose]:
    """The classifier of all devices."""
    names = present(state)
    return dict.fromkeys(map(ClientId, names), messages.Whose(state.start, names)) if len(names) > 1 else {}


def present(state: State) -> tuple[str, ...]:
    """The devices that take part, sorted."""
    return tuple(sorted(set(state.count) - set(state.lost)))


def store_shared_errors(state: State, replies: Replies[messages.Errors], turn: Turn[STLF]) -> State | Folded[State]:
    """Errors of the one classifier that tells all devices apart."""
    known = {str(client): errors_of(reply.errors, state.count) for client, reply in replies.items()}
    return without(replace(state, errors=known), [n for n in state.count if n not in replies and n not in state.lost])


def to_present(state: State, turn: Turn[STLF]) -> dict[ClientId, Nothing]:
    """A request to all who take part: to those that are linked, once there are links."""
    return dict.fromkeys(map(ClientId, state.names or present(state)), Nothing())


def store_moments(state: State, replies: Replies[messages.Summary], turn: Turn[STLF]) -> State | Folded[State]:
    """The summaries, until divergences are made of them."""
    return without(replace(state, moments=dict(replies.items())), [name for name in present(state) if name not in replies])


def assignments(state: State, turn: Turn[STLF]) -> Mapping[ClientId, Assignment]:
    """To each device what it is, and the models that it gets."""
    return Each(map(ClientId, state.names), lambda name: assignment(state, name))


def assignment(state: State, name: str) -> Assignment:
    """What one device is, and the weight of each source's model in its own by each rule that gives it one."""
    j = state.names.index(name)
    target = {plan.rule: bool(plan.psi[j]) for plan in state.plans}
    weights = {
        source: {plan.rule: float(plan.alpha[i, j]) for plan in state.plans if plan.alpha[i, j] > 0}
        for i, source in enumerate(state.names)
        if source in state.h
    }
    return Assignment(target, {source: messages.Share(state.h[source], given) for source, given in weights.items() if given})


def linked(state: State, replies: Replies[Nothing], turn: Turn[STLF]) -> Folded[State]:
    """Which devices are sources and which targets, and the tables of the links."""
    main = next(plan for plan in state.plans if plan.rule == MAIN)
    sides = {"sources": 0, "targets": 1}.items()
    groups = {side: [ClientId(n) for n, psi in zip(state.names, main.psi, strict=True) if psi == of] for side, of in sides}
    return Folded(state, groups=marked(groups), tables=of_links(state))


def scored(state: State, replies: Replies[Nothing], turn: Turn[STLF]) -> State | Folded[State]:
    """The mean accuracy of each rule's targets, beside what its links cost."""
    tables = comparison(state, replies.metrics)
    return Folded(state, tables=tables) if tables else state


def readers(state: State) -> dict[str, tuple[str, ...]]:
    """Of each source those devices that its model goes to, by any rule."""
    goes = (torch.stack([plan.alpha for plan in state.plans]) > 0).any(0).tolist()
    found = {source: tuple(itertools.compress(state.names, to)) for source, to in zip(state.names, goes, strict=True)}
    return {source: to for source, to in found.items() if to}


def unsealed(state: State, turn: Turn[STLF]) -> dict[ClientId, Targets]:
    """To each source its targets, where one of them has no sealed model of it yet. Nobody where there are no links."""
    to_be = readers(state).items()
    return {ClientId(source): Targets(to) for source, to in to_be if not set(to) <= set(state.readers.get(source, ()))}


def sealed(state: State, replies: Replies[messages.Offered], turn: Turn[STLF]) -> State | Folded[State]:
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
    return Folded(made, marked({word: map(ClientId, sorted(devices)) for word, devices in marks.items()}))


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
    left = ((plan.rule, plan.psi[at].numpy(), plan.alpha[at][:, at].numpy()) for plan in state.plans)
    plans = (chosen(rule, mended(of, psi, alpha)) for rule, psi, alpha in left)
    return replace(state, names=tuple(names), d=d, plans=tuple(plans))
