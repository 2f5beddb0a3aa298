"""hFedF at the coordinator: the fold of a round, algorithm 1 with algorithms 3 and 4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tideline.algorithms.hypernetworks.messages import Counted, State, Update
from tideline.algorithms.hypernetworks.server import NU, graded, gradients, moved, optimised, pulled, rows_of_nu
from tideline.core.phase import Folded, Replies, Table, Turn
from tideline.core.record import Weights
from tideline.core.run import World
from tideline.learning.evaluate import Histogram
from tideline.numerics.aggregation.hypernetwork import Pulled
from tideline.numerics.aggregation.server_step import alignment, clipping, step_

if TYPE_CHECKING:
    from tideline.algorithms.hfedf import Config


def fuse(state: State, replies: Replies[Update | Counted], turn: Turn[Config]) -> Folded[State]:
    """One step of the optimiser on sum_i w_i g_i, then the moving average; the rest is averaged. Consumes the state."""
    c = turn.config
    found = pulled(state, tuple(replies), [reply.delta for reply in replies.values()], turn)
    w = weights(found, c)
    if c.server_optimiser == "sgd":  # Adam's step has a length of its own; SGD's would be that of one site's lie
        w = w * clipping(found.gram, w, c.server_clip)
    learnt = rows_of_nu(state, tuple(replies), found, w) if c.embeddings == "learned" else ()
    after = step_(
        *(optimised(state), chain(gradients(found, w), learnt)),
        optimiser=c.server_optimiser,
        rate=c.server_rate,
        weight_decay=c.server_weight_decay,
        ema=c.ema if turn.round > c.warm_up else 1.0,
    )
    made = replace(
        *(state,),
        theta=redrawn(after.theta, turn) if c.embeddings == "random" else after.theta,
        steps=after.steps,
        rest=moved(state.rest, shares(replies, c.weighting)),
    )
    told = Table(tuple(replies), ("weight",), tuple((each,) for each in (w / w.sum()).tolist()))
    return Folded(made, tables={"weights of the clients (GradAlign)": told})


def shares(replies: Replies[Update | Counted], weighting: str) -> Iterator[tuple[float, Weights]]:
    """(p_i, Delta_i): n_i / n, or 1 / N."""
    counts = [counted(reply).samples if weighting == "samples" else 1 for reply in replies.values()]
    for count, reply in zip(counts, replies.values(), strict=True):
        yield count / sum(counts), reply.delta


def counted(reply: Update | Counted) -> Counted:
    """A reply with its number of rows, which those that are weighed by it have."""
    assert isinstance(reply, Counted), "weighting: samples asks for counts"
    return reply


def weights(found: Pulled, c: Config) -> Tensor:
    """softmax(gamma) (algorithm 3), or 1 / N."""
    if c.grad_align:
        return alignment(found.gram, c.align_sign)
    return torch.full((len(found.gram),), 1 / len(found.gram), dtype=torch.float64)


def redrawn(theta: Weights, turn: Turn[Config]) -> dict[str, Tensor]:
    """Embeddings at random, anew after every step (appendix A.1.4)."""
    return {**theta, NU: torch.randn(theta[NU].shape, generator=turn.rng, dtype=theta[NU].dtype)}


def grade(state: State, replies: Replies[Histogram], turn: Turn[Config]) -> Folded[State]:
    """The state as it is, and what a scoring tells people."""
    return graded(state, replies, turn, state)


def notes(c: Config, world: World) -> tuple[str, ...]:
    """What is done otherwise than asked, and what nobody may take for granted."""
    said = "each site's change of its model is needed apart, so secure summation cannot be used"
    idle = f"the moving average begins after round {c.warm_up}, and there are {c.rounds}"
    return (said, idle) if c.ema != 1 and 0 < c.rounds <= c.warm_up else (said,)
