"""Styles of images, and scales that a site knows by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.numerics.clouds import normal
from tideline.numerics.alignment import feature_maps

WIDE = (-1e9, 1e9)


def images(n: int = 5, c: int = 3, h: int = 84, w: int = 81, seed: int = 0) -> Tensor:
    """Random images, large enough for a window of five."""
    return normal(n, c, h, w, seed=seed)


def by_numpy(x: Tensor, s: int) -> np.ndarray:
    """The definition, as it is written, by another library."""
    shifted = np.abs(np.fft.fftshift(np.fft.fft2(x.numpy()), axes=(-2, -1)))
    at = [size // 2 for size in x.shape[-2:]]
    return shifted[..., at[0] - s // 2 : at[0] + s // 2 + 1, at[1] - s // 2 : at[1] + s // 2 + 1]


@pytest.mark.parametrize(("pixels", "side"), [(1, 1), (8, 1), (28, 1), (32, 1), (39, 1), (40, 3), (79, 3), (80, 5), (224, 11)])
def test_the_windows_side(pixels: int, side: int) -> None:
    """A band of five percent, an odd side, at least one; of the shorter side."""
    assert (
        feature_maps.window_side(pixels, pixels)
        == feature_maps.window_side(pixels, 500)
        == feature_maps.window_side(500, pixels)
        == side
    )
    assert side == max(1, 2 * int(0.05 * pixels / 2 + 1e-12) + 1)


@pytest.mark.parametrize(("h", "w"), [(84, 81), (81, 84), (80, 80), (8, 9)])
def test_it_is_the_centred_spectrum(h: int, w: int) -> None:
    x = images(h=h, w=w)
    s = feature_maps.window_side(h, w)
    np.testing.assert_allclose(feature_maps.amplitudes(x).numpy(), by_numpy(x, s), rtol=1e-10)
    np.testing.assert_allclose(feature_maps.mean_style(x).numpy(), by_numpy(x, s).mean(0), rtol=1e-10)


def test_the_mean_is_over_all_images() -> None:
    """Of more images than are transformed at once; in float64 whatever they come in."""
    x = images(37, 1, 8, 8).float()
    found = feature_maps.mean_style(x)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), by_numpy(x.double(), 1).mean(0), rtol=1e-10)


def test_a_constant_image_is_its_zero_frequency() -> None:
    x = torch.full((2, 1, 80, 100), -0.25, dtype=torch.float64)
    found = feature_maps.mean_style(x)
    assert found.shape == (1, 5, 5)
    assert float(found[0, 2, 2]) == pytest.approx(0.25 * 8000)
    found[0, 2, 2] = 0
    assert float(found.abs().max()) < 1e-9


@pytest.mark.parametrize(("h", "w"), [(84, 81), (80, 80), (8, 8), (28, 28)])
def test_its_own_style_gives_an_image_back(h: int, w: int) -> None:
    x = images(h=h, w=w)
    torch.testing.assert_close(feature_maps.transfer(x, feature_maps.amplitudes(x), *WIDE), x, rtol=0, atol=1e-11)
    torch.testing.assert_close(feature_maps.transfer(x.float(), feature_maps.amplitudes(x), *WIDE), x.float(), rtol=0, atol=1e-4)


def test_a_transfer_changes_the_window_alone_and_keeps_the_phase() -> None:
    """The amplitudes inside are the style's, those outside the image's own, and every phase stays."""
    x, style = images(), feature_maps.mean_style(images(seed=1))
    given = x.clone()
    made = feature_maps.transfer(x, style.expand(5, -1, -1, -1), *WIDE)
    assert torch.equal(x, given)
    torch.testing.assert_close(feature_maps.amplitudes(made), style.expand(5, -1, -1, -1))
    before, after = feature_maps.centred(x), feature_maps.centred(made)
    torch.testing.assert_close(after / after.abs(), before / before.abs(), rtol=0, atol=1e-8)
    feature_maps.window(before).zero_()
    feature_maps.window(after).zero_()
    torch.testing.assert_close(after, before, rtol=0, atol=1e-8)


def test_brightness_below_forty_pixels() -> None:
    """There a style is one number a channel, and to take it over is to move all pixels alike."""
    x = images(4, 1, 8, 8) + 5
    made = feature_maps.transfer(x, torch.full((4, 1, 1, 1), 64 * 2.0, dtype=torch.float64), *WIDE)
    torch.testing.assert_close(made, x - x.mean((1, 2, 3), keepdim=True) + 2)


def test_what_leaves_the_range_is_clipped() -> None:
    """By numbers, or by bounds for each channel; also after a style beyond all measure."""
    x = images()
    low, high = x.amin((0, 2, 3))[:, None, None], x.amax((0, 2, 3))[:, None, None]
    made = feature_maps.transfer(x, 50 * feature_maps.amplitudes(x), low, high)
    assert bool((made >= low).all()) and bool((made <= high).all())
    assert bool(torch.isfinite(feature_maps.transfer(x.float(), torch.full((5, 3, 5, 5), 1e15), 0.0, 1.0)).all())


@pytest.mark.parametrize("x", [torch.zeros(0, 1, 8, 8), torch.zeros(3, 8, 8)])
def test_no_images_have_no_style(x: Tensor) -> None:
    with pytest.raises(ValueError, match="at least one of channels, height, width"):
        feature_maps.mean_style(x)


def test_a_style_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="these images want"):
        feature_maps.transfer(images(), torch.zeros(5, 3, 3, 3), 0.0, 1.0)


X = torch.randn(200, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 5.0, 0.1, 2.0, 3.0, 1.0]) + 7.0


@pytest.mark.parametrize("kind", ["zscore", "rows", "both"])
@pytest.mark.parametrize("unit", [1e-8, 1e-3, 1.0, 1e4])
def test_the_mean_square_is_one_whatever_the_unit(kind: str, unit: float) -> None:
    """So one learning rate suits all features; and another unit, or another origin, changes nothing."""
    made = feature_maps.scaled(X, *feature_maps.measured(X, kind), kind)
    other = unit * (X + 3.0)
    assert float(made.square().mean()) == pytest.approx(1.0, rel=1e-4)
    assert torch.allclose(feature_maps.scaled(other, *feature_maps.measured(other, kind), kind), made, atol=1e-2)


def test_rows_have_one_length() -> None:
    for kind in ("rows", "both"):
        made = feature_maps.scaled(X, *feature_maps.measured(X, kind), kind)
        assert torch.allclose(made.norm(dim=1), torch.full((200,), 6**0.5), atol=1e-4)


def test_none_changes_nothing() -> None:
    assert torch.equal(feature_maps.scaled(X, *feature_maps.measured(X, "none"), "none"), X)


def test_a_feature_that_never_changes_keeps_its_unit() -> None:
    """Nothing is divided by nothing; a row at the mean has no direction, and stays finite."""
    x = X.clone()
    x[:, 2] = 4.0
    for kind in feature_maps.KINDS:
        made = feature_maps.scaled(x, *feature_maps.measured(x, kind), kind)
        assert bool(torch.isfinite(made).all())
    same = torch.ones(5, 3)
    assert bool(torch.isfinite(feature_maps.scaled(same, *feature_maps.measured(same, "rows"), "rows")).all())


def test_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match="'rowz'; it is one of none, zscore, rows, both"):
        feature_maps.measured(X, "rowz")
