"""Scales that a site knows by itself."""

from __future__ import annotations

import pytest
import torch

from tideline.numerics.alignment.feature_maps import KINDS, measured, scaled

X = torch.randn(200, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 5.0, 0.1, 2.0, 3.0, 1.0]) + 7.0


@pytest.mark.parametrize("kind", ["zscore", "rows", "both"])
@pytest.mark.parametrize("unit", [1e-8, 1e-3, 1.0, 1e4])
def test_the_mean_square_is_one_whatever_the_unit(kind: str, unit: float) -> None:
    """So one learning rate suits all features; and another unit, or another origin, changes nothing."""
    made = scaled(X, *measured(X, kind), kind)
    other = unit * (X + 3.0)
    assert float(made.square().mean()) == pytest.approx(1.0, rel=1e-4)
    assert torch.allclose(scaled(other, *measured(other, kind), kind), made, atol=1e-2)


def test_rows_have_one_length() -> None:
    """The square root of the number of features; directions stay."""
    for kind in ("rows", "both"):
        made = scaled(X, *measured(X, kind), kind)
        assert torch.allclose(made.norm(dim=1), torch.full((200,), 6**0.5), atol=1e-4)


def test_none_changes_nothing() -> None:
    """Not a bit."""
    assert torch.equal(scaled(X, *measured(X, "none"), "none"), X)


def test_a_feature_that_never_changes_keeps_its_unit() -> None:
    """Nothing is divided by nothing; a row at the mean has no direction, and stays finite."""
    x = X.clone()
    x[:, 2] = 4.0
    for kind in KINDS:
        made = scaled(x, *measured(x, kind), kind)
        assert bool(torch.isfinite(made).all())
    same = torch.ones(5, 3)
    assert bool(torch.isfinite(scaled(same, *measured(same, "rows"), "rows")).all())


def test_an_unknown_kind() -> None:
    """It is named with those that there are."""
    with pytest.raises(ValueError, match="'rowz'; it is one of none, zscore, rows, both"):
        measured(X, "rowz")
