"""Energies of radio links."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tideline.numerics.links.bounds import Unfit, draw_power, draw_rate, transfer_energy


def test_energy_is_power_times_time() -> None:
    """P_i M / R_ij: the sender's power, the link's rate; a gigabit at 0.2 W and 80 Mbit/s are 2.5 J."""
    rate = np.array([[1.0, 80e6, 40e6], [50e6, 1, 100e6], [50e6, 25e6, 1]])
    K = transfer_energy([0.2, 0.3, 0.25], rate)
    assert K[0].tolist() == [0, 2.5, 5.0] and K[1] == pytest.approx([6, 0, 3]) and K[2] == pytest.approx([5, 10, 0])
    assert transfer_energy([0.2, 0.3, 0.25], rate, bits=7e5)[0, 1] == pytest.approx(2.5 * 7e-4)


def test_no_rate_is_no_link() -> None:
    """Zero and inf; the diagonal says nothing."""
    K = transfer_energy([0.2, 0.2], np.array([[math.nan, 0.0], [math.inf, -1.0]]))
    assert K.tolist() == [[0, math.inf], [math.inf, 0]]


def test_draws_are_in_the_published_range() -> None:
    """Powers in W and rates in bit/s, so that a gigabit costs 2.4 to 5.1 J; equal generators draw alike."""
    K = transfer_energy(draw_power(50, np.random.default_rng(0)), draw_rate(50, np.random.default_rng(1)))
    off = K[~np.eye(50, dtype=bool)]
    assert 2.35 < off.min() < 2.6 and 4.8 < off.max() < 5.1
    assert draw_power(5, np.random.default_rng(3)).tolist() == draw_power(5, np.random.default_rng(3)).tolist()


def test_what_does_not_fit_is_refused() -> None:
    """Powers, rates and sizes that are none."""
    fine = np.full((2, 2), 7e7)
    for work in (
        lambda: transfer_energy([0.0, 0.2], fine),
        lambda: transfer_energy([math.inf, 0.2], fine),
        lambda: transfer_energy([0.2, 0.2], -fine),
        lambda: transfer_energy([0.2, 0.2], fine * math.nan),
        lambda: transfer_energy([0.2, 0.2, 0.2], fine),
        lambda: transfer_energy([0.2, 0.2], fine, bits=0),
    ):
        with pytest.raises(Unfit):
            work()
