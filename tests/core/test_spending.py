"""Bounds of what a site says that a step took, and the months in which it is counted."""

from __future__ import annotations

import math

import pytest

from tideline.engine.model.access.spending import (
    DAY_SECONDS,
    Spending,
    Spent,
    bounded,
    day_of,
    month,
    month_of,
    spending_of,
    summed,
)


@pytest.mark.parametrize(
    ("said", "gpu", "cpu"),
    [
        (Spent(8.0, 30.0, 1, 4), 8.0, 30.0),
        (Spent(20.0, 50.0, 1, 4), 10.0, 40.0),  # no longer than the order was open, on each of them
        (Spent(20.0, 5.0, 0, 0), 0.0, 0.0),  # of nothing
        (Spent(math.nan, math.nan, 1, 1), 0.0, 0.0),
        (Spent(-1.0, -math.inf, 1, 1), 0.0, 0.0),
        (Spent(math.inf, 1e308, 2**32 - 1, 2**32 - 1), 640.0, 10240.0),  # on as many as one step can have
    ],
)
def test_bounds(said: Spent, gpu: float, cpu: float) -> None:
    """Of an order that was open for ten seconds."""
    found = bounded(said, 10.0)
    assert (found.gpu, found.cpu) == (gpu, cpu)


def test_nothing_takes_no_time() -> None:
    """Where the coordinator's clock went back, an order was open for none."""
    assert bounded(Spent(1.0, 1.0, 1, 1), 0.0) == Spent(0.0, 0.0, 1, 1)


def test_sums() -> None:
    """Replies that say nothing are counted apart."""
    assert summed(map(spending_of, (Spent(1.0, 2.0), None, Spent(0.5)))) == Spending(1.5, 2.0, 2, 1)
    assert (Spending(3600.0, 1800.0).gpu_hours, Spending(3600.0, 1800.0).cpu_hours) == (1.0, 0.5)


@pytest.mark.parametrize(("at", "name", "days"), [(0.0, "1970-01", 31), (59 * DAY_SECONDS - 1, "1970-02", 28)])
def test_months(at: float, name: str, days: int) -> None:
    """By their calendar, in UTC."""
    found = month_of(at)
    assert (found.name, found.end - found.first) == (name, days) and found.first <= day_of(at) < found.end


def test_a_year_ends() -> None:
    """December is followed by January."""
    assert month(1999, 12).end == month(2000, 1).first and month(1999, 12).over == "2000-01-01 00:00 UTC"
    with pytest.raises(ValueError, match="month"):
        month(1999, 13)
