"""What noise is worth."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import kstest

from tideline.numerics.alignment.adversarial import epsilon, noise


def test_it_is_the_least_over_orders_of_the_divergence() -> None:
    """The closed form against a search over alpha."""
    T, sigma, delta = 40, 20.0, 1e-5
    orders = (1 + k / 1000 for k in range(1, 200_000))
    assert epsilon(T, sigma, delta) == pytest.approx(
        min(2 * a * T / sigma**2 + math.log(1 / delta) / (a - 1) for a in orders), rel=1e-5
    )


def test_more_noise_is_worth_more_and_more_releases_less() -> None:
    """Nothing released costs nothing; no noise is worth nothing."""
    assert epsilon(0, 1.0, 1e-5) == 0
    assert epsilon(10, 2.0, 1e-5) < epsilon(10, 1.0, 1e-5) < epsilon(20, 1.0, 1e-5)
    assert epsilon(1, 0.0, 1e-5) == math.inf


@pytest.mark.parametrize("given", [(-1, 1.0, 0.1), (1, -1.0, 0.1), (1, 1.0, 0.0), (1, 1.0, 1.0)])
def test_what_is_no_budget_is_refused(given: tuple[int, float, float]) -> None:
    """Rather than answered with a number."""
    with pytest.raises(ValueError, match="releases"):
        epsilon(*given)


def test_noise_is_normal_and_of_its_key_and_number_alone() -> None:
    """The same for the same; the streams of another number and of another key have nothing to do with it."""
    key, shape = bytes(range(32)), torch.Size((300, 100))
    first = noise(key, 1, shape)
    assert first.shape == shape and first.dtype is torch.float32
    assert kstest(first.flatten().numpy(), "norm").pvalue > 1e-3
    assert torch.equal(first, noise(key, 1, shape))
    for other in (noise(key, 2, shape), noise(bytes(32), 1, shape)):
        assert abs(float(torch.corrcoef(torch.stack([first.flatten(), other.flatten()]))[0, 1])) < 0.03
    assert noise(key, 1, torch.Size((0, 5))).shape == (0, 5)


def test_a_short_key_is_refused() -> None:
    """It could be tried through."""
    with pytest.raises(ValueError, match="has 8 bytes; 32 are needed"):
        noise(bytes(8), 1, torch.Size((2,)))
