"""Divergences from errors, and from moments."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tideline.numerics.divergence import h_divergence, separability


@given(st.floats(0, 1))
def test_from_an_error(error: float) -> None:
    """0 where a classifier guesses, 2 where it knows or is always wrong; one-sided it never gains from being wrong."""
    d, one = (float(h_divergence(torch.tensor(error, dtype=torch.float64), side)) for side in (False, True))
    assert 0 <= one <= d <= 2
    assert abs(d - 2 * abs(1 - 2 * error)) < 1e-12
    assert one == (d if error <= 0.5 else 0)


def test_known_answers() -> None:
    """Errors of 0, 1/4, 1/2 and 1."""
    errors = torch.tensor([0.0, 0.25, 0.5, 1.0])
    assert h_divergence(errors).tolist() == [2, 1, 0, 2]
    assert h_divergence(errors, one_sided=True).tolist() == [2, 1, 0, 0]


def test_moments_of_gaussians() -> None:
    """Two of unit variance a distance apart: the best line errs with probability Phi(-distance / 2). Symmetric, zero at home."""
    for distance in (0.0, 0.5, 1.0, 3.0, 30.0):
        mean = torch.tensor([[0.0, 5.0], [distance, 5.0]])
        d = separability(mean, torch.ones(2, 2))
        expected = 2 * (1 - 2 * float(torch.special.ndtr(torch.tensor(-distance / 2, dtype=torch.float64))))
        assert torch.allclose(d[0, 1], torch.tensor(expected, dtype=torch.float64), atol=1e-5)
        assert torch.equal(d, d.T)
        assert torch.equal(d.diagonal(), torch.zeros(2, dtype=torch.float64))


def test_constant_pixels_tell_little() -> None:
    """A number that never changes has no variance; it makes no divergence infinite or undefined."""
    mean = torch.zeros(3, 4)
    mean[1, 0] = 1.0
    d = separability(mean, torch.zeros(3, 4))
    assert bool(torch.isfinite(d).all())
    assert d[0, 2] == 0
    assert d[0, 1] == 2
