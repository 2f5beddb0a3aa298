"""The coordinator's side: it holds the identifiers, steps them on the sum of both parties' halves, and passes handles on."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Generator

from tideline import nets
from tideline.algorithms.fada.messages import Common, Follow, Followed, Halves, Identifier, Identifiers, Improve, Improved, State
from tideline.algorithms.fada.settings import GRADIENTS, PARAM, Either, aligns, begins_anew
from tideline.core.asked.world import World
from tideline.core.errors import RosterRefused, StepFailed
from tideline.core.phase import Folded, Replies, Table, Turn, folded, marked
from tideline.core.record import Nothing
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import EMPTY
from tideline.nets.disentangling import identifier, sizes
from tideline.numerics.alignment.adversarial import a_distance, bounded

G = TypeVar("G")
Errors = dict[str, dict[str, tuple[float, ...]]]


def begin(config: Either, world: World, roster: Roster, rng: Generator) -> State:
    """G and C at random, and one start for all identifiers."""
    start = nets.weights_of(nets.build(world))
    di = torch.nn.utils.parameters_to_vector(identifier(sizes(world)[1]).parameters()).detach()
    sources, targets = (sorted(m.id for m in roster if m.role is role) for role in (Role.SOURCE, Role.TARGET))
    pairs = {str(t): dict.fromkeys(map(str, sources), Identifier(di)) for t in targets} if aligns(config) else {}
    return State(start=start, di=pairs, models={}, begun=(), behind=(), guide="", errors={}, late=(), w={}, gradients={})


# All begin alike


def common(state: State, readers: Iterable[ClientId] = ()) -> Common:
    """The start, what sources made of it, and who may read what they make now."""
    return Common(state.start, dict(state.models), tuple(map(str, readers)))


def to_present(message: Callable[[], G], *roles: Role) -> Callable[[State, Turn[Either]], dict[ClientId, G]]:
    """An `ask` that sends the same message to all clients of these roles, or to all, that take part."""
    return lambda state, turn: dict.fromkeys(present(state, turn, *roles), message())


def present(state: State, turn: Turn[Either], *roles: Role) -> list[ClientId]:
    """The clients of these roles, or all, that take part."""
    return [c for c in turn.members(*roles) if not state.begun or c in state.begun]


def gathered(state: State, replies: Replies[Improved], turn: Turn[Either]) -> State | Folded[State]:
    """Handles of what sources sent; who sent nothing is left out of this round.

    Raises StepFailed where all have answered, and none with anything: then rounds would go by and teach nothing.
    """
    answers = {client: reply.contribution for client, reply in replies.items()}
    models = {str(client): handle for client, handle in answers.items() if handle is not None}
    if not models and answers.keys() >= set(sources(state, turn)):
        what = f"No source has anything to send: numbers of {', '.join(sorted(answers))} are not finite, or there is a single row"
        raise StepFailed(what, "Lower the learning rate or the weights of the losses, or check the data")
    gone = [c for c in sources(state, turn) if c not in models]
    state = replace(state, models=models)
    return Folded(state, marked({"left out": gone})) if gone else state


def begun(state: State, replies: Replies[Nothing], turn: Turn[Either]) -> State | Folded[State]:
    """Who takes part from here on. Raises RosterRefused where no source, or no target, is left."""
    here = tuple(str(c) for c in replies)
    for role in (Role.SOURCE, Role.TARGET):
        if not set(here) & set(turn.members(role)):
            raise RosterRefused(f"No {role.value} took the common model", "Begin again when its agent is there", path="roster")
    lacking = tuple(c for c in replies if replies.metrics.get(c, EMPTY).get("missing", 0) > 0)
    marks = marked({"left out": (c for c in turn.members() if c not in replies), "lacks classes": lacking})
    return Folded(replace(state, begun=here, models={}), marks)


def sources(state: State, turn: Turn[Either]) -> list[ClientId]:
    return present(state, turn, Role.SOURCE)


def targets(state: State, turn: Turn[Either]) -> list[ClientId]:
    return present(state, turn, Role.TARGET)


# Step 2, variant A: the identifier travels


def pairs_of(state: State, turn: Turn[Either]) -> dict[ClientId, dict[str, Identifier]]:
    """Each party's identifiers, by the other party's name."""
    s, t = sources(state, turn), targets(state, turn)
    if not state.di:
        return {client: {} for client in (*s, *t)}
    of_sources = {i: {str(j): state.di[j][i] for j in t} for i in s}
    return of_sources | {j: {str(i): state.di[j][i] for i in s} for j in t}


def identifiers(state: State, turn: Turn[Either]) -> dict[ClientId, Identifiers]:
    return {client: Identifiers(di) for client, di in pairs_of(state, turn).items()}


def stepped(state: State, replies: Replies[Halves], turn: Turn[Either]) -> State | Folded[State]:
    """DI <- DI - eta (g_s + g_t) for each pair of which both halves came; others stay. So one liar spoils its own pairs alone."""
    # A number that is far beyond all others would be in DI for good.
    sent = {str(client): reply.halves for client, reply in replies.items()}
    halves = {client: {name: half for name, half in of.items() if bounded(half.g.float())} for client, of in sent.items()}
    rate = turn.config.identify_rate_of(sizes(turn.world)[1])
    di, found = {t: dict(row) for t, row in state.di.items()}, dict[tuple[str, str], float]()
    for t in targets(state, turn):
        for s in sources(state, turn):
            g_s, g_t = halves.get(s, EMPTY).get(t), halves.get(t, EMPTY).get(s)
            if g_s is None or g_t is None:
                continue
            theta = di[t][s].theta - rate * (g_s.g.float() + g_t.g.float())
            if bounded(theta):
                di[t][s] = Identifier(theta)
                found[t, s] = (min(g_s.error, 1.0) + min(g_t.error, 1.0)) / 2
    gone = [c for c in present(state, turn) if not halves.get(c)]
    return identified(replace(state, di=di), found, gone, turn)


def identified(
    state: State, found: Mapping[tuple[str, str], float], gone: list[ClientId], turn: Turn[Either]
) -> State | Folded[State]:
    """The errors of the pairs, over the exchanges of this round; after the last of them their table."""
    number = (turn.round - 1) % turn.config.identify_steps
    errors: Errors = {t: dict(row) for t, row in state.errors.items()} if number else {}
    for (t, s), error in found.items():
        errors.setdefault(t, {})[s] = (*errors.get(t, {}).get(s, ()), error)
    state = replace(state, errors=errors)
    marks = marked({"left out": sorted(gone)})
    tables = distances(errors) if number + 1 == turn.config.identify_steps else {}
    return Folded(state, marks, tables=tables) if marks or tables else state


def distances(errors: Errors) -> dict[str, Table]:
    """2 (1 - 2 err) of each pair, err the mean over the round's exchanges; of sources that every target has met."""
    rows = sorted(set.intersection(*(set(row) for row in errors.values()))) if errors else []
    columns = sorted(errors)
    if not rows:
        return {}
    values = tuple(tuple(a_distance(sum(errors[t][s]) / len(errors[t][s])) for t in columns) for s in rows)
    return {"A-distance of each source (rows) and target": Table(tuple(rows), tuple(columns), values)}


# Steps 1, 3, 4, then 5, 6


def to_improve(state: State, turn: Turn[Either]) -> dict[ClientId, Improve]:
    """The identifiers of a source's pairs; where sources meet, what all made last; and who may read what they make now."""
    c, di, to = turn.config, pairs_of(state, turn), [str(t) for t in targets(state, turn)]
    readers = (*to, *(str(s) for s in sources(state, turn))) if c.meet else to
    models, guides = dict(state.models) if c.meet else {}, guides_of(state, turn)
    return {
        s: Improve(
            di=di[s] if c.critic == GRADIENTS else {}, models=models, to=tuple(readers), guide=state.guide, show=s in guides
        )
        for s in sources(state, turn)
    }


def guides_of(state: State, turn: Turn[Either]) -> list[ClientId]:
    """Who is asked where the round begins: sources that did not miss the last one, if one did. Where all did, all."""
    if not state.behind and not state.late:
        return []
    here = sources(state, turn)
    return [s for s in here if s not in state.behind] or here


def improved(state: State, replies: Replies[Improved], turn: Turn[Either]) -> State | Folded[State]:
    """The same as `gathered`; and who needs to know where a round began, since changes are added to that.

    Models are added to nothing, and sources that do not meet add nothing.
    """
    report, c = folded(gathered(state, replies, turn)), turn.config
    after = report.state
    if c.meet and c.mode != PARAM:
        guide = next((str(s) for s in guides_of(state, turn) if s in after.models), "")
        gone = {str(s) for s in sources(state, turn) if s not in after.models}
        after = replace(after, guide=guide, behind=() if guide else tuple(sorted(gone.union(state.behind))))
    return replace(report, state=after) if report.marks else after


def to_follow(state: State, turn: Turn[Either]) -> dict[ClientId, Follow]:
    """The identifiers of a target's pairs, and handles of what sources made."""
    gradients, di = turn.config.critic == GRADIENTS, pairs_of(state, turn)
    return {
        t: Follow(di[t] if gradients else {}, dict(state.models), state.guide if t in state.late and guided(state) else "")
        for t in targets(state, turn)
        if state.models
    }


def guided(state: State) -> bool:
    """Whether a source said where this round began."""
    return state.guide in state.models


def late(state: State, answered: Container[str], turn: Turn[Either]) -> tuple[str, ...]:
    """Targets that lack what sources made in a round: who did not answer now, or did not before and was sent no start."""
    if not begins_anew(turn.config):
        return ()
    lacking = state.late if not guided(state) else ()
    return tuple(str(t) for t in targets(state, turn) if t not in answered or t in lacking)


def followed(state: State, replies: Replies[Followed], turn: Turn[Either]) -> State | Folded[State]:
    """The weights of each target; of one that did not answer the last. Sources whose numbers it could not use are named."""
    sent = {str(client): reply.w for client, reply in replies.items()}
    new = {t: {s: min(each, 1.0) for s, each in sorted(w.items()) if s in state.models} for t, w in sent.items()}
    state = replace(state, w={**state.w, **new}, late=late(state, new, turn) if state.models else state.late)
    unused = (ClientId(s) for s in sorted(state.models) if any(s not in w for w in new.values()))
    return Folded(state, marked({"left out": unused}), tables=weights(state, turn))


def weights(state: State, turn: Turn[Either]) -> dict[str, Table]:
    """w of each source in each target; 0 where it was left out."""
    rows, columns = tuple(map(str, sources(state, turn))), tuple(sorted(t for t, w in state.w.items() if w))
    values = tuple(tuple(state.w[t].get(s, 0.0) for t in columns) for s in rows)
    return {"weight of each source in each target": Table(rows, columns, values, drawn="graph")} if rows and columns else {}
