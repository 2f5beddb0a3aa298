"""Barycenters of labelled point clouds."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.numerics.clouds import atoms, labels, normal, seeded, simplex_point
from tests.numerics.examples import for_all
from tideline.numerics.transport import optimal_transport

seeds = st.integers(0, 10_000)
starts = st.sampled_from(["atom", "normal"])


def in_order(z: Tensor, y: Tensor) -> Tensor:
    """Points with their labels, in lexical order: two clouds are the same measure if these are equal."""
    both = torch.cat([z, y], dim=-1)
    return torch.tensor(sorted(both.tolist()), dtype=both.dtype)


@for_all(25, st.integers(1, 4), seeds, starts, st.integers(0, 3))
def test_all_weight_on_one_atom_reproduces_it(K: int, seed: int, start: str, k: int) -> None:
    p, k = atoms(K, 6, 3, 3, seed), k % K
    alpha = torch.eye(K, dtype=torch.float64)[k]
    b = optimal_transport.barycenter(p.z, p.y, alpha, 6, seeded(seed), start=start)
    torch.testing.assert_close(in_order(b.z, b.y), in_order(p.z[k], p.y[k]), rtol=0, atol=1e-12)
    assert len(b.objective) <= 2


@for_all(25, st.integers(1, 4), seeds, starts)
def test_equal_atoms_are_their_barycenter(K: int, seed: int, start: str) -> None:
    p = atoms(1, 6, 3, 3, seed)
    z, y = p.z.expand(K, -1, -1), p.y.expand(K, -1, -1)
    b = optimal_transport.barycenter(z, y, simplex_point(K, seed), 6, seeded(seed), start=start)
    torch.testing.assert_close(in_order(b.z, b.y), in_order(p.z[0], p.y[0]), rtol=0, atol=1e-12)
    assert len(b.objective) <= 2


@for_all(40, st.integers(1, 4), st.integers(1, 12), seeds, starts, st.sampled_from([0.0, 0.5]))
def test_the_mean_is_the_mean_of_the_means(K: int, n_b: int, seed: int, start: str, entropy: float) -> None:
    """For any number of points: mean z_B = sum_k alpha_k mean z_k, the same for y; labels stay on the simplex."""
    p, alpha = atoms(K, 6, 3, 3, seed), simplex_point(K, seed + 1)
    b = optimal_transport.barycenter(p.z, p.y, alpha, n_b, seeded(seed), start=start, entropy=entropy)
    tolerance = 1e-4 if entropy else 1e-12
    torch.testing.assert_close(b.z.mean(0), alpha @ p.z.mean(1), rtol=0, atol=tolerance)
    torch.testing.assert_close(b.y.mean(0), alpha @ p.y.mean(1), rtol=0, atol=tolerance)
    assert b.z.shape == (n_b, 3)
    assert float(b.y.min()) >= 0
    torch.testing.assert_close(b.y.sum(-1), torch.ones(n_b, dtype=torch.float64), rtol=0, atol=1e-12)


@for_all(40, st.integers(1, 5), st.integers(1, 9), seeds, starts)
def test_on_a_line_quantiles_are_averaged(K: int, n: int, seed: int, start: str) -> None:
    """In one dimension, unlabelled: the support is sum_k alpha_k sort(z_k)."""
    z, alpha = normal(K, n, 1, seed=seed), simplex_point(K, seed + 1)
    b = optimal_transport.barycenter(z, torch.ones(K, n, 1, dtype=torch.float64), alpha, n, seeded(seed), start=start)
    expected = torch.einsum("k,kid->id", alpha, z.sort(1).values)
    torch.testing.assert_close(b.z.sort(0).values, expected, rtol=0, atol=1e-12)


@for_all(40, st.integers(1, 4), st.integers(2, 12), seeds, starts, st.sampled_from([None, 0.0, 1.0]))
def test_the_objective_never_rises(K: int, n_b: int, seed: int, start: str, beta: float | None) -> None:
    """Turns of plans and supports only lower sum_k alpha_k OT(P_k, B)."""
    p = atoms(K, 9, 4, 3, seed, apart=0.5)
    b = optimal_transport.barycenter(
        p.z, p.y, simplex_point(K, seed), n_b, seeded(seed), start=start, beta=beta, iterations=15, tol=0.0
    )
    assert all(after <= before + 1e-9 * abs(before) + 1e-12 for before, after in pairwise(b.objective))


def test_the_objective_is_what_it_says() -> None:
    """The first number is the weighted cost to the start, here the first atom, with the beta that is reported."""
    p, alpha = atoms(2, 6, 3, 3, 5), torch.tensor([0.6, 0.4], dtype=torch.float64)
    b = optimal_transport.barycenter(p.z, p.y, alpha, 6, seeded(0))
    cost = optimal_transport.ground_cost(p.z, p.z[0], p.y, p.y[0], b.beta)
    assert b.objective[0] == pytest.approx(
        float(alpha @ optimal_transport.transport_cost(cost, optimal_transport.plan(cost))), rel=1e-12
    )
    assert float(b.beta) == pytest.approx(float(optimal_transport.ground_cost(p.z, p.z[0]).max()), rel=1e-12)


def test_the_support_is_the_map_of_the_plans() -> None:
    """Eq. 13, written out; plans have the marginals of atoms and barycenter."""
    p, alpha = atoms(3, 6, 2, 3, 1), simplex_point(3, 2)
    b = optimal_transport.barycenter(p.z, p.y, alpha, 4, seeded(0), iterations=2)
    assert b.plans.shape == (3, 6, 4)
    torch.testing.assert_close(b.z, 4 * torch.einsum("k,kij,kid->jd", alpha, b.plans, p.z), rtol=0, atol=1e-12)
    torch.testing.assert_close(b.y, 4 * torch.einsum("k,kij,kic->jc", alpha, b.plans, p.y), rtol=0, atol=1e-12)
    torch.testing.assert_close(b.plans.sum(1), torch.full((3, 4), 0.25, dtype=torch.float64), rtol=0, atol=1e-12)


def test_known_barycenter() -> None:
    """Worked by hand: two points each, moved by (2, 0), weights 3/4 and 1/4."""
    z = torch.tensor([[[0.0, 0.0], [0.0, 4.0]], [[2.0, 4.0], [2.0, 0.0]]], dtype=torch.float64)
    y = torch.eye(2, dtype=torch.float64)[torch.tensor([[0, 1], [1, 0]])]
    b = optimal_transport.barycenter(z, y, torch.tensor([0.75, 0.25], dtype=torch.float64), 2, seeded(0))
    torch.testing.assert_close(b.z, torch.tensor([[0.5, 0.0], [0.5, 4.0]], dtype=torch.float64), rtol=0, atol=1e-15)
    torch.testing.assert_close(b.y, torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-15)
    assert b.objective == pytest.approx((1.0, 0.75), abs=1e-12)


def test_labels_keep_classes_apart() -> None:
    """Where features cross over, the labelled cost still pairs points of one class; without labels the nearer are paired."""
    z = torch.tensor([[[0.0], [1.0]], [[1.1], [0.1]]], dtype=torch.float64)
    y = torch.eye(2, dtype=torch.float64).expand(2, 2, 2)
    alpha = torch.tensor([0.5, 0.5], dtype=torch.float64)
    labelled = optimal_transport.barycenter(z, y, alpha, 2, seeded(0))
    torch.testing.assert_close(labelled.z.flatten().tolist(), [0.55, 0.55])
    unlabelled = optimal_transport.barycenter(z, y, alpha, 2, seeded(0), beta=0.0)
    torch.testing.assert_close(unlabelled.z.flatten().tolist(), [0.05, 1.05])


def test_atoms_of_weight_zero_take_no_part() -> None:
    """They change nothing, have plans of zeros, and may even hold what no cost can be made of."""
    p, alpha = atoms(3, 6, 2, 3, 1), torch.tensor([0.3, 0.0, 0.7], dtype=torch.float64)
    z = p.z.clone()
    z[1] = float("nan")
    b = optimal_transport.barycenter(z, p.y, alpha, 6, seeded(0))
    without = optimal_transport.barycenter(p.z[[0, 2]], p.y[[0, 2]], alpha[[0, 2]], 6, seeded(0))
    assert torch.equal(b.z, without.z)
    assert torch.equal(b.plans[[0, 2]], without.plans)
    assert not bool(b.plans[1].any())


@for_all(30, st.integers(1, 40), seeds)
def test_a_drawn_start_is_balanced(n_b: int, seed: int) -> None:
    """Classes differ by one point at most, and no point of an atom comes twice before all of its class have come."""
    y = torch.eye(3, dtype=torch.float64)[torch.tensor([0, 2, 2, 0, 2, 2, 2])]
    rows = optimal_transport.balanced_rows(y, n_b, seeded(seed))
    counts = torch.bincount(y[rows].argmax(-1), minlength=3)
    assert len(rows) == n_b
    assert abs(int(counts[0]) - int(counts[2])) <= 1
    times = torch.bincount(rows, minlength=7)
    for of in (0, 2):
        members = times[y.argmax(-1) == of]
        assert int(members.max() - members.min()) <= 1


def test_balanced_classes() -> None:
    assert optimal_transport.balanced_classes(6, 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert optimal_transport.balanced_classes(5, 3).tolist() == [0, 0, 1, 1, 2]
    assert labels(4, 2).tolist() == optimal_transport.balanced_classes(4, 2).tolist()


@pytest.mark.parametrize("start", ["atom", "normal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_arguments_and_seed(start: str, dtype: torch.dtype) -> None:
    """The arguments' dtype; the arguments left as they were; the same generator, the same bits."""
    p, alpha = atoms(2, 6, 3, 3, 0), torch.tensor([0.5, 0.5], dtype=dtype)
    z, y = p.z.to(dtype), p.y.to(dtype)
    before = z.clone(), y.clone(), alpha.clone()
    first, second = (optimal_transport.barycenter(z, y, alpha, 9, seeded(4), start=start) for _ in range(2))
    assert first.z.dtype is first.y.dtype is first.plans.dtype is dtype
    assert torch.equal(first.z, second.z)
    assert all(torch.equal(a, b) for a, b in zip(before, (z, y, alpha), strict=True))


def test_translation_moves_it_along() -> None:
    """Atoms moved by one vector have the barycenter moved by it, labels alike."""
    p, alpha, eps = atoms(3, 6, 4, 3, 2), simplex_point(3, 3), normal(4, seed=9)
    here, there = (optimal_transport.barycenter(z, p.y, alpha, 6, seeded(0)) for z in (p.z, p.z + eps))
    torch.testing.assert_close(there.z, here.z + eps, rtol=0, atol=1e-12)
    torch.testing.assert_close(there.y, here.y, rtol=0, atol=1e-12)


def test_bad_arguments() -> None:
    """Weights of zero, unknown starts, and features that are not finite are refused in a sentence."""
    p, half = atoms(2, 4, 2, 2, 0), torch.tensor([0.5, 0.5], dtype=torch.float64)
    with pytest.raises(ValueError, match="all zero"):
        optimal_transport.barycenter(p.z, p.y, half * 0, 4, seeded(0))
    with pytest.raises(ValueError, match="'atom' or 'normal'"):
        optimal_transport.barycenter(p.z, p.y, half, 4, seeded(0), start="moon")
    with pytest.raises(ValueError, match="not finite"):
        optimal_transport.barycenter(p.z * math.inf, p.y, half, 4, seeded(0))
