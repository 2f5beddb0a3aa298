"""Cosine similarity of rows, and points in a plane."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from sklearn.metrics.pairwise import cosine_similarity

from tests.numerics.clouds import normal
from tests.numerics.examples import for_all
from tideline.numerics.clustering import cosine
from tideline.numerics.clustering.cosine import cosines, plane, unit


@for_all(30, st.integers(1, 6), st.integers(1, 6), st.integers(1, 9), st.integers(0, 1000))
def test_it_is_scikit_learns(n: int, m: int, d: int, seed: int) -> None:
    a, b = normal(n, d, seed=seed), normal(m, d, seed=seed + 1)
    a[0] = 0
    np.testing.assert_allclose(cosines(a, b).numpy(), cosine_similarity(a.numpy(), b.numpy()), atol=1e-14)
    assert cosines(a, b)[0].eq(0).all()


def test_slices_of_columns_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = normal(3, 7, seed=0), normal(4, 7, seed=1)
    whole = cosines(a, b)
    monkeypatch.setattr(cosine, "NUMBERS", 14)
    torch.testing.assert_close(cosines(a, b), whole, rtol=0, atol=1e-14)


def test_unit_rows() -> None:
    """Length one, float64; zeros stay zeros; the argument is left as it was."""
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert unit(x).dtype is torch.float64
    torch.testing.assert_close(unit(x), torch.tensor([[0.6, 0.8], [0.0, 0.0]], dtype=torch.float64))
    assert x.tolist() == [[3.0, 4.0], [0.0, 0.0]]


def test_rows_of_float32_are_compared_in_float64() -> None:
    """The same as for their numbers in float64, and an angle of 1e-4 is not lost."""
    a, b = normal(4, 9, seed=0).float(), normal(5, 9, seed=1).float()
    torch.testing.assert_close(cosines(a, b), cosines(a.double(), b.double()), rtol=0, atol=1e-15)
    assert 1 - float(cosines(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1e-4]]))) == pytest.approx(5e-9, rel=1e-3)


def test_bad_rows_are_refused() -> None:
    """Numbers that are not finite, columns that do not fit, a vector."""
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not finite"):
            cosines(torch.ones(1, 2), torch.tensor([[1.0, bad]]))
    for shape in ((1, 3), (2,)):
        with pytest.raises(ValueError, match="equally many columns"):
            cosines(torch.ones(1, 2), torch.ones(shape))


@pytest.mark.parametrize(("n", "d"), [(40, 5), (6, 30), (3, 2)])
def test_the_plane_is_that_of_most_variance(n: int, d: int) -> None:
    """By covariance or by Gram matrix: the singular values of what is left are those of the rows, the larger first."""
    z = torch.randn(n, d, generator=torch.Generator().manual_seed(n)) * torch.linspace(3, 0.1, d)
    flat = plane(z)
    assert flat.shape == (n, 2) and flat.dtype == torch.float32
    found = torch.linalg.svdvals(z - z.mean(0))[:2]
    torch.testing.assert_close(flat.norm(dim=0), found, rtol=1e-4, atol=1e-4)


def test_equal_points_lie_on_one_another() -> None:
    assert torch.equal(plane(torch.ones(4, 3)), torch.zeros(4, 2))
