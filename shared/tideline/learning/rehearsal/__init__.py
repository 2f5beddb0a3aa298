"""The run that compares what candidates of adaptation predicted: where each was rehearsed, and at the targets.

At a labelled site each candidate has predicted rows whose labels it did not see; the site counts, with its labels, how often each
was right. What is chosen for the targets, and what is expected there, follows from these counts alone: no label of a target is
used for it.

client  what sites count
choosing    what follows from the counts
state   what the coordinator knows between exchanges
report  the tables of its rounds, which results read
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator

from tideline.core.algorithm import REHEARSAL, Algorithm, NoModel
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.phase import Phase, Plan
from tideline.core.run import Role, Roster
from tideline.core.step import View
from tideline.learning.rehearsal import choosing, client
from tideline.learning.rehearsal.messages import Compared, Weights, no_moments
from tideline.learning.rehearsal.settings import Rehearsing
from tideline.learning.rehearsal.state import State, members_of, width
from tideline.learning.scoring.judging import judged


def begin(config: Rehearsing, world: World, roster: Roster, rng: Generator) -> State:
    s, m = len(config.sites), len(config.candidates)
    zeros = torch.zeros(s, m, dtype=torch.float64)
    return State(
        labelled=no_moments(width(world)),
        shifts=torch.full((len(members_of(roster)), 2), -1.0, dtype=torch.float64),
        rows=zeros,
        right=zeros,
        gained=zeros,
        lost=zeros,
        changed=zeros,
        confidence=zeros,
        voted=torch.zeros(s, 5, dtype=torch.float64),
        agreed=torch.zeros(m, dtype=torch.float64),
    )


def plan(c: Rehearsing) -> Plan[Rehearsing, State]:
    """Shifts of all; counts at the sites that rehearsed, and of the vote there; then what is expected and found at the targets.

    Each asks for training rows and for held-out ones: no step has seen the labels of either.
    """
    views = (View.TRAIN, View.HELD_OUT)
    shifts: Plan[Rehearsing, State] = (Phase("shifts", client.shifts, ask=choosing.of_all, fold=choosing.shifted),)
    counts: Plan[Rehearsing, State] = tuple(
        Phase(f"rehearsed_{view.value}", client.counting(view), ask=choosing.of_players, fold=choosing.counted) for view in views
    )
    votes: Plan[Rehearsing, State] = tuple(
        Phase(f"voted_{view.value}", client.voting(view), ask=choosing.votes, fold=choosing.voted) for view in views
    )
    there: Plan[Rehearsing, State] = (
        Phase("agreed", client.agreeing, ask=choosing.of_targets_alone, fold=choosing.agreed),
        Phase("expected", client.foretelling, ask=choosing.known, fold=choosing.foretold),
        judged(client.judge, choosing.weighed, takes=Weights, keeps=Compared, others=("source_only",)),
    )
    return (*shifts, *counts, *votes, *(there if c.at_targets else ()))


def fits(config: Rehearsing, world: World, roster: Roster) -> None:
    """Raises ConfigRefused for what is started as if it were a method."""
    if not config.candidates:
        todo = "Write rehearse: {candidates: [...]} beside a method, or use: tideline adapt"
        raise ConfigRefused(f"{REHEARSAL} is no method: it compares runs", todo, path="method")
    if world.tokens:
        what = "A rehearsal compares sites by means and variances of their rows, and rows are token ids"
        raise ConfigRefused(what, "Freeze the encoder (trains: head, with weights), or run a method alone", path="rehearse")


def sizes(config: Rehearsing, world: World) -> Mapping[str, int]:
    return {"m": len(config.candidates), "d": width(world)}


rehearsal: Algorithm[Rehearsing, State, Compared] = Algorithm(
    name=REHEARSAL,
    paper="",
    summary="Compares what candidates of adaptation predicted where they were rehearsed",
    config=Rehearsing,
    state=State,
    memory=Compared,
    prepare=client.prepare,
    begin=begin,
    plan=plan,
    fits=fits,
    sizes=sizes,
    cast=(Role.SOURCE, Role.TARGET),
    claims=(
        "What leaves a site are counts of rows by candidate, sums of confidences, and means and variances of its features.",
        "A site's labels are counted with, never sent. Those of a target score the result alone.",
    ),
    result=(NoModel("A rehearsal compares models; those of the candidate that it chose are in that candidate's run"),),
)
