"""Projection on the probability simplex, and logistic regression on soft labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from tests.numerics.clouds import client, normal, one_hot
from tests.numerics.examples import for_all
from tideline.numerics.labels.softmax import fit, probabilities, project

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


def scaled(z: Tensor) -> Tensor:
    z = z - z.mean(0)
    return z / z.square().mean().sqrt()


@pytest.mark.parametrize("l2", [1e-3, 1e-1])
def test_it_is_scikit_learns(l2: float) -> None:
    """The same probabilities on the same objective: C = 1 / (n l2) on features of unit scale."""
    z, y = client(90, 5, 3, 0, apart=0.5)
    theirs = LogisticRegression(C=1 / (len(z) * l2), tol=1e-10, max_iter=5000).fit(scaled(z).numpy(), y.argmax(-1).numpy())
    ours = probabilities(fit(z, y, l2=l2), z)
    np.testing.assert_allclose(ours.numpy(), theirs.predict_proba(scaled(z).numpy()), atol=1e-5)


def test_soft_labels_are_copies_with_weights() -> None:
    """Labels in quarters: the same as four hard copies of each point."""
    z = normal(12, 3, seed=1)
    quarters = torch.randint(3, (12, 4), generator=torch.Generator().manual_seed(2))
    soft = one_hot(quarters, 3).mean(1)
    hard = fit(z.repeat_interleave(4, 0), one_hot(quarters.flatten(), 3), l2=1e-2)
    torch.testing.assert_close(probabilities(fit(z, soft, l2=1e-2), z), probabilities(hard, z), rtol=0, atol=1e-6)


@for_all(10, st.sampled_from([1e-4, 1.0, 1e4]), st.floats(-100, 100), st.integers(0, 100))
def test_units_and_origin_do_not_matter(unit: float, offset: float, seed: int) -> None:
    """Features in another unit and from another origin give the same probabilities."""
    z, y = client(40, 3, 3, seed)
    here, there = fit(z, y, l2=1e-2), fit(unit * (z + offset), y, l2=1e-2)
    torch.testing.assert_close(probabilities(there, unit * (z + offset)), probabilities(here, z), rtol=0, atol=1e-4)


def test_the_gradient_vanishes() -> None:
    """At the result, the objective as documented has no slope, by autograd."""
    z, y = client(60, 4, 3, 3)
    y = 0.8 * y + 0.2 / 3
    linear = fit(z, y, l2=1e-3)
    W, b = linear.weight.clone().requires_grad_(), linear.bias.clone().requires_grad_()
    s = (z - z.mean(0)).square().mean()
    value = -(y * (z @ W.T + b).log_softmax(-1)).sum(-1).mean() + 1e-3 * s * W.square().sum() / 2
    slopes = torch.autograd.grad(value, (W, b))
    assert max(float(g.abs().max()) for g in slopes) < 1e-6


def test_probabilities_and_dtype() -> None:
    """Rows sum to one; float32 in, float32 out; the same arguments give the same bits."""
    z, y = client(30, 4, 3, 5)
    first, second = (fit(z.float(), y.float()) for _ in range(2))
    assert first.weight.dtype is torch.float32
    assert (first.weight.shape, first.bias.shape) == ((3, 4), (3,))
    assert torch.equal(first.weight, second.weight)
    torch.testing.assert_close(probabilities(first, z.float()).sum(-1), torch.ones(30))


def test_it_classifies_what_can_be_told_apart() -> None:
    """Clear classes, few points, many features: no error, finite weights."""
    z, y = client(20, 50, 3, 6, apart=5.0)
    linear = fit(z, y)
    assert bool(torch.isfinite(linear.weight).all())
    assert torch.equal(probabilities(linear, z).argmax(-1), y.argmax(-1))


def test_points_that_are_all_alike() -> None:
    y = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    linear = fit(torch.full((4, 2), 7.0), y)
    torch.testing.assert_close(probabilities(linear, torch.full((1, 2), 7.0)), torch.tensor([[0.75, 0.25]]), rtol=0, atol=1e-5)


def test_bad_features_are_refused() -> None:
    for z in (torch.zeros(0, 2), torch.full((1, 2), float("nan"))):
        with pytest.raises(ValueError, match="at least one point"):
            fit(z, torch.ones(len(z), 1))
