"""Points in a plane."""

from __future__ import annotations

import pytest
import torch

from tideline.numerics.clustering.cosine import plane


@pytest.mark.parametrize(("n", "d"), [(40, 5), (6, 30), (3, 2)])
def test_the_plane_is_that_of_most_variance(n: int, d: int) -> None:
    """By covariance or by Gram matrix: the singular values of what is left are those of the rows, the larger first."""
    z = torch.randn(n, d, generator=torch.Generator().manual_seed(n)) * torch.linspace(3, 0.1, d)
    flat = plane(z)
    assert flat.shape == (n, 2) and flat.dtype == torch.float32
    found = torch.linalg.svdvals(z - z.mean(0))[:2]
    torch.testing.assert_close(flat.norm(dim=0), found, rtol=1e-4, atol=1e-4)


def test_equal_points_lie_on_one_another() -> None:
    """Nothing varies, and nothing is undefined."""
    assert torch.equal(plane(torch.ones(4, 3)), torch.zeros(4, 2))
