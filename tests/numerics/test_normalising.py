"""Features on a common scale: sums of sites are those of all rows, tails are drawn in, whitening gives unit covariance."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.numerics.examples import for_all
from tideline.numerics.alignment.normalising import WIDEST, ledoit_wolf, moments, standardised, whitened, whitening


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
