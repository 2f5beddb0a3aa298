"""Bounds on errors of sources and links, and energies of radio links."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.numerics.links.bounds import (
    Measured,
    Unfit,
    bounds,
    confidence,
    draw_power,
    draw_rate,
    link_bound,
    massart,
    measured_part,
    rademacher,
    sampling_part,
    source_bound,
    symmetric,
    transfer_energy,
)

COUNTS = np.array([1800.0, 1000.0])
# What Table II's last two rows, the whole bound and its measurable part, differ by: data sets M, U, ..., MM//U.
EQ_6 = np.array([0.34, 0.46, 0.62, 0.58, 0.35, 0.76, 0.66, 0.41, 0.42])
EQ_10 = np.array([8.28, 8.40, 8.55, 8.52, 8.30, 8.70, 8.60, 8.35, 8.36])


def measured(**other: Any) -> Measured:
    """Three devices, the last without labels, with some fields replaced."""
    fine = {"error": [0.1, 0.2, 1.0], "count": [10, 20, 30], "labelled": [10, 5, 0], "d": np.full((3, 3), 0.5)}
    return Measured(**{**fine, **other})


def test_known_parts() -> None:
    assert confidence(COUNTS) == pytest.approx([0.137849, 0.184943], abs=1e-6)
    assert massart() == pytest.approx(1.177410, abs=1e-6)
    assert massart("published") == pytest.approx(0.775925, abs=1e-6)
    assert rademacher(COUNTS, "early")[0] == pytest.approx(0.0913, abs=1e-4)
    assert rademacher(COUNTS).tolist() == [massart()] * 2


def test_the_published_table() -> None:
    """With its code's constants, logarithms to base 10, 1 - delta for delta and a factor 2 under the root, B is what Table II
    differs by."""
    conf = 3 * np.sqrt(2 * math.log10(2 / (1 - 1e-3)) / (2 * COUNTS))
    b = sampling_part(rademacher(COUNTS, "published"), conf)[0, 1]
    assert b == pytest.approx(7.941, abs=5e-4)
    np.testing.assert_allclose(EQ_10 - EQ_6, b, atol=0.012)


def test_the_bound_as_it_is_meant() -> None:
    assert sampling_part(rademacher(COUNTS), confidence(COUNTS))[0, 1] == pytest.approx(12.420, abs=5e-4)


def test_sums_of_parts() -> None:
    """Eqs. 17 and 18, written out for one link; the published scale weighs half the divergence in percent."""
    error, d, rad, conf = np.array([0.1, 0.6]), np.array([[0.0, 0.8], [0.8, 0.0]]), np.array([1.0, 2.0]), np.array([0.3, 0.5])
    assert source_bound(error, rad, conf).tolist() == pytest.approx([2.4, 5.1])
    assert link_bound(error, d, rad, conf)[0, 1] == pytest.approx(0.1 + 0.4 + 4 + 12 + 0.6 + 1.0)
    assert measured_part(error, d, 100.0)[1, 0] == pytest.approx(0.6 + 40)


def test_bounds_of_what_was_measured() -> None:
    m = measured()
    S, T = bounds(m, complexity="published", divergence_scale=100.0)
    rad, conf = rademacher(m.count, "published"), confidence(m.count)
    np.testing.assert_array_equal(S, source_bound(m.error, rad, conf))
    np.testing.assert_array_equal(T, link_bound(m.error, m.d, rad, conf, 100.0))
    assert m.pinned.tolist() == [False, False, True]


@given(st.integers(1, 10**9), st.floats(1e-12, 0.99))
def test_confidence_falls_with_samples(count: int, delta: float) -> None:
    assert confidence(count + 1, delta) < confidence(count, delta) < confidence(count, delta / 2)


def test_symmetric_is_the_mean() -> None:
    mean, uneven = symmetric(np.array([[9.0, 1.0], [0.5, 7.0]]))
    assert (mean.tolist(), uneven) == ([[0.0, 0.75], [0.75, 0.0]], True)
    assert not symmetric(np.array([[0.0, 0.3], [0.1 + 0.2, 1.0]]))[1]
    assert measured(d=[[0, 1, 1], [0.5, 0, 1], [1, 1, 0]]).uneven and not measured().uneven


BAD: list[tuple[dict[str, Any], str, tuple[int, ...], str]] = [
    ({"count": [10, 0, 30]}, "count", (1,), "no items"),
    ({"count": [10, 20]}, "count", (), "shape"),
    ({"labelled": [0, 0, 0]}, "labelled", (0, 1, 2), "no device has labels"),
    ({"labelled": [10, 25, 0]}, "labelled", (1,), "more labelled items"),
    ({"error": [0.1, 0.2, 1.5]}, "error", (2,), "in [0, 1]"),
    ({"error": [0.1, math.nan, 1]}, "error", (1,), "not a finite number"),
    ({"error": [-0.1, 0, 1]}, "error", (0,), "negative"),
    ({"d": [[0, 1, 1], [1, 0, -1], [1, 1, 0]]}, "d", (1, 2), "negative"),
    ({"d": [[0, 1, 1], [1, 0, 2.1], [1, 2.1, 0]]}, "d", (1, 2), "in [0, 2]"),
    ({"d": np.zeros((2, 3))}, "d", (), "shape"),
]


@pytest.mark.parametrize(("other", "field", "devices", "why"), BAD)
def test_what_does_not_fit_is_refused(other: dict[str, Any], field: str, devices: tuple[int, ...], why: str) -> None:
    with pytest.raises(Unfit) as caught:
        measured(**other)
    assert (caught.value.field, caught.value.devices) == (field, devices)
    assert why in str(caught.value)


def test_settings_out_of_range_are_refused() -> None:
    for work in (
        lambda: confidence(10, 0.0),
        lambda: confidence(10, 1.0),
        lambda: confidence([10, 0]),
        lambda: rademacher(COUNTS, "log2"),  # type: ignore[arg-type]
        lambda: measured_part(COUNTS, np.zeros((2, 2)), 10.0),
    ):
        with pytest.raises(Unfit):
            work()


def test_energy_is_power_times_time() -> None:
    """P_i M / R_ij: the sender's power, the link's rate; a gigabit at 0.2 W and 80 Mbit/s are 2.5 J."""
    rate = np.array([[1.0, 80e6, 40e6], [50e6, 1, 100e6], [50e6, 25e6, 1]])
    K = transfer_energy([0.2, 0.3, 0.25], rate)
    assert K[0].tolist() == [0, 2.5, 5.0] and K[1] == pytest.approx([6, 0, 3]) and K[2] == pytest.approx([5, 10, 0])
    assert transfer_energy([0.2, 0.3, 0.25], rate, bits=7e5)[0, 1] == pytest.approx(2.5 * 7e-4)


def test_no_rate_is_no_link() -> None:
    K = transfer_energy([0.2, 0.2], np.array([[math.nan, 0.0], [math.inf, -1.0]]))
    assert K.tolist() == [[0, math.inf], [math.inf, 0]]


def test_draws_are_in_the_published_range() -> None:
    """Powers in W and rates in bit/s, so that a gigabit costs 2.4 to 5.1 J; equal generators draw alike."""
    K = transfer_energy(draw_power(50, np.random.default_rng(0)), draw_rate(50, np.random.default_rng(1)))
    off = K[~np.eye(50, dtype=bool)]
    assert 2.35 < off.min() < 2.6 and 4.8 < off.max() < 5.1
    assert draw_power(5, np.random.default_rng(3)).tolist() == draw_power(5, np.random.default_rng(3)).tolist()


def test_powers_rates_and_sizes_that_are_none_are_refused() -> None:
    fine = np.full((2, 2), 7e7)
    for work in (
        *(lambda: transfer_energy([0.0, 0.2], fine), lambda: transfer_energy([math.inf, 0.2], fine)),
        *(lambda: transfer_energy([0.2, 0.2], -fine), lambda: transfer_energy([0.2, 0.2], fine * math.nan)),
        *(lambda: transfer_energy([0.2, 0.2, 0.2], fine), lambda: transfer_energy([0.2, 0.2], fine, bits=0)),
    ):
        with pytest.raises(Unfit):
            work()
