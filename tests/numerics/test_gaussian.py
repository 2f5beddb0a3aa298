"""What noise is worth."""

from __future__ import annotations

import math

import pytest

from tideline.numerics.gaussian import epsilon


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
