"""Rehearsals weighed, candidates chosen and gains expected: the oracles, and laws of each."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.numerics.examples import for_all
from tideline.numerics.alignment.normalising import Moments, moments
from tideline.numerics.rehearsal.choice import BOUND, MEAN, best, vote, weights
from tideline.numerics.rehearsal.expectation import SLOPE, accuracy, expected
from tideline.numerics.rehearsal.shifts import FAR, Shift, distance, likeness, shift, unlike

GAINS = st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=5)
NEAR, OTHER = Shift(0.5, 0.1), Shift(2.0, 0.8)


def of(x: Tensor) -> Moments:
    return moments([x], x.shape[1])


def rows(seed: int = 0) -> Tensor:
    return torch.randn(500, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_shift_is_that_of_means_and_of_spreads() -> None:
    x = rows()
    found = shift(of(2 * x + 3 * x.std(0, correction=0)), of(x))
    assert found.of_spreads == pytest.approx(0.6931, abs=1e-3) and 2.5 < found.of_means < 3.5
    assert shift(of(x), of(x)) == Shift(0.0, 0.0)


def test_no_unit_of_a_feature_matters() -> None:
    x, unit = rows(), torch.tensor([1e-3, 1.0, 5.0, 1e6]).double()
    one, other = shift(of(x + 1), of(x)), shift(of((x + 1) * unit), of(x * unit))
    assert (one.of_means, one.of_spreads) == pytest.approx((other.of_means, other.of_spreads), abs=1e-6)


def test_alike_shifts_weigh_more() -> None:
    w = likeness(NEAR, [NEAR, OTHER])
    assert float(w.sum()) == pytest.approx(1.0) and float(w[0]) > 0.9
    assert torch.equal(likeness(NEAR, [OTHER, OTHER]), torch.tensor([0.5, 0.5]).double())
    assert distance(NEAR, OTHER) > FAR and unlike(NEAR, [OTHER]) and not unlike(NEAR, [OTHER, NEAR])


def test_shifts_beyond_all_distance_still_have_weights() -> None:
    w = likeness(Shift(0.0, 0.0), [Shift(1e300, 1e300), Shift(1e299, 1e300)])
    assert bool(torch.isfinite(w).all()) and float(w.sum()) == pytest.approx(1.0)


def test_two_of_no_adaptation_are_no_adaptation() -> None:
    gains = torch.zeros(3, 2)
    assert best(gains, torch.ones(3) / 3) == 0 and vote(gains, torch.ones(3) / 3).tolist() == [1.0, 0.0]
    none = expected(torch.zeros(3), torch.zeros(3), torch.ones(3) / 3, here=0.0, rows=100)
    assert none.value == 0.0 and none.low == pytest.approx(-none.high)


@for_all(100, gains=GAINS)
def test_a_vote_has_no_candidate_that_lost(gains: list[float]) -> None:
    g = torch.tensor([[0.0, *gains]])
    w = vote(g, torch.ones(1))
    assert float(w.sum()) == pytest.approx(1.0) and bool((w >= 0).all())
    assert all(float(weight) == 0.0 for weight, gain in zip(w.tolist(), g[0].tolist(), strict=True) if gain < 0)
    assert int(w.argmax()) == best(g, torch.ones(1)) or max(gains) <= 0


def test_a_clear_winner_decides_alone() -> None:
    w = vote(torch.tensor([[0.0, 0.3, 0.05], [0.0, 0.2, 0.1]]), torch.ones(2) / 2)
    assert float(w[1]) > 0.999


def test_a_rehearsal_unlike_the_target_says_little() -> None:
    """It lost where the shift is another, and gained where it is like the target's."""
    gains = torch.tensor([[0.0, 0.2], [0.0, -0.3]])
    assert best(gains, likeness(NEAR, [NEAR, OTHER])) == 1 and best(gains, torch.ones(2) / 2) == 0


def test_the_careful_rule_prefers_gains_on_which_sites_agree() -> None:
    """By `mean` the larger mean gain wins; by `bound` the one that is larger after one standard error is subtracted."""
    gains, alike = torch.tensor([[0.0, 0.1, 0.5], [0.0, 0.1, -0.2]]), torch.ones(2) / 2
    assert weights(MEAN, gains, alike).tolist() == [0.0, 0.0, 1.0]
    assert weights(BOUND, gains, alike).tolist() == [0.0, 1.0, 0.0]


@for_all(100, gains=GAINS, here=st.floats(0, 1), n=st.integers(1, 10_000))
def test_an_interval_holds_its_value(gains: list[float], here: float, n: int) -> None:
    g = torch.tensor(gains)
    found = expected(g, g.abs() + 0.1, torch.ones(len(g)) / len(g), here, n)
    assert -1 <= found.low <= found.value <= found.high <= 1


def test_what_changes_nothing_here_is_expected_to_gain_less() -> None:
    """Each changed row gained half a row where it was rehearsed; here a tenth of the rows change, and there it was a half."""
    g, c, w = torch.tensor([0.25, 0.25]), torch.tensor([0.5, 0.5]), torch.ones(2) / 2
    assert expected(g, c, w, here=0.5, rows=500).value == pytest.approx(0.25)
    assert expected(g, c, w, here=0.1, rows=500).value == pytest.approx((0.25 + 0.05) / 2)


def test_more_rows_and_agreeing_sites_make_it_narrower() -> None:
    def width(gains: list[float], rows: int) -> float:
        found = expected(torch.tensor(gains), torch.full((len(gains),), 0.3), torch.ones(len(gains)) / len(gains), 0.3, rows)
        return found.high - found.low

    assert width([0.1, 0.1], 1000) < width([0.1, 0.1], 30) < width([0.3, -0.1], 30)
    assert width([0.1], 100) > width([0.1, 0.1], 100)


def test_a_spread_of_few_sites_is_beside_a_usual_one() -> None:
    """Two sites that happen to agree do not make an interval narrow, nor do two that differ make it as wide as they do."""

    def width(*right: float) -> float:
        found = accuracy(torch.full((len(right),), 0.6), torch.tensor(right), 0.6, 10_000)
        return found.high - found.low

    assert 0.15 < width(0.6, 0.6) < width(0.5, 0.7) < 0.4
    assert width(0.6) > width(0.6, 0.6)


def test_accuracy_follows_confidence() -> None:
    """Where it is 10 points lower than where it was rehearsed, accuracy is expected to be lower by SLOPE times as much."""
    confident, right = torch.tensor([0.8, 0.7]), torch.tensor([0.75, 0.65])
    assert accuracy(confident, right, 0.75, 500).value == pytest.approx(0.7)
    assert accuracy(confident, right, 0.65, 500).value == pytest.approx(0.7 - SLOPE * 0.1)


@for_all(100, right=st.lists(st.floats(0, 1), min_size=1, max_size=5), here=st.floats(0, 1), n=st.integers(1, 10_000))
def test_an_accuracy_is_a_share(right: list[float], here: float, n: int) -> None:
    found = accuracy(torch.full((len(right),), 0.5), torch.tensor(right), here, n)
    assert 0 <= found.low <= found.value <= found.high <= 1
