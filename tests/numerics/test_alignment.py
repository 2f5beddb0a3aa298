"""GradAlign's weights against their definition."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tideline.numerics.aggregation.server_step import alignment, clipping


def gram(n: int, d: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients (n, d) and their inner products."""
    g = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return g, g @ g.T


@settings(max_examples=examples(60))
@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 2**20), st.sampled_from([1, -1]))
def test_the_gram_form_is_the_direct_one(n: int, d: int, seed: int, sign: int) -> None:
    """softmax of the cosines with the mean gradient; they sum to one; the largest is at most e^2 times the smallest."""
    g, products = gram(n, d, seed)
    direct = torch.nn.functional.cosine_similarity(g, g.mean(0, keepdim=True), dim=1, eps=1e-12)
    weights = alignment(products, sign)
    assert torch.allclose(weights, (sign * direct).softmax(0), atol=1e-6)
    assert float(weights.sum()) == pytest.approx(1)
    assert float(weights.max() / weights.min()) <= math.e**2 + 1e-9


@pytest.mark.parametrize("n", [1, 2, 5])
def test_equal_gradients_weigh_alike(n: int) -> None:
    """1 / N each."""
    g = torch.ones(n, 3, dtype=torch.float64)
    assert torch.allclose(alignment(g @ g.T), torch.full((n,), 1 / n, dtype=torch.float64))


def test_the_one_that_points_away_gets_the_least() -> None:
    """Of four of equal length; with the other sign the most."""
    g = torch.tensor([[1.0, 0.1], [1.0, -0.1], [1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    g = g / g.norm(dim=1, keepdim=True)
    assert int(alignment(g @ g.T).argmin()) == 3 and int(alignment(g @ g.T, -1).argmax()) == 3


def test_without_direction_the_cosine_is_zero() -> None:
    """A gradient of zeros, and gradients whose mean is zero."""
    g = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    assert torch.allclose(alignment(g @ g.T), torch.tensor([1.0, 0.0], dtype=torch.float64).softmax(0))
    g = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    assert torch.allclose(alignment(g @ g.T), torch.full((2,), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("products", [torch.zeros(0, 0), torch.tensor([[torch.inf]]), torch.tensor([[torch.nan]])])
def test_what_is_refused(products: torch.Tensor) -> None:
    """No gradient, or one that is not finite."""
    with pytest.raises(ValueError, match="at least one gradient"):
        alignment(products)


def test_clipping_is_to_the_norm_of_the_sum() -> None:
    """Of sum_i w_i g_i; what is short enough, or nothing, is left."""
    g, products = gram(3, 4, 1)
    w = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    norm = float((w @ g).norm())
    assert clipping(products, w, norm / 4) == pytest.approx(0.25)
    assert clipping(products, w, 2 * norm) == 1.0 == clipping(torch.zeros(2, 2), w[:2], 1.0)


def test_small_gradients_have_directions() -> None:
    """Down to 1e-12."""
    _, products = gram(3, 4, 2)
    assert torch.allclose(alignment(1e-16 * products), alignment(products))
