"""Optimal transport: costs, plans, and the laws that plans obey."""

from __future__ import annotations

import itertools
import warnings
from threading import current_thread

import numpy as np
import ot
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.numerics.clouds import normal
from tests.numerics.examples import for_all
from tideline.numerics.transport import optimal_transport
from tideline.numerics.transport.optimal_transport import carried, ground_cost, labelled, plan, squared_distances, transport_cost

sizes = st.integers(1, 8)
seeds = st.integers(0, 10_000)


def distance(cost: Tensor, entropy: float = 0.0) -> float:
    return float(transport_cost(cost, plan(cost, entropy)))


@for_all(60, sizes, sizes, st.integers(1, 5), seeds, st.floats(-1e3, 1e3))
def test_squared_distances_are_those_of_differences(n: int, m: int, d: int, seed: int, offset: float) -> None:
    """Against the formula written out; far from the origin too; never negative."""
    a, b = normal(n, d, seed=seed) + offset, normal(m, d, seed=seed + 1) + offset
    expected = (a[:, None] - b[None]).square().sum(-1)
    got = squared_distances(a, b)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    assert float(got.min()) >= 0


def test_an_offset_costs_no_digits() -> None:
    """In float32, clouds about 1000 are as far apart as the same about zero, to the digits that their points still have."""
    a, b = normal(5, 64, seed=0, dtype=torch.float32), normal(6, 64, seed=1, dtype=torch.float32)
    torch.testing.assert_close(squared_distances(a + 1000, b + 1000), squared_distances(a, b), rtol=1e-3, atol=0)


def test_distances_of_batches() -> None:
    a, b = normal(3, 4, 2, seed=0), normal(5, 2, seed=1)
    got = squared_distances(a, b)
    assert got.shape == (3, 4, 5)
    for k in range(3):
        torch.testing.assert_close(got[k], squared_distances(a[k], b), rtol=0, atol=1e-12)
        torch.testing.assert_close(squared_distances(b, a)[k], got[k].T, rtol=0, atol=1e-12)


def test_the_labelled_cost() -> None:
    """Eq. 6 with a given beta, and with the largest feature cost; without labels on one side, features alone."""
    z_p, z_q = normal(4, 3, seed=0), normal(5, 3, seed=1)
    y_p, y_q = normal(4, 2, seed=2).softmax(-1), normal(5, 2, seed=3).softmax(-1)
    features, of_labels = squared_distances(z_p, z_q), squared_distances(y_p, y_q)
    torch.testing.assert_close(ground_cost(z_p, z_q, y_p, y_q, 0.5), features + 0.5 * of_labels)
    torch.testing.assert_close(ground_cost(z_p, z_q, y_p, y_q), features + features.max() * of_labels)
    assert torch.equal(ground_cost(z_p, z_q, y_p, None), features)
    assert torch.equal(labelled(features, y_p, y_q, 0.0), features)


def test_beta_is_a_constant_for_the_gradient() -> None:
    z_p, z_q = normal(3, 2, seed=0).requires_grad_(), normal(3, 2, seed=1)
    y_p, y_q = torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64).roll(1, 0)
    (free,) = torch.autograd.grad(ground_cost(z_p, z_q, y_p, y_q).sum(), z_p)
    (plain,) = torch.autograd.grad(squared_distances(z_p, z_q).sum(), z_p)
    torch.testing.assert_close(free, plain)


@for_all(60, sizes, sizes, seeds)
def test_the_exact_cost_is_pots(n: int, m: int, seed: int) -> None:
    cost = normal(n, m, seed=seed).abs()
    gamma = plan(cost)
    uniform = np.full(n, 1 / n), np.full(m, 1 / m)
    assert float(transport_cost(cost, gamma)) == pytest.approx(ot.emd2(*uniform, cost.numpy()), abs=1e-12)
    np.testing.assert_allclose(gamma.sum(1), uniform[0], atol=1e-15)
    np.testing.assert_allclose(gamma.sum(0), uniform[1], atol=1e-15)
    assert float(gamma.min()) >= 0


@for_all(40, st.integers(1, 6), seeds)
def test_no_assignment_is_cheaper(n: int, seed: int) -> None:
    """Between as many points the cheapest plan costs what the best of all permutations costs (Birkhoff)."""
    cost = normal(n, n, seed=seed)
    best = min(sum(float(cost[i, j]) for i, j in enumerate(order)) / n for order in itertools.permutations(range(n)))
    assert distance(cost) == pytest.approx(best, abs=1e-12)


@for_all(40, sizes, sizes, st.integers(1, 4), seeds)
def test_it_is_symmetric_and_zero_on_equal_measures(n: int, m: int, d: int, seed: int) -> None:
    """Both ways the same; nothing between a cloud and the same cloud in another order, or with every point doubled."""
    a, b = normal(n, d, seed=seed), normal(m, d, seed=seed + 1)
    assert distance(squared_distances(a, b)) == pytest.approx(distance(squared_distances(b, a)), abs=1e-12)
    assert distance(squared_distances(a, a.flip(0))) <= 1e-12
    assert distance(squared_distances(a, a.repeat(2, 1))) <= 1e-12


@for_all(30, sizes, st.integers(0, 1000))
def test_on_a_line_sorted_points_meet(n: int, seed: int) -> None:
    """In one dimension the cost is the mean squared difference of the sorted points."""
    a, b = normal(n, 1, seed=seed), normal(n, 1, seed=seed + 1)
    expected = float((a.sort(0).values - b.sort(0).values).square().mean())
    assert distance(squared_distances(a, b)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("unit", [1e-30, 1e-12, 1.0, 1e30])
def test_the_unit_of_the_cost_changes_no_plan(unit: float) -> None:
    """Tiny costs are told apart like large ones; neither does a constant added to all of them matter."""
    cost = squared_distances(normal(30, 5, seed=0), normal(30, 5, seed=1))
    assert torch.equal(plan(unit * cost), plan(cost))
    assert torch.equal(plan(unit * (cost - 1000)), plan(cost))


def test_known_plans() -> None:
    cost = torch.tensor([[0.0, 1.0, 4.0], [4.0, 1.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[1 / 3, 1 / 6, 0], [0, 1 / 6, 1 / 3]], dtype=torch.float64)
    torch.testing.assert_close(plan(cost), expected, rtol=0, atol=1e-15)
    assert distance(cost) == pytest.approx(1 / 3, abs=1e-15)


@pytest.mark.parametrize("entropy", [0.0, 0.05])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batches_dtypes_and_gradients(entropy: float, dtype: torch.dtype) -> None:
    """A batch is solved as its problems are, in the cost's dtype, without a gradient, and the cost is left as it was."""
    cost = normal(2, 3, 5, 4, seed=0, dtype=dtype).abs().requires_grad_()
    before = cost.detach().clone()
    plans = plan(cost, entropy)
    assert (plans.dtype, plans.shape, plans.requires_grad) == (dtype, cost.shape, False)
    assert torch.equal(cost.detach(), before)
    torch.testing.assert_close(plans[1, 2], plan(cost[1, 2], entropy), rtol=0, atol=1e-5 if entropy else 1e-7)


def test_threads_change_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems of a batch are independent, whoever solves them; here small ones are, too, on threads."""
    cost, threads = normal(4, 9, 9, seed=0), torch.get_num_threads()
    monkeypatch.setattr(optimal_transport, "LARGE", 1)
    solvers = set[str]()
    solve = optimal_transport.network_simplex
    monkeypatch.setattr(optimal_transport, "network_simplex", lambda c: (solvers.add(current_thread().name), solve(c))[1])
    try:
        torch.set_num_threads(1)
        alone = plan(cost)
        torch.set_num_threads(2)
        assert torch.equal(plan(cost), alone)
    finally:
        torch.set_num_threads(threads)
    assert len(solvers) >= 2, "the main thread alone, then others"


def test_the_costs_gradient_is_the_plan() -> None:
    cost = normal(4, 4, seed=0).requires_grad_()
    gamma = plan(cost)
    (gradient,) = torch.autograd.grad(transport_cost(cost, gamma), cost)
    assert torch.equal(gradient, gamma)


@for_all(20, st.integers(2, 8), st.integers(2, 8), seeds)
def test_sinkhorns_plan_keeps_its_marginals_and_is_near(n: int, m: int, seed: int) -> None:
    """Marginals within 1e-6, and a cost between the exact one and that plus the entropy's share."""
    cost, entropy = squared_distances(normal(n, 3, seed=seed), normal(m, 3, seed=seed + 1)), 0.5
    gamma = plan(cost, entropy)
    assert float((gamma.sum(1) - 1 / n).abs().sum()) <= 1e-6
    assert float((gamma.sum(0) - 1 / m).abs().max()) <= 1e-13
    low = distance(cost)
    # The entropies of two plans with the same marginals differ by log(min(n, m)) at most.
    slack = entropy * float(cost.mean()) * float(np.log(min(n, m)))
    assert low - 1e-5 <= float(transport_cost(cost, gamma)) <= low + slack + 1e-5


def test_sinkhorn_is_pots() -> None:
    """The same plan as the reference implementation's, for the same regularisation."""
    cost = squared_distances(normal(6, 3, seed=0), normal(5, 3, seed=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ot.sinkhorn(np.full(6, 1 / 6), np.full(5, 1 / 5), cost.numpy(), 0.1 * float(cost.mean()), stopThr=1e-12)
    np.testing.assert_allclose(plan(cost, 0.1), theirs, rtol=0, atol=2e-6)


def test_sinkhorn_without_a_cost() -> None:
    torch.testing.assert_close(plan(torch.zeros(2, 4), 0.1), torch.full((2, 4), 1 / 8))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("entropy", [0.0, 0.1])
def test_costs_that_are_not_finite_are_refused(bad: float, entropy: float) -> None:
    cost = torch.ones(3, 3)
    cost[1, 2] = bad
    with pytest.raises(ValueError, match="not finite"):
        plan(cost, entropy)


def test_a_negative_entropy_is_refused() -> None:
    with pytest.raises(ValueError, match="entropy is -1"):
        plan(torch.ones(2, 2), -1.0)


@for_all(30, st.integers(1, 40), st.integers(1, 40), seeds, st.booleans())
def test_carrying_is_the_matrix_product(n: int, m: int, seed: int, sparse: bool) -> None:
    gamma = plan(normal(n, m, seed=seed)) if sparse else normal(n, m, seed=seed)
    x = normal(m, 3, seed=seed + 1)
    torch.testing.assert_close(carried(gamma, x), gamma @ x, rtol=0, atol=1e-12)
    torch.testing.assert_close(carried(gamma.T, carried(gamma, x)), gamma.T @ (gamma @ x), rtol=0, atol=1e-12)
