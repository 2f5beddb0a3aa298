"""Numbers on a grid: the sum is that of the integers, exactly, and cannot wrap."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tideline.secure.errors import RangeRefused, ValuesRefused
from tideline.secure.fixed_point import CHUNK, Grid, finest

CLIPS = st.floats(2.0**-40, 2.0**40)
SITES = st.integers(1, 3500)
BITS = st.sampled_from([32, 64])


def test_golden() -> None:
    """What a site once sent it sends on any machine."""
    grid = finest(1.0, 8, 32)
    assert (grid.exponent, grid.most, grid.largest) == (27, 2**27, 2**31 - 1)
    encoded = grid.encode(np.array([0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 2.0**-27, 2.0**-28, 3 * 2.0**-28, -7.5], np.float64))
    words = [0, 0, 0x08000000, 0xF8000000, 0x00CCCCCD, 0xFF333333, 1, 0, 2, 0xF8000000]
    assert (encoded.values.tolist(), encoded.clipped) == (words, 1)
    wide = finest(3.0, 100, 64)
    assert (wide.exponent, wide.encode(np.array([1.0, -0.1, 4.0])).values.tolist()) == (
        54,
        [2**54, 2**64 - 1801439850948198, 3 * 2**54],
    )


@settings(max_examples=examples(300))
@given(CLIPS, SITES, BITS)
def test_the_finest_grid_is_the_finest_that_cannot_wrap(clip: float, sites: int, bits: int) -> None:
    grid = finest(clip, sites, bits)
    assert sites * grid.most <= 2 ** (bits - 1) - 1
    with pytest.raises(RangeRefused, match="could wrap"):
        Grid(clip, sites, bits, grid.exponent + 1)


@settings(max_examples=examples(200))
@given(CLIPS, st.integers(1, 40), BITS, st.integers(0, 2**32), st.sampled_from([np.float32, np.float64]))
def test_the_extremes_of_all_sites_do_not_wrap(clip: float, sites: int, bits: int, seed: int, dtype: Any) -> None:
    """The largest, the smallest, and any others: the sum modulo 2^bits is the sum of the whole numbers."""
    grid, rng = finest(clip, sites, bits), np.random.default_rng(seed)
    total, exact = grid.zeros(4), [0] * 4
    for _ in range(sites):
        middle = rng.uniform(-2, 2, 2) * clip
        encoded = grid.encode(np.array([1e30, -1e30, *middle]).astype(dtype))
        grid.check(encoded.values, 4)
        total += encoded.values
        exact = [a + b for a, b in zip(exact, grid.steps(encoded.values).tolist(), strict=True)]
    assert grid.steps(total).tolist() == exact
    assert (exact[0], exact[1]) == (sites * grid.most, -sites * grid.most)
    assert grid.decode(total).tolist() == [float(Fraction(each) / Fraction(2) ** grid.exponent) for each in exact]


@settings(max_examples=examples(200))
@given(st.lists(st.floats(-8, 8, width=32), max_size=9), st.sampled_from([np.float32, np.float64]), BITS)
def test_a_value_is_at_most_half_a_step_off(values: list[float], dtype: Any, bits: int) -> None:
    grid = finest(5.0, 3, bits)
    array = np.array(values, dtype)
    encoded = grid.encode(array)
    assert encoded.clipped == sum(abs(float(x)) > 5 for x in array)
    for x, y in zip(array.tolist(), grid.steps(encoded.values).tolist(), strict=True):
        clipped = Fraction(min(max(x, -5.0), 5.0))
        assert abs(Fraction(y) / Fraction(2) ** grid.exponent - clipped) <= Fraction(1, 2) / Fraction(2) ** grid.exponent


def test_long_arrays_and_strided_ones() -> None:
    """Beyond a chunk, of any shape; the clipped ones of all chunks are counted."""
    grid = finest(1.0, 4)
    x = np.linspace(-2, 2, 3 * CHUNK + 5)
    whole = grid.encode(x)
    assert whole.clipped == int((np.abs(x) > 1).sum()) and whole.values.dtype == np.uint32
    assert grid.encode(x[::-1]).values.tolist() == whole.values[::-1].tolist()
    assert np.abs(grid.decode(whole.values, np.float32) - np.clip(x, -1, 1)).max() < 2.0**-23
    assert grid.encode(x[: 2 * CHUNK].reshape(2, 4, -1)).values.shape == (2 * CHUNK,)
    assert grid.encode(np.zeros(0)).values.shape == (0,)


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    """With its place, in whichever chunk it is. Infinity is no large number but a broken training."""
    x = np.zeros(CHUNK + 3)
    x[CHUNK + 1] = value
    with pytest.raises(ValuesRefused, match=rf"Value {CHUNK + 1} of {CHUNK + 3} is -?(nan|inf), which no sum can hold"):
        finest(1.0, 4).encode(x)


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.complex64, object])
def test_other_types_are_refused(dtype: Any) -> None:
    with pytest.raises(ValuesRefused, match="Give float32 or float64"):
        finest(1.0, 4).encode(np.zeros(2, dtype))


@pytest.mark.parametrize(
    ("clip", "sites", "bits", "words"),
    [
        (0.0, 8, 32, "The clip is 0.0. Choose a number from"),
        (nan, 8, 32, "The clip is nan"),
        (inf, 8, 32, "The clip is inf"),
        (-1.0, 8, 32, "The clip is -1.0"),
        (True, 8, 32, "The clip is a bool"),
        (1.0, 0, 32, "A sum is of 0 sites"),
        (1.0, 2.0, 32, "A sum is of 2.0 sites"),
        (1.0, 8, 16, "A sum is of 16 bits. Choose 32, or 64"),
    ],
)
def test_numbers_of_no_grid_are_refused(clip: Any, sites: Any, bits: int, words: str) -> None:
    with pytest.raises(RangeRefused, match=words):
        finest(clip, sites, bits)


def test_too_coarse_a_grid_is_refused() -> None:
    """Every value would be rounded to nothing."""
    with pytest.raises(RangeRefused, match="every value would become 0"):
        Grid(0.25, 8, 32, 0)


def test_sums_of_other_types_are_refused() -> None:
    with pytest.raises(ValuesRefused, match="Values came as 1 axes of uint64"):
        finest(1.0, 4).decode(np.zeros(3, np.uint64))
    with pytest.raises(ValuesRefused, match="Values came as 2 axes of uint32"):
        finest(1.0, 4).decode(np.zeros((3, 1), np.uint32))
