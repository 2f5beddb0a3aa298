"""Attention between models: the simplex, the known limits, and what it is not defined for."""

from __future__ import annotations

import math
from statistics import median

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.numerics.clouds import normal
from tests.numerics.examples import for_all
from tideline.numerics.clustering.mixing import attention, typical

sizes, seeds = st.integers(1, 8), st.integers(0, 10_000)


def between(N: int, seed: int, apart: float = 1.0) -> tuple[Tensor, Tensor]:
    """N models of 5 numbers, and their squared distances."""
    w = apart * normal(N, 5, seed=seed)
    return w, (w[:, None] - w[None]).square().sum(-1)


@for_all(50, sizes, seeds, st.floats(1e-6, 1e6))
def test_rows_lie_on_the_simplex(N: int, seed: int, c: float) -> None:
    _, distances = between(N, seed)
    sigma = typical(distances)
    xi = attention(distances, sigma, c * sigma)
    assert xi.dtype == torch.float64
    assert bool((xi >= 0).all())
    torch.testing.assert_close(xi.sum(1), torch.ones(N, dtype=torch.float64), atol=1e-12, rtol=0)


@for_all(50, st.integers(2, 8), seeds)
def test_unclipped_it_is_the_formula_and_symmetric(N: int, seed: int) -> None:
    """With alpha = sigma / N no row is clipped: xi_ij = exp(-x / sigma) / N, and xi_ii is 1 / N at least."""
    _, distances = between(N, seed)
    sigma = typical(distances)
    xi = attention(distances, sigma, sigma / N)
    off = ~torch.eye(N, dtype=torch.bool)
    torch.testing.assert_close(xi[off], ((-distances / sigma).exp() / N)[off], atol=1e-15, rtol=1e-12)
    torch.testing.assert_close(xi[off], xi.mT[off], atol=0, rtol=0)
    assert float(xi.diag().min()) >= 1 / N - 1e-12


def test_a_row_that_would_be_too_heavy_is_divided() -> None:
    """Its own weight is 0, and the others keep their proportions; the other rows stay as they are."""
    x = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 9.0], [1.0, 9.0, 0.0]], dtype=torch.float64)
    xi = attention(x, 1.0, 2.0)
    assert xi[0].tolist() == pytest.approx([0.0, 0.5, 0.5], abs=1e-15)  # 2 exp(-1) = 0.74 each before
    near, far = 2 * math.exp(-1), 2 * math.exp(-9)
    assert xi[1].tolist() == pytest.approx([near, 1 - near - far, far], abs=1e-15)


@for_all(50, st.integers(1, 8))
def test_equal_models_stay(N: int) -> None:
    """Of equal w_j every mixture is that model: sigma is 1, and all weights are 1 / N."""
    w = normal(1, 5, seed=3).expand(N, 5)
    distances = torch.zeros(N, N, dtype=torch.float64)
    assert typical(distances) == 1.0
    xi = attention(distances, 1.0, 1 / N)
    torch.testing.assert_close(xi, torch.full((N, N), 1 / N, dtype=torch.float64))
    torch.testing.assert_close(xi @ w, w)


@for_all(50, sizes, seeds)
def test_without_alpha_each_is_alone(N: int, seed: int) -> None:
    _, distances = between(N, seed)
    alone = torch.eye(N, dtype=torch.float64)
    assert torch.equal(attention(distances, 1.0, 0.0), alone)
    torch.testing.assert_close(attention(distances, 1.0, 1e-12), alone, atol=1e-11, rtol=0)


@for_all(50, st.integers(2, 8), seeds, st.floats(1e-3, 1e3))
def test_the_unit_of_distance_does_not_matter(N: int, seed: int, apart: float) -> None:
    """Models twice as long, or of twice as many numbers, attend to each other alike."""
    _, distances = between(N, seed)
    a, b = (attention(x, typical(x), typical(x) / N) for x in (distances, distances * apart))
    torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-9)


@for_all(50, sizes, seeds)
def test_typical_is_the_median_over_pairs(N: int, seed: int) -> None:
    _, distances = between(N, seed)
    pairs = [float(distances[i, j]) for i in range(N) for j in range(i)]
    assert typical(distances) == pytest.approx(median(pairs) if pairs else 1.0)


def test_what_it_is_not_defined_for() -> None:
    good = torch.zeros(2, 2)
    for distances, sigma, alpha in (
        *((good, 0.0, 1.0), (good, 1.0, -1.0), (good, math.nan, 1.0), (good[0], 1.0, 1.0), (torch.zeros(2, 3), 1.0, 1.0)),
        *((good - 1, 1.0, 1.0), (good + math.inf, 1.0, 1.0)),
    ):
        with pytest.raises(ValueError, match=r"sigma|Distances|distances"):
            attention(distances, sigma, alpha)
