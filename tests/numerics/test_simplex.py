"""Projection on the probability simplex."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

from tests.numerics.clouds import normal
from tests.numerics.examples import for_all
from tideline.numerics.labels.softmax import project

vectors = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12)


@for_all(100, vectors)
def test_the_result_is_on_the_simplex(v: list[float]) -> None:
    p = project(torch.tensor(v, dtype=torch.float64))
    assert float(p.min()) >= 0
    assert float(p.sum()) == pytest.approx(1, abs=1e-12)


@for_all(100, vectors, st.integers(0, 1000))
def test_no_other_point_is_nearer(v: list[float], seed: int) -> None:
    """The variational inequality of a projection: (v - p) (q - p) <= 0 for every q of the simplex."""
    v_ = torch.tensor(v, dtype=torch.float64)
    p, q = project(v_), normal(8, len(v), seed=seed).softmax(-1)
    assert float(((v_ - p) * (q - p)).sum(-1).max()) <= 1e-9
    corners = torch.eye(len(v), dtype=torch.float64)
    assert float(((v_ - p) * (corners - p)).sum(-1).max()) <= 1e-9


@for_all(50, st.integers(1, 9), st.integers(0, 1000))
def test_points_of_the_simplex_stay(K: int, seed: int) -> None:
    p = normal(K, seed=seed).softmax(0)
    torch.testing.assert_close(project(p), p, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("v", "expected"),
    [
        *(([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]), ([1.0, 1.0, 1.0, 1.0], [0.25, 0.25, 0.25, 0.25])),
        *(([2.0, 0.0, 0.0], [1.0, 0.0, 0.0]), ([0.6, 0.6, -5.0], [0.5, 0.5, 0.0]), ([0.9, 0.3], [0.8, 0.2]), ([-7.0], [1.0])),
    ],
)
def test_known_projections(v: list[float], expected: list[float]) -> None:
    torch.testing.assert_close(project(torch.tensor(v, dtype=torch.float64)).tolist(), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batches_and_dtypes(dtype: torch.dtype) -> None:
    """Each vector of a batch is projected as if alone, in its dtype; the argument is left as it was."""
    v = normal(2, 3, 5, seed=0, dtype=dtype)
    before = v.clone()
    p = project(v)
    assert (p.dtype, p.shape) == (dtype, v.shape)
    assert torch.equal(v, before)
    assert torch.equal(p[1, 2], project(v[1, 2]))


def test_a_large_offset_loses_no_digits() -> None:
    """In float32, 1e6 + v is projected like v, as far as 1e6 + v still tells the entries apart."""
    v = torch.tensor([0.5, 0.25, 0.0])
    torch.testing.assert_close(project(v + 1e6), project(v), rtol=0, atol=1e-6)
