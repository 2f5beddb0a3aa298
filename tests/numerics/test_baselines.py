"""Other ways to choose sources and weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.numerics.devices import HARD, any_costs, drawn
from tests.numerics.examples import for_all
from tests.numerics.test_links import orderly
from tideline.numerics.links.baselines import count_weights, one_each, random_degree, random_weights, thinned, weighted
from tideline.numerics.links.bounds import Unfit
from tideline.numerics.links.link_problem import Phi, Plan, Problem, exact, power, single

seeds = st.integers(0, 10_000)
Rng = np.random.Generator
Way = Callable[[Problem, Plan, Rng], Plan]
WAYS: dict[str, Way] = {
    "random weights": random_weights,
    "counts": lambda p, plan, rng: count_weights(p, plan, rng.integers(1, 100, len(p.S))),
    "attention": lambda p, plan, rng: weighted(p, plan, rng.uniform(0.1, 1, p.T.shape)),
    "random degree": random_degree,
    "one each": one_each,
    "thinned": thinned,
    "thinned, random weights": lambda p, plan, rng: random_weights(p, thinned(p, plan, rng), rng),
    "thinned, counts": lambda p, plan, rng: count_weights(p, thinned(p, plan, rng), np.ones(len(p.S))),
}


@pytest.mark.parametrize("name", WAYS)
@for_all(25, N=st.integers(3, 9), able=st.integers(1, 5), seed=seeds, holes=st.sampled_from([0.0, 0.5]))
def test_each_gives_a_plan(name: str, N: int, able: int, seed: int, holes: float) -> None:
    """Columns of targets sum to one, rows of targets and columns of sources are zero, and equal generators give equal plans."""
    p = any_costs(N, min(able, N), seed, HARD, holes)
    first = exact(p)
    plan, again = (WAYS[name](p, first, np.random.default_rng(seed)) for _ in range(2))
    assert orderly(p, plan)
    assert (plan.alpha.tobytes(), plan.psi.tobytes()) == (again.alpha.tobytes(), again.psi.tobytes())
    assert plan.objective >= first.objective - 1e-9
    if "thinned" not in name:
        assert (plan.psi == first.psi).all()


def five() -> tuple[Problem, Plan]:
    """Ten devices of which five are sources."""
    p = drawn(10, 0, Phi(1, 1e3, 1))
    plan = exact(p)
    assert (plan.psi == 0).sum() == 5
    return p, plan


def test_counts_are_shares() -> None:
    p, plan = five()
    count = np.arange(1.0, 11)
    assert count_weights(p, plan, count).alpha[:5, 7] == pytest.approx(count[:5] / 15)


def test_random_weights_are_uniform_on_the_simplex() -> None:
    """Mean 1/5 and variance 4/150 of each, over many draws; the columns are drawn one by one."""
    p, plan = five()
    rng = np.random.default_rng(0)
    drawn_ = np.array([random_weights(p, plan, rng).alpha[:5, 5:] for _ in range(2000)])
    np.testing.assert_allclose(drawn_.mean(0), 0.2, atol=0.015)
    np.testing.assert_allclose(drawn_.var(0), 4 / 150, atol=0.004)


def test_degrees_are_the_plans_on_average() -> None:
    """Seven links of three sources are three a source; targets that none has drawn have one."""
    p = any_costs(10, 3, 1, Phi(0, 1, 1))
    plan = exact(p)
    assert ((plan.psi == 0).sum(), plan.links) == (3, 7)
    for seed in range(20):
        alpha = random_degree(p, plan, np.random.default_rng(seed)).alpha
        alone = (alpha == 1).sum()
        assert 9 <= (alpha > 0).sum() <= 9 + alone


def test_one_each_uses_all_before_any_again() -> None:
    """Links of weight one stay; without them five sources have one target each."""
    p, plan = five()
    assert (one_each(p, plan, np.random.default_rng(0)).alpha == plan.alpha).all()
    spread = power(p, plan.psi, 0)
    for seed in range(5):
        made = one_each(p, spread, np.random.default_rng(seed))
        assert made.alpha.sum(1).tolist() == [1] * 5 + [0] * 5 and made.links == 5


def test_three_sources_in_four_stay() -> None:
    """About 0.75 of them over many draws, independently; no other becomes one where all reach all."""
    p, plan = five()
    rng = np.random.default_rng(0)
    stays = np.array([thinned(p, plan, rng).psi[:5] == 0 for _ in range(1000)])
    assert stays.mean() == pytest.approx(0.75, abs=0.02) and stays.any(1).all()


def test_weights_that_do_not_fit_are_refused() -> None:
    """Negative, none for a target, of another problem's plan, or counts of nothing."""
    p, plan = five()
    for work in (
        lambda: weighted(p, plan, -np.ones((10, 10))),
        lambda: weighted(p, plan, np.zeros((10, 10))),
        lambda: weighted(p, plan, np.ones((3, 3))),
        lambda: count_weights(p, plan, np.zeros(10)),
        lambda: count_weights(drawn(4, 0), plan, np.ones(4)),
    ):
        with pytest.raises(Unfit):
            work()
    assert single(p, plan.psi).objective == pytest.approx(plan.objective)
