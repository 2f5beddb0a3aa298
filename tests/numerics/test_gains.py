"""Weights by gains."""

from __future__ import annotations

import pytest
import torch

from tideline.numerics.alignment.adversarial import flattened, raw, uniform


@pytest.mark.parametrize("gains", [[0.0, 0.0], [1e3, -1e3, 5.0], [-0.3, 0.2, 0.1, 0.0]])
def test_weights_are_on_the_simplex(gains: list[float]) -> None:
    """And the flattened ones within their bounds."""
    g = torch.tensor(gains)
    for rule in (raw, flattened, uniform):
        w = rule(g)
        assert bool((w >= 0).all()) and float(w.sum()) == pytest.approx(1.0)
    N = len(gains)
    assert bool((flattened(g) >= 1 / (N + 1)).all()) and bool((flattened(g) <= 2 / (N + 1)).all())


def test_of_four_sources_it_is_the_codes_rule() -> None:
    """0.2 + 0.2 softmax."""
    g = torch.tensor([0.1, 0.5, -0.2, 0.0], dtype=torch.float64)
    torch.testing.assert_close(flattened(g), 0.2 + 0.2 * g.softmax(0))


def test_equal_gains_are_equal_weights() -> None:
    """By every rule."""
    for rule in (raw, flattened, uniform):
        torch.testing.assert_close(rule(torch.full((3,), 0.7)), torch.full((3,), 1 / 3, dtype=torch.float64))
