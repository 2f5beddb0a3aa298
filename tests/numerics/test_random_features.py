"""Random features against the kernels that they stand for, and features on a common scale."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.numerics.clouds import normal
from tests.numerics.examples import for_all
from tideline.numerics.alignment.feature_maps import BANDWIDTHS, moment, psi, ramp, typical, waves
from tideline.numerics.alignment.normalising import WIDEST, ledoit_wolf, moments, standardised, whitened, whitening

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


def rows(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@for_all(50, st.lists(st.integers(0, 7), min_size=1, max_size=5), st.integers(1, 4))
def test_moments_of_sites_add_up(sizes: list[int], d: int) -> None:
    parts = [rows(n, d, seed) for seed, n in enumerate(sizes)]
    together = moments([torch.cat(parts)], d)
    apart = moments(parts[:1], d)
    for part in parts[1:]:
        apart += moments([part], d)
    assert apart.count == together.count == sum(sizes)
    if apart.count:
        for one, other in ((apart.mean, torch.cat(parts).mean(0)), (apart.variance, torch.cat(parts).var(0, correction=0))):
            assert torch.allclose(one, other)
        assert torch.allclose(together.spread, apart.spread)


def test_no_digits_are_lost_far_from_zero() -> None:
    x = 1.7e9 + 3600 * rows(1000, 1)
    assert torch.allclose((moments([x[:10]], 1) + moments([x[10:]], 1)).spread, x.std(0, correction=0))


def test_columns_of_any_scale_come_out_alike() -> None:
    """From 0.01 to 4,000,000, beside one that is constant and one with a tail."""
    x = rows(400, 4) * torch.tensor([0.01, 1.0, 4e6, 0.0]) + torch.tensor([0.0, 5.0, 0.0, 3.0])
    x[0, 1] = 1e9
    z = standardised(x, moments([x], 4))
    assert torch.allclose(z[:, [0, 2]].std(0, correction=0), torch.ones(2, dtype=z.dtype), atol=1e-3)
    assert torch.equal(z[:, 3], torch.zeros(400, dtype=z.dtype))
    assert z.abs().max() < 3 * WIDEST and bool(torch.isfinite(z).all())


def test_order_is_kept_beyond_the_widest() -> None:
    x = torch.linspace(-1000, 1000, 2001, dtype=torch.float64)[:, None]
    z = standardised(x, moments([x[990:1011]], 1))
    assert bool((z.diff(dim=0) > 0).all()) and torch.allclose(z, -z.flip(0))


def test_whitened_rows_have_unit_covariance() -> None:
    x = rows(4000, 3) @ torch.tensor([[2.0, 0.3, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 0.7]], dtype=torch.float64) + 7
    by = whitening(x, least=0.0)
    z = whitened(x, by)
    assert torch.allclose(z.mean(0), torch.zeros(3, dtype=z.dtype), atol=1e-9)
    assert torch.allclose(z.mT @ z / len(z), torch.eye(3, dtype=z.dtype), atol=0.05)
    assert torch.equal(by.W, by.W.mT) or torch.allclose(by.W, by.W.mT)


def test_a_rotation_of_a_site_is_all_that_whitening_leaves_of_an_affine_map() -> None:
    """Oracle 2: the whitened rows of x A + b are those of x, turned, so products of rows stay."""
    x, A = rows(100_000, 4), rows(4, 4, 9) + 2 * torch.eye(4, dtype=torch.float64)
    one, other = (whitened(each, whitening(each, least=0.0))[:50] for each in (x, x @ A + 3))
    assert torch.allclose(one @ one.mT, other @ other.mT, atol=0.1)


@pytest.mark.parametrize(("n", "above"), [(20, 0.3), (20_000, 0.0)])
def test_few_rows_shrink_more(n: int, above: float) -> None:
    """The shrinkage falls with the rows; a covariance that is a multiple of the identity is shrunk wholly."""
    x = rows(n, 10) * torch.linspace(1, 3, 10)
    centred = x - x.mean(0)
    found = ledoit_wolf(centred, centred.mT @ centred / n)
    assert found > above if above else found < 0.01
    assert ledoit_wolf(torch.zeros(3, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)) == 1.0


def test_the_shrinkage_is_scikit_learns() -> None:
    from sklearn.covariance import ledoit_wolf_shrinkage

    x = rows(60, 12) * torch.linspace(1, 4, 12)
    centred = x - x.mean(0)
    assert ledoit_wolf(centred, centred.mT @ centred / 60) == pytest.approx(ledoit_wolf_shrinkage(x.numpy()))


def test_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        whitening(torch.zeros(0, 3))
