"""Statistics of rows under noise: what one row changes, exactly; what the noise is of; and how many rows a network is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Generator, Tensor

from tests.learning.rows_in_memory import data_of, site_of
from tests.numerics.examples import for_all
from tests.synthetic import FEATURES
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.asked.world import World
from tideline.core.step import Site
from tideline.learning.private.statistics import (
    AT_ONCE,
    WHOLE,
    Bound,
    bounded,
    each_row,
    noise_of_sums,
    row_by_row,
    spend_rest,
    statistics,
    statistics_spend,
)

PRIVACY = Privacy(rows=40, noise=2.0, delta=1e-3, rate=0.25)


def site(x: Tensor, privacy: Privacy = PRIVACY, key: bytes = b"k" * 32) -> tuple[Site[Any], Meter]:
    """A target with these rows, and the meter of its step."""
    meter = Meter(privacy, key)
    world = World(**{**FEATURES, "inputs": tuple(x.shape[1:]), "normalise": None})
    return site_of(data_of(x), world, private=meter), meter


@for_all(60, st.integers(1, 30), st.integers(1, 6), st.floats(-12, 12), st.floats(1e-6, 1e6), st.integers(0, 9))
def test_one_row_changes_a_sum_by_its_bound_at_most(d: int, n: int, power: float, most: float, seed: int) -> None:
    rows = torch.randn(n, d, generator=Generator().manual_seed(seed)).double() * 10.0**power
    made = bounded(rows, Bound(most, d))
    assert torch.equal(made, made.round())
    changed = made.sum(0) - made[1:].sum(0)
    assert torch.equal(changed, made[0])
    assert sum(int(v) ** 2 for v in changed.tolist()) <= WHOLE**2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_adds_nothing(bad: float) -> None:
    made = bounded(torch.tensor([[bad, 1.0], [3.0, 4.0]]), Bound(5.0, 2))
    assert made[0].tolist() == [0.0, 0.0] and float(made[1].norm()) == pytest.approx(WHOLE, rel=1e-5)


@for_all(20, st.integers(1, 2 * AT_ONCE + 3), st.integers(0, 3))
def test_sums_are_those_of_the_rows(n: int, seed: int) -> None:
    """With noise that is small beside them. Rows that fill the last part up are not counted."""
    x = torch.rand(n, 3, generator=Generator().manual_seed(seed))
    here, meter = site(x, replace(PRIVACY, noise=0.01, rate=1.0))
    total, count = statistics(here, meter, lambda rows: [rows, rows.new_ones(len(rows))], (Bound(2.0, 3), Bound(1.0, 1)))
    assert (total - x.double().sum(0)).abs().max() < 0.2 and float(count) == pytest.approx(n, abs=0.2)
    assert tuple(meter.spent) == statistics_spend(meter.asked)


def test_no_rows_are_noise_alone() -> None:
    here, meter = site(torch.zeros(0, 3))
    (found,) = statistics(here, meter, lambda rows: [rows], (Bound(1.0, 3),))
    assert found.shape == (3,) and bool(found.any())
    assert each_row(here, lambda rows: rows.sum(1)).shape == (0,)


def test_noise_is_in_proportion_to_bounds() -> None:
    """An epoch is 1 / rate steps, so that the noise of a sum over all rows is noise / sqrt(rate); times sqrt(2) of two sums."""
    here, meter = site(torch.zeros(1, 1))
    small, large = statistics(
        here, meter, lambda rows: [rows.new_zeros(len(rows), 4000)] * 2, (Bound(1.0, 4000), Bound(9.0, 4000))
    )
    assert noise_of_sums(PRIVACY) == 4.0 and meter.spent == [Charge(4.0)]
    for found, most in ((small, 1.0), (large, 9.0)):
        assert float(found.std()) == pytest.approx(4.0 * most * 2**0.5, rel=0.05)


def test_the_key_decides_the_noise() -> None:
    x = torch.rand(10, 2)
    (first,), (again,), (other,) = (
        statistics(*site(x, key=key), lambda rows: [rows], (Bound(1.0, 2),)) for key in (b"k" * 32, b"k" * 32, b"o" * 32)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_network_is_given_as_many_rows_whatever_there_are() -> None:
    """So that what it says of a row has the same last digits beside any others."""
    for n in (1, 5, AT_ONCE, AT_ONCE + 1):
        sizes = [(m, len(found)) for m, found in row_by_row(site(torch.rand(n, 2))[0], lambda rows: rows)]
        assert {size for _, size in sizes} == {AT_ONCE} and sum(m for m, _ in sizes) == n


def test_what_is_said_row_by_row_is_in_the_order_of_rows() -> None:
    x = torch.rand(AT_ONCE + 7, 2)
    assert torch.equal(each_row(site(x)[0], lambda rows: rows * 2), x * 2)


def test_orders_that_ask_for_less_cost_as_much() -> None:
    """What a step says that it spends and has not is charged; what it spent beyond is not hidden."""
    said = (*statistics_spend(PRIVACY, 3), Charge(2.0, 0.25, 4))
    meter = Meter(PRIVACY, b"k" * 32)
    meter.spend(Charge(4.0))
    spend_rest(meter, said)
    assert meter.spent == [Charge(4.0), Charge(2.0, 0.25, 4), Charge(4.0, 1.0, 2)]
    spend_rest(meter, said)
    assert len(meter.spent) == 3
    meter.spend(Charge(9.0))
    spend_rest(meter, said)
    assert meter.spent[-1] == Charge(9.0)


def test_before_the_noise_is_known_nothing_is_charged() -> None:
    assert statistics_spend(Privacy(rows=40, epsilon=1.0, delta=1e-3)) == ()
