"""What follows from the counts of a rehearsal: whom to ask what, which candidates count, and what to expect at each target.

Shapes: s sites that played the target, m candidates; the first candidate is no adaptation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import torch
from torch import Tensor

from tideline.core.phase import Folded, Replies, Turn
from tideline.core.record import Nothing
from tideline.core.run import ClientId, Role
from tideline.learning.rehearsal import report
from tideline.learning.rehearsal.messages import Agreed, Counts, Foretold, Known, Moments, Voted, Weights, as_record, moments_in
from tideline.learning.rehearsal.settings import Rehearsing
from tideline.learning.rehearsal.state import State, members_of
from tideline.numerics.rehearsal import choice, expectation
from tideline.numerics.rehearsal.expectation import Expectation
from tideline.numerics.rehearsal.shifts import Shift, distance, likeness, shift, unlike

ANY_TARGET = ClientId("a target")  # where the roster has none
NO_GAIN = Expectation(0.0, 0.0, 0.0)
LEAST_WEIGHT = 0.05  # of a vote: who has less does not change what is predicted
COUNTED = ("rows", "right", "gained", "lost", "changed", "confidence")


@dataclass(frozen=True)
class Rehearsed:
    """What counts: sites that rehearsed no adaptation, and candidates that were rehearsed at all of them, by place.

    gains, changed (s, m): of accuracy, and the share of rows predicted otherwise.
    """

    sites: tuple[int, ...]
    candidates: tuple[int, ...]
    gains: Tensor
    changed: Tensor

    def weights(self, rule: str, alike: Tensor, m: int, without: int | None = None) -> Tensor:
        """Each candidate's weight (m,), by the rehearsals at all sites but one."""
        rest = [i for i in range(len(self.sites)) if i != without]
        near = alike[rest] if len(rest) else alike
        chosen = choice.weights(rule, self.gains[rest], near / near.sum().clamp_min(1e-12))
        least = min(LEAST_WEIGHT, float(chosen.max()))  # of many alike each weighs less
        chosen = torch.where(chosen >= least, chosen, torch.zeros_like(chosen))
        made = torch.zeros(m, dtype=torch.float64)
        made[list(self.candidates)] = chosen / chosen.sum()
        return made


def rehearsed_in(state: State) -> Rehearsed:
    sites, candidates = whole(state.rows > 0)
    rows, gained, lost, changed = (getattr(state, name)[sites][:, candidates] for name in ("rows", "gained", "lost", "changed"))
    gains = (gained - lost) / rows.clamp_min(1)
    return Rehearsed(tuple(sites), tuple(candidates), gains, changed / rows.clamp_min(1))


def whole(there: Tensor) -> tuple[list[int], list[int]]:
    """Sites and candidates, by place, of which each was rehearsed at each. there (s, m): whether it was.

    A candidate that most sites have stays, and those without it go, where at least half of the sites, and two, are left. So no
    site that fails, or says so, decides which candidates there are.
    """
    m = there.shape[1]
    sites = [i for i in range(len(there)) if bool(there[i, 0])]
    usual = [c for c in range(m) if not sites or 2 * int(there[sites][:, c].sum()) > len(sites)]
    have = [i for i in sites if bool(there[i][usual].all())]
    if len(have) >= 2 and 2 * len(have) >= len(sites):
        return have, usual
    return sites, [c for c in range(m) if all(bool(there[i, c]) for i in sites)]


# Whom to ask


def of_all(state: State, turn: Turn[Rehearsing]) -> dict[ClientId, Nothing]:
    return dict.fromkeys(turn.members(), Nothing())


def of_players(state: State, turn: Turn[Rehearsing]) -> dict[ClientId, Nothing]:
    return dict.fromkeys(players(turn), Nothing())


def players(turn: Turn[Rehearsing]) -> tuple[ClientId, ...]:
    return tuple(name for name in turn.labelled() if name in turn.config.rehearsals)


def of_targets_alone(state: State, turn: Turn[Rehearsing]) -> dict[ClientId, Nothing]:
    """The targets, where nothing was rehearsed."""
    return {} if rehearsed_in(state).sites else dict.fromkeys(turn.members(Role.TARGET), Nothing())


def votes(state: State, turn: Turn[Rehearsing]) -> dict[ClientId, Weights]:
    """At each site that rehearsed, the weights that follow from all others: those of the site itself would flatter."""
    of, sites = rehearsed_in(state), turn.config.sites
    asked = {name: i for i, at in enumerate(of.sites) if (name := ClientId(sites[at])) in players(turn)}
    m = len(turn.config.candidates)
    uniform = len(of.sites) == 1
    shifts = [shift_of(state, turn, name) for name in asked]
    return {
        name: Weights(of.weights(turn.config.rule, alike_to(shifts[i], shifts), m, None if uniform else at))
        for i, (name, at) in enumerate(asked.items())
    }


def weighed(state: State, turn: Turn[Rehearsing]) -> dict[ClientId, Weights]:
    """At each target, the weights that all rehearsals lead to; without any, those of who agrees most with all."""
    return {name: Weights(weights_for(state, turn, name)) for name in turn.members(Role.TARGET)}


def known(state: State, turn: Turn[Rehearsing]) -> dict[ClientId, Known]:
    """The same, with what a target remembers to compare later rows by."""
    there = [each for each in player_shifts(state, turn, rehearsed_in(state)) if each is not None]
    shifts = torch.tensor([[each.of_means, each.of_spreads] for each in there], dtype=torch.float64).reshape(-1, 2)
    return {name: Known(each.w, state.labelled, shifts) for name, each in weighed(state, turn).items()}


def weights_for(state: State, turn: Turn[Rehearsing], target: ClientId) -> Tensor:
    of, m = rehearsed_in(state), len(turn.config.candidates)
    if not of.sites:
        return choice.one_hot(int(state.agreed.argmax()) if float(state.agreed.sum()) else 0, m)
    return of.weights(turn.config.rule, alike_to(shift_of(state, turn, target), player_shifts(state, turn, of)), m)


def player_shifts(state: State, turn: Turn[Rehearsing], of: Rehearsed) -> list[Shift | None]:
    return [shift_of(state, turn, ClientId(turn.config.sites[at])) for at in of.sites]


def shift_of(state: State, turn: Turn[Rehearsing], name: ClientId) -> Shift | None:
    """A member's shift; None where it told none."""
    members = members_of(turn.roster)
    means, spreads = state.shifts[members.index(name)].tolist() if name in members else (-1.0, -1.0)
    return Shift(means, spreads) if means >= 0 else None


def alike_to(here: Shift | None, there: Sequence[Shift | None]) -> Tensor:
    """How alike each shift is to this one, summing to one; all the same where one is unknown."""
    known = [each for each in there if each is not None]
    if here is None or len(known) < len(there) or not known:
        return torch.full((len(there),), 1 / max(len(there), 1), dtype=torch.float64)
    return likeness(here, known)


# What came


def shifted(state: State, replies: Replies[Moments], turn: Turn[Rehearsing]) -> State:
    """Each member against the labelled sites but itself."""
    known = {name: moments_in(reply) for name, reply in replies.items() if reply.count}
    labelled = set(turn.labelled())
    shifts = state.shifts.clone()
    for at, name in enumerate(members_of(turn.roster)):
        others = [each for who, each in known.items() if who in labelled and who != name]
        if name in known and others:
            found = shift(known[name], reduce(add, others))
            shifts[at] = torch.tensor([found.of_means, found.of_spreads], dtype=torch.float64)
    pooled = [each for name, each in known.items() if name in labelled]
    # Targets are sent these; those of a single site are its own.
    return replace(state, shifts=shifts, labelled=as_record(reduce(add, pooled)) if len(pooled) > 1 else state.labelled)


def counted(state: State, replies: Replies[Counts], turn: Turn[Rehearsing]) -> Folded[State]:
    """Counts of training rows and of held-out ones add up."""
    made = {name: getattr(state, name).clone() for name in COUNTED}
    for site, reply in replies.items():
        at = turn.config.sites.index(site)
        for name in COUNTED:
            made[name][at] += bounded(getattr(reply, name), reply.rows)
    new = replace(state, **made)
    return Folded(new, tables=report.rehearsals(rehearsed_in(new), new, turn))


def bounded(counts: Tensor, rows: Tensor) -> Tensor:
    """Counts of rows are no more than the rows, which are whole: one site's false ones weigh as true ones could."""
    return torch.minimum(counts.double(), rows.double().round())


def voted(state: State, replies: Replies[Voted], turn: Turn[Rehearsing]) -> Folded[State]:
    """The votes' counts add up; what they lead to at the targets, as far as rehearsals tell."""
    made = state.voted.clone()
    for site, reply in replies.items():
        made[turn.config.sites.index(site)] += bounded(torch.cat([reply.counts, reply.confidence.view(1)]), reply.counts[0])
    new = replace(state, voted=made)
    return Folded(new, tables=report.expectations({name: at_target(new, turn, name) for name in targets(turn)}, turn))


def targets(turn: Turn[Rehearsing]) -> tuple[ClientId, ...]:
    return turn.members(Role.TARGET) or (ANY_TARGET,)


def agreed(state: State, replies: Replies[Agreed], turn: Turn[Rehearsing]) -> State:
    return replace(state, agreed=sum((reply.agreed.double() for _, reply in replies.items()), state.agreed))


def foretold(state: State, replies: Replies[Foretold], turn: Turn[Rehearsing]) -> Folded[State]:
    """What to expect at each target that told of its rows."""
    likely = {name: within_rows(reply) for name, reply in replies.items() if reply.rows}
    found = {name: at_target(state, turn, name, reply) for name, reply in likely.items()}
    return Folded(state, tables=report.expectations(found, turn))


def within_rows(reply: Foretold) -> Foretold:
    """The same, as far as so many rows allow."""
    return replace(reply, changed=min(reply.changed, reply.rows), confidence=min(reply.confidence, float(reply.rows)))


def at_target(state: State, turn: Turn[Rehearsing], name: ClientId, reply: Foretold | None = None) -> report.AtTarget:
    """reply: what the target said of its rows; None before, when as many predictions as at the sites are expected to change."""
    of, here, w = rehearsed_in(state), shift_of(state, turn, name), weights_for(state, turn, name)
    there = [each for each in player_shifts(state, turn, of) if each is not None]
    far = min((distance(here, each) for each in there), default=0.0) if here is not None else 0.0
    odd = here is not None and bool(there) and unlike(here, there)
    votes, before = of_votes(state, of)
    if not len(votes):
        return report.AtTarget(gain=None, accuracy=None, weights=w, distance=far, unlike=odd)
    sure = None if reply is None else accuracy(votes, before, reply)
    changed, n = changed_here(votes, reply) if float(w[0]) < 1 else (0.0, 0)
    gain = gain_of(votes, changed, n) if float(w[0]) < 1 else NO_GAIN
    return report.AtTarget(gain=gain, accuracy=sure, weights=w, distance=far, unlike=odd, changed=changed)


def of_votes(state: State, of: Rehearsed) -> tuple[Tensor, Tensor]:
    """Counts (s, 5) of the sites whose rows the votes were tried on, and which share was right there without adaptation (s,)."""
    there = [at for at in of.sites if float(state.voted[at, 0]) > 0]
    return state.voted[there], (state.right / state.rows.clamp_min(1))[there][:, 0]


def changed_here(votes: Tensor, reply: Foretold | None) -> tuple[float, int]:
    """The share of a target's rows that is predicted otherwise than without adaptation, and of how many."""
    rows, _, _, changed, _ = votes.unbind(1)
    return (float((changed / rows).mean()), int(rows.mean())) if reply is None else (reply.changed / reply.rows, reply.rows)


def gain_of(votes: Tensor, here: float, n: int) -> Expectation:
    rows, gained, lost, changed, _ = votes.unbind(1)
    alike = torch.full((len(votes),), 1 / len(votes), dtype=torch.float64)
    return expectation.expected((gained - lost) / rows, changed / rows, alike, here, n)


def accuracy(votes: Tensor, before: Tensor, reply: Foretold) -> Expectation:
    """The accuracy to expect of a vote. votes (s, 5); before (s,): accuracies without adaptation."""
    rows, gained, lost, _, confidence = votes.unbind(1)
    right = before + (gained - lost) / rows
    return expectation.accuracy(confidence / rows, right, reply.confidence / reply.rows, reply.rows)
