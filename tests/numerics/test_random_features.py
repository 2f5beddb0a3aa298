"""Random features: equal samples, the kernels that they stand for, their rate, and what they are not defined for."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.numerics.clouds import normal
from tests.numerics.examples import for_all
from tideline.numerics.alignment.feature_maps import BANDWIDTHS, moment, psi, ramp, typical, waves

seeds = st.integers(0, 10_000)


def gaussian(a: Tensor, b: Tensor, s2: float) -> Tensor:
    """The mean over bandwidths of exp(-|x - y|^2 / (2 b s2)), (n, m)."""
    x = torch.cdist(a, b).square()
    return torch.stack([(-x / (2 * width * s2)).exp() for width in BANDWIDTHS]).mean(0)


def mmd2(a: Tensor, b: Tensor, s2: float) -> float:
    """The squared maximum mean discrepancy of two samples, by the kernel itself."""
    return float(gaussian(a, a, s2).mean() + gaussian(b, b, s2).mean() - 2 * gaussian(a, b, s2).mean())


def estimate(a: Tensor, b: Tensor, s2: float, D: int, seed: int) -> float:
    by = waves(D, a.shape[1], s2, torch.Generator().manual_seed(seed))
    return float((moment(by, a.float()) - moment(by, b.float())).double().square().sum())


@for_all(25, seeds, st.integers(1, 20))
def test_equal_samples_are_at_no_distance(seed: int, n: int) -> None:
    a = normal(n, 3, seed=seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    assert estimate(a, a, 1.0, 320, seed) == 0
    assert estimate(a, a[order], 1.0, 320, seed) == pytest.approx(0, abs=1e-10)


def test_it_converges_to_the_kernels_as_features_grow() -> None:
    """The root mean square error over draws, times sqrt(D), stays the same over a factor of 64."""
    a, b = normal(40, 3, seed=1), normal(30, 3, seed=2) + 1.0
    s2 = typical(a)
    true = mmd2(a, b, s2)
    errors = []
    for D in (80, 320, 1280, 5120):
        found = torch.tensor([estimate(a, b, s2, D, seed) for seed in range(60)], dtype=torch.float64)
        errors.append(math.sqrt(D) * float((found - true).square().mean().sqrt()))
        assert float(found.mean()) == pytest.approx(true, rel=0.1)
    assert true > 0.1
    assert max(errors) < 1.4 * min(errors)


@for_all(25, seeds)
def test_a_product_is_the_kernel(seed: int) -> None:
    """psi(f) . psi(f') is near the mean of Gaussian kernels, of any two points."""
    f = normal(6, 4, seed=seed)
    by = waves(40_000, 4, 2.0, torch.Generator().manual_seed(seed))
    found = psi(by, f.float()).double()
    torch.testing.assert_close(found @ found.mT, gaussian(f, f, 2.0), atol=0.03, rtol=0)


def test_shapes_and_seeds() -> None:
    """D frequencies of d numbers, phases in [0, 2 pi), narrow kernels first; the same for the same seed."""
    by, again = (waves(5000, 3, 4.0, torch.Generator().manual_seed(5)) for _ in range(2))
    assert by.omega.shape == (5000, 3) and by.phase.shape == (5000,)
    assert float(by.phase.min()) >= 0 and float(by.phase.max()) < 2 * math.pi
    assert torch.equal(by.omega, again.omega) and torch.equal(by.phase, again.phase)
    deviations = [float(part.std()) for part in by.omega.split(1000)]
    assert deviations == pytest.approx([1 / math.sqrt(b * 4.0) for b in BANDWIDTHS], rel=0.06)


def test_the_typical_distance_is_the_median_over_pairs() -> None:
    """Squared; 1 where there is no pair or none that differs, and never so small that kernels have no width."""
    f = torch.tensor([[0.0], [1.0], [3.0]])
    assert typical(f) == pytest.approx(4.0)
    assert typical(f[:1]) == typical(torch.zeros(5, 2)) == 1.0
    assert typical(1e-9 * f) == 1e-12


def test_the_ramp() -> None:
    found = [ramp(p / 10) for p in range(11)]
    assert found[0] == 0 and found[-1] == pytest.approx(0.99991, abs=1e-5)
    assert found == sorted(found)


@pytest.mark.parametrize(("D", "s2"), [(7, 1.0), (0, 1.0), (10, 0.0), (10, math.nan)])
def test_what_it_is_not_defined_for(D: int, s2: float) -> None:
    """A number of features that bandwidths cannot share, a width of nothing."""
    with pytest.raises(ValueError, match="random features"):
        waves(D, 3, s2, torch.Generator())
