"""Central training at the coordinator: rows are gathered once, and then it trains as a site would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Generator

from tideline import nets
from tideline.algorithms.averaging import learners
from tideline.algorithms.averaging.messages import Model
from tideline.algorithms.central.messages import Held, Rows, State
from tideline.core.errors import StepFailed
from tideline.core.phase import Folded, Replies, Table, Turn, folded
from tideline.core.record import Nothing, Weights
from tideline.core.run import ClientId, Roster, World
from tideline.core.step import Data
from tideline.learning.evaluate import Histogram
from tideline.learning.fit import cross_entropy, fit
from tideline.learning.optimisers import optimiser

if TYPE_CHECKING:
    from tideline.algorithms.central import Central

Scored: TypeAlias = "Callable[[State, Replies[Histogram], Turn[Central]], State | Folded[State]]"
LEAST = 2  # rows in all, so that a batch has a variance, which batch norm needs
LOST = "rounds of training that were not taken"


def begin(config: Central, world: World, roster: Roster, rng: Generator) -> State:
    """A network at random; no rows yet."""
    return State(nets.weights_of(nets.build(world)), {}, 0)


def begin_from(config: Central, world: World, roster: Roster, rng: Generator, weights: Weights) -> State:
    """The network as it was brought."""
    return State(weights, {}, 0)


def to_learners(state: State, turn: Turn[Central]) -> dict[ClientId, Nothing]:
    """Nobody needs to know anything to send rows."""
    return dict.fromkeys(learners(turn), Nothing())


def gather(state: State, replies: Replies[Rows], turn: Turn[Central]) -> Folded[State]:
    """The rows of those that can be learnt from. Raises StepFailed where too few are left to learn anything."""
    rows: dict[str, Held] = {k: Held(given.x, given.y) for k, given in replies.items() if usable(given, turn)}
    n = sum(len(given.y) for given in rows.values())
    if n < LEAST:
        raise StepFailed(
            f"{n} labelled rows were gathered that can be learnt from; training needs {LEAST}",
            "Look at what the sites' data folders hold: tideline data check",
        )
    left_out = tuple(k for k in replies if k not in rows)
    return Folded(replace(state, rows=rows), {"left out": left_out} if left_out else {})


def usable(given: Rows, turn: Turn[Central]) -> bool:
    """Whether there are rows, no more than were asked for, whose labels are classes of the world: they may be any numbers."""
    y, most = given.y.double(), turn.config.most_rows
    classes = bool(((y == y.floor()) & (y < turn.world.classes)).all())
    return 0 < len(y) <= most and classes


def learn(state: State, replies: Replies[Nothing], turn: Turn[Central]) -> State:
    """E epochs on all rows. Weights that are no longer finite are not taken; after the last round the rows are let go."""
    c: Central = turn.config
    net = nets.loaded(turn.world, state.model)
    by = optimiser(c, net.parameters())
    fit(net, pooled(state, turn.world), cross_entropy, by, epochs=c.epochs, batch=c.batch, rng=turn.rng)
    made = nets.weights_of(net)
    finite = all(bool(torch.isfinite(w).all()) for w in made.values())
    rows = state.rows if turn.round < c.rounds else {}
    return State(made, rows, state.lost) if finite else State(state.model, rows, state.lost + 1)


def pooled(state: State, world: World) -> Data:
    """The rows of all sites, in the order of their names; the domains are the sites."""
    names = tuple(sorted(state.rows))
    x = torch.cat([state.rows[k].x.float() for k in names]).view(-1, *world.inputs)
    y = torch.cat([state.rows[k].y.long() for k in names])
    domain = torch.cat([torch.full((len(state.rows[k].y),), i) for i, k in enumerate(names)])
    return Data(x, y, domain, names)


def telling(fold: Scored) -> Scored:
    """What a scoring tells people, and whether rounds of training before it were not taken: those have no tables of their own."""

    def both(state: State, replies: Replies[Histogram], turn: Turn[Central]) -> State | Folded[State]:
        given = fold(state, replies, turn)
        if not state.lost:
            return given
        count = Table(("rounds so far",), ("not finite",), ((float(state.lost),),))
        return replace(folded(given), tables={**folded(given).tables, LOST: count})

    return both


def model_to_all(state: State, turn: Turn[Central]) -> dict[ClientId, Model]:
    """The model to everybody."""
    return dict.fromkeys(turn.members(), Model(state.model))
