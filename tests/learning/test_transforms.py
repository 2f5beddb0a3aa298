"""Raw arrays become the world's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.settings import parse
from tideline.learning.formats.transforms import PLAIN, Transform, prepare

GREY, RGB = (1, 28, 28), (3, 28, 28)


@given(
    arrays.arrays(np.uint8, st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3]))),
    st.tuples(st.sampled_from([1, 3]), st.integers(1, 40), st.integers(1, 40)),
)
def test_any_image_fits_any_world(x: np.ndarray, inputs: tuple[int, int, int]) -> None:
    """Images of every size and colour come out as contiguous float32 of the world's shape, between 0 and 1."""
    out = prepare(x, inputs)
    assert out.shape == (len(x), *inputs)
    assert out.dtype == torch.float32
    assert out.is_contiguous()
    assert torch.equal(out, out.clamp(0.0, 1.0))


@given(st.integers(0, 255), st.integers(1, 40), st.sampled_from([1, 3]))
def test_flat_images_keep_their_value(value: int, side: int, channels: int) -> None:
    """Resizing and changing colours leave an even grey area as it was."""
    out = prepare(np.full((2, side, side), value, np.uint8), (channels, 28, 28))
    assert torch.allclose(out, torch.tensor(value / 255), atol=1e-5)


def test_images_of_the_right_size_are_only_scaled() -> None:
    """Where the size fits, pixels are the raw values divided by 255, to the bit."""
    x = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    assert torch.equal(prepare(x, (1, 16, 16))[0, 0], torch.arange(256.0).reshape(16, 16) / 255)


def test_shrinking_averages() -> None:
    """Antialiasing: shrinking a fine checkerboard gives grey, not one of its two colours."""
    x = (np.indices((21, 21)).sum(axis=0) % 2 * 255).astype(np.uint8)[None]
    assert torch.allclose(prepare(x, (1, 7, 7)), torch.tensor(0.5), atol=0.1)


def test_colours_become_grey_by_rec_601() -> None:
    """Pure red, green and blue have the published weights, to the nearest of 256 shades."""
    x = np.zeros((3, 4, 4, 3), np.uint8)
    for i in range(3):
        x[i, :, :, i] = 255
    assert torch.allclose(prepare(x, (1, 4, 4))[:, 0, 0, 0], torch.tensor([0.299, 0.587, 0.114]), atol=0.5 / 255)


def test_grey_becomes_colour_by_repeating() -> None:
    out = prepare(np.random.default_rng(0).integers(0, 256, (2, 28, 28)).astype(np.uint8), RGB)
    assert torch.equal(out[:, 0], out[:, 1]) and torch.equal(out[:, 1], out[:, 2])


def test_channels_are_moved_to_the_front() -> None:
    x = np.zeros((1, 28, 28, 3), np.uint8)
    x[..., 0] = 255
    assert prepare(x, RGB).mean(dim=(0, 2, 3)).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float64, ">f4"])
def test_scale_is_the_raw_value_of_white(dtype: Any) -> None:
    """With scale = 16 the value 16 becomes 1.0, whatever the array's type."""
    out = prepare(np.full((2, 8, 8), 16, dtype), GREY, Transform(scale=16.0))
    assert torch.allclose(out, torch.tensor(1.0))


def test_floats_are_taken_as_they_are() -> None:
    assert torch.allclose(prepare(np.full((2, 8, 8), 0.25), GREY), torch.tensor(0.25))


def test_small_overshoot_is_cut() -> None:
    """Pixels a little outside the range, as sharp resizing leaves them, are clipped and not refused."""
    out = prepare(np.array([[[-0.02, 1.02]]], np.float32), (1, 1, 2))
    assert out.flatten().tolist() == [0.0, 1.0]


def test_invert_swaps_black_and_white() -> None:
    assert prepare(np.zeros((2, 28, 28), np.uint8), GREY, Transform(invert=True)).eq(1.0).all()


def test_mean_and_std_come_last() -> None:
    """Per channel: (value - mean) / std, after scaling and inverting."""
    transform = Transform(invert=True, mean=(0.0, 0.5, 1.0), std=(1.0, 0.5, 0.25))
    assert prepare(np.zeros((1, 28, 28), np.uint8), RGB, transform)[0, :, 0, 0].tolist() == [1.0, 1.0, 0.0]


@given(arrays.arrays(np.float32, (3, 4), elements=st.floats(-(2.0**99), 2.0**99, width=32)))
def test_features_pass_unchanged(x: np.ndarray) -> None:
    assert np.array_equal(prepare(x, (4,)).numpy(), x)


def test_features_keep_whole_numbers() -> None:
    """uint8 features, such as counts of words, are not divided by 255."""
    assert prepare(np.array([[0, 200]], np.uint8), (2,)).tolist() == [[0.0, 200.0]]


def test_features_may_be_standardised() -> None:
    assert prepare(np.array([[1.0, 6.0]]), (2,), Transform(mean=(1.0, 2.0), std=(1.0, 4.0))).tolist() == [[0.0, 1.0]]


def test_the_raw_array_is_left_alone() -> None:
    x = np.full((2, 28, 28), 0.5, np.float32)
    prepare(x, GREY, Transform(scale=2.0)).zero_()
    assert np.all(x == 0.5)


REFUSALS: list[tuple[np.ndarray, tuple[int, ...], Transform, str]] = [
    (np.zeros((2, 5), np.float32), (4,), PLAIN, "5; the world expects 4 features"),
    (np.zeros((2, 8, 8), np.float32), (64,), PLAIN, "8 x 8; the world expects 64 features"),
    (np.zeros((2, 64), np.float32), GREY, PLAIN, "64; the world expects images"),
    (np.zeros((2, 3, 8, 8), np.uint8), GREY, PLAIN, "channels last"),
    (np.zeros((2, 8, 8, 4), np.uint8), GREY, PLAIN, "8 x 8 x 4"),
    (np.zeros((2, 0, 8), np.uint8), GREY, PLAIN, "0 x 8"),
    (np.zeros((2, 8, 8), np.uint16), GREY, PLAIN, "whose white is unknown"),
    (np.zeros((2, 8, 8), complex), GREY, PLAIN, "not numbers"),
    (np.array([["a"], ["b"]]), (1,), PLAIN, "not numbers"),
    (np.full((2, 8, 8), 7.0), GREY, PLAIN, "pixels outside 0 to 1, the scale"),
    (np.full((2, 8, 8), -1.0), GREY, PLAIN, "pixels outside 0 to 1"),
    (np.array([[1.0], [np.nan]]), (1,), PLAIN, "first in row 1"),
    (np.array([[1.0], [-np.inf]]), (1,), PLAIN, "first in row 1"),
    (np.array([[1e300]]), (1,), PLAIN, "too large for float32"),
    (np.array([[1e30]]), (1,), Transform(std=(1e-9,)), "too large for float32"),
    (np.zeros((2, 4)), (4,), Transform(invert=True), "invert"),
    (np.zeros((2, 8, 8)), RGB, Transform(mean=(0.1, 0.2)), "mean has 2 numbers"),
    (np.zeros((2, 8, 8)), (2, 8, 8), PLAIN, "the world's inputs are 2 x 8 x 8"),
]


@pytest.mark.parametrize(("x", "inputs", "transform", "said"), REFUSALS)
def test_refusals(x: np.ndarray, inputs: tuple[int, ...], transform: Transform, said: str) -> None:
    """Arrays that do not fit are refused, with what was found and what to do."""
    with pytest.raises(DataRefused) as refusal:
        prepare(x, inputs, transform)
    assert said in refusal.value.what
    assert refusal.value.todo


@pytest.mark.parametrize("table", [{"scale": 0}, {"scale": -1}, {"std": [0.0]}, {"invert": 1}, {"mean": 0.5}, {"gamma": 2}])
def test_bad_settings_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigRefused):
        parse(Transform, table)
