"""Other ways to choose sources and weights, beside which a plan of links is measured.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024
(arXiv 2304.12422), section V. Each takes a plan and gives another of the same shape: columns of targets sum to one, rows of
targets and columns of sources are zero, and no weight stands where a source cannot reach. Weights keep the plan's sources;
`thinned` changes the sources, and any of the weights can follow it.

Shapes: N devices; weights (N, N), from i to j. Equal generators give equal plans.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tideline.numerics.links.bounds import Bools, array, refuse
from tideline.numerics.links.link_problem import Plan, Problem, from_sources, plan, repaired, single

STAYING = 0.75  # the chance of a source to stay one
WHOLE = 1 - 1e-9  # a weight from which on a link is the only one


def random_weights(problem: Problem, given: Plan, rng: np.random.Generator) -> Plan:
    """Each target's weights uniform on the simplex of the sources that reach it: Dirichlet(1, ..., 1)."""
    return weighted(problem, given, rng.standard_exponential(problem.T.shape))


def count_weights(problem: Problem, given: Plan, count: npt.ArrayLike) -> Plan:
    """Weights in proportion to the sources' counts (N,) of items. Raises Unfit for a count that is not positive."""
    items = array("count", count, problem.S.shape)
    refuse("count", "a device has no items", items == 0)
    return weighted(problem, given, np.broadcast_to(items[:, None], problem.T.shape))


def weighted(problem: Problem, given: Plan, weights: npt.ArrayLike) -> Plan:
    """A plan's sources and targets with weights (N, N) from outside, such as attention; those of no link are dropped, and columns
    are divided by their sums. Raises Unfit for a negative weight, and for a target that no weight is left to."""
    allowed = np.where(between(problem, given), array("weights", weights, problem.T.shape), 0)
    sums = allowed.sum(0)
    refuse("weights", "nothing for a target from a source that reaches it", (given.psi == 1) & (sums == 0))
    return plan(problem, given.psi, allowed / np.where(given.psi == 1, sums, 1))


def random_degree(problem: Problem, given: Plan, rng: np.random.Generator) -> Plan:
    """Each source sends to as many targets as in the plan on average, rounded up, drawn at random, with weights U(0, 1).

    A target that is drawn by none gets its model from one source at random. Published figures are means of three draws.
    """
    able = between(problem, given)
    most = math.ceil(given.links / max(int((given.psi == 0).sum()), 1))
    drawn = np.zeros_like(able)
    for i in np.flatnonzero(given.psi == 0):
        reached = np.flatnonzero(able[i])
        drawn[i, rng.choice(reached, min(most, len(reached)), replace=False)] = True
    for j in np.flatnonzero((given.psi == 1) & ~drawn.any(0)):
        drawn[rng.choice(np.flatnonzero(able[:, j])), j] = True
    return weighted(problem, given, np.where(drawn, 1 - rng.random(drawn.shape), 0))


def one_each(problem: Problem, given: Plan, rng: np.random.Generator) -> Plan:
    """One source a target, drawn without repetition until all were used; the plan's own where it has a link of weight 1."""
    able, alpha = between(problem, given), np.where(given.alpha >= WHOLE, 1.0, 0.0)
    deck: list[int] = []
    for j in np.flatnonzero((given.psi == 1) & (alpha.sum(0) == 0)):
        if not any(able[i, j] for i in deck):
            deck = deck + [int(i) for i in rng.permutation(np.flatnonzero(given.psi == 0))]
        i = next(i for i in deck if able[i, j])
        deck.remove(i)
        alpha[i, j] = 1
    return plan(problem, given.psi, alpha)


def thinned(problem: Problem, given: Plan, rng: np.random.Generator) -> Plan:
    """Each source stays one with probability 0.75, else is a target; sources that cost least are added as needed."""
    stays = (given.psi == 0) & (rng.random(len(given.psi)) < STAYING)
    return single(problem, repaired(problem, np.where(stays, 0, 1)))


def between(problem: Problem, given: Plan) -> Bools:
    """(N, N): from a source of the plan to a target that it reaches. Raises Unfit for a plan of another problem."""
    able: Bools = np.isfinite(from_sources(problem, given.psi)) & (given.psi == 1)
    return able
