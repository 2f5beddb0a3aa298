"""Facility location, against everything tried and a general solver."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import block_array, eye_array, kron

from tests.numerics.examples import for_all
from tideline.numerics.links.facility_location import SHUT, bounded, cheapest, cost_of, first_prices

seeds = st.integers(0, 10_000)


def costs(n: int, N: int, seed: int, whole: bool = False, holes: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """f (n,) and c (n, N); whole numbers make ties; a share of services does not exist, but for those of the first."""
    rng = np.random.default_rng(seed)
    f, c = rng.uniform(0, 6, n), rng.uniform(0, 5, (n, N))
    c[1:][rng.random((n - 1, N)) < holes] = math.inf
    return (f.round(), c.round()) if whole else (f, c)


def tried(f: np.ndarray, c: np.ndarray) -> float:
    """The least cost over all sets of facilities."""
    sets = itertools.chain.from_iterable(itertools.combinations(range(len(f)), k) for k in range(1, len(f) + 1))
    return min(cost_of(f, c, np.array(each)) for each in sets)


def programmed(f: np.ndarray, c: np.ndarray) -> float:
    """The optimum of the mixed-integer program with x_ij <= y_i, by HiGHS."""
    n, N = c.shape
    served = block_array([[np.zeros((N, n)), kron(np.ones((1, n)), eye_array(N))]])
    open_ = block_array([[-kron(eye_array(n), np.ones((N, 1))), eye_array(n * N)]])
    rules = [LinearConstraint(served.tocsr(), 1, 1), LinearConstraint(open_.tocsr(), -np.inf, 0)]
    whole, costs = np.concatenate([np.ones(n), np.zeros(n * N)]), np.concatenate([f, c.ravel()])
    return float(milp(costs, constraints=rules, bounds=Bounds(0, 1), integrality=whole, options={"mip_rel_gap": 0}).fun)


@for_all(80, st.integers(1, 8), st.integers(1, 12), seeds, st.booleans(), st.sampled_from([0.0, 0.5]))
def test_nothing_is_cheaper(n: int, N: int, seed: int, whole: bool, holes: float) -> None:
    """Every set of facilities was tried; the bound is the cost, and the cost is the set's."""
    f, c = costs(n, N, seed, whole, holes)
    found = cheapest(f, c)
    assert found.cost == pytest.approx(tried(f, c), rel=1e-9)
    assert found.proven and found.bound == found.cost == cost_of(f, c, found.facilities)
    assert (np.diff(found.facilities) > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_integer_programs_optimum(seed: int) -> None:
    f, c = costs(20, 40, seed)
    assert cheapest(f, c).cost == pytest.approx(programmed(f, c), rel=1e-7)


@for_all(30, st.integers(2, 7), st.integers(1, 9), seeds, st.integers(1, 5))
def test_bounds_are_below_every_plan(n: int, N: int, seed: int, steps: int) -> None:
    """At every node, after however few steps, towards however wrong a cost."""
    f, c = costs(n, N, seed)
    rng = np.random.default_rng(seed)
    state = rng.integers(-1, 2, n).astype(np.int8)
    state[rng.integers(n)] = 1
    allowed = [np.flatnonzero(state == 1), np.flatnonzero(state != SHUT)]
    assert bounded(f, c, state, first_prices(c), 100.0, steps).value <= min(cost_of(f, c, each) for each in allowed) + 1e-9


def test_a_search_that_is_cut_short_says_what_may_be_left() -> None:
    """The same bytes each time, a bound below the optimum, a cost above it."""
    f, c = costs(40, 80, 1)
    f = f + 20
    whole, cut, again = cheapest(f, c), cheapest(f, c, node_limit=2), cheapest(f, c, node_limit=2)
    assert whole.proven and whole.nodes > 2 and not cut.proven
    assert cut.bound <= whole.cost <= cut.cost and cut.bound < cut.cost
    assert (cut.cost, cut.bound, cut.facilities.tobytes()) == (again.cost, again.bound, again.facilities.tobytes())
    assert cheapest(f, c, time_limit=0.0).bound <= whole.cost


def test_ties_go_to_the_smallest_index() -> None:
    f, c = np.full(4, 3.0), np.ones((4, 6))
    assert cheapest(f, c).facilities.tolist() == [0]
    c[:, 3:] = math.inf
    c[2:, 3:] = 1
    assert cheapest(f, c).facilities.tolist() == [2]
    assert cheapest(np.zeros(2), np.zeros((2, 2))).cost == 0


def test_a_customer_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="customer 1"):
        cheapest(np.ones(2), np.array([[1.0, math.inf], [1.0, math.inf]]))
