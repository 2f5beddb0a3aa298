"""Divergences from errors, moments and batch norm, and the round robin of pairs."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tideline.numerics.alignment import divergences


@given(st.floats(0, 1))
def test_from_an_error(error: float) -> None:
    """0 where a classifier guesses, 2 where it knows or is always wrong; one-sided it never gains from being wrong."""
    d, one = (float(divergences.h_divergence(torch.tensor(error, dtype=torch.float64), side)) for side in (False, True))
    assert 0 <= one <= d <= 2
    assert abs(d - 2 * abs(1 - 2 * error)) < 1e-12
    assert one == (d if error <= 0.5 else 0)


def test_known_answers() -> None:
    errors = torch.tensor([0.0, 0.25, 0.5, 1.0])
    assert divergences.h_divergence(errors).tolist() == [2, 1, 0, 2]
    assert divergences.h_divergence(errors, one_sided=True).tolist() == [2, 1, 0, 0]


def test_moments_of_gaussians() -> None:
    """Two of unit variance a distance apart: the best line errs with probability Phi(-distance / 2). Symmetric, zero at home."""
    for distance in (0.0, 0.5, 1.0, 3.0, 30.0):
        mean = torch.tensor([[0.0, 5.0], [distance, 5.0]])
        d = divergences.separability(mean, torch.ones(2, 2))
        expected = 2 * (1 - 2 * float(torch.special.ndtr(torch.tensor(-distance / 2, dtype=torch.float64))))
        assert torch.allclose(d[0, 1], torch.tensor(expected, dtype=torch.float64), atol=1e-5)
        assert torch.equal(d, d.T)
        assert torch.equal(d.diagonal(), torch.zeros(2, dtype=torch.float64))


def test_constant_pixels_tell_little() -> None:
    """A number that never changes has no variance; it makes no divergence infinite or undefined."""
    mean = torch.zeros(3, 4)
    mean[1, 0] = 1.0
    d = divergences.separability(mean, torch.zeros(3, 4))
    assert bool(torch.isfinite(d).all())
    assert d[0, 2] == 0
    assert d[0, 1] == 2


@given(st.lists(st.floats(-20, 20).flatmap(lambda v: st.sampled_from([v, round(v), 0.0, 1e4 * v])), min_size=1, max_size=30))
def test_shares_above_each_threshold(scores: list[float]) -> None:
    """Counted by hand; what is equal counts half, so that both devices of a pair count alike."""
    found = divergences.exceeding(torch.tensor(scores, dtype=torch.float64))
    at = divergences.thresholds().tolist()
    by_hand = [sum((s > t) + 0.5 * (s == t) for s in scores) / len(scores) for t in at]
    torch.testing.assert_close(found, torch.tensor(by_hand, dtype=torch.float64))
    back = divergences.exceeding(-torch.tensor(scores, dtype=torch.float64))
    torch.testing.assert_close(back.flip(0), 1 - found)


@given(st.floats(-10, 10))
def test_a_calibrated_divergence_does_not_see_what_a_classifier_leans_by(lean: float) -> None:
    """Scores that are moved as a whole tell as much, where the plain error is lost; of equal scores nothing is told."""
    rng = torch.Generator().manual_seed(3)
    a, b = torch.randn(400, generator=rng, dtype=torch.float64), 3 + torch.randn(400, generator=rng, dtype=torch.float64)
    curves = [divergences.exceeding(s) for s in (a - 1.5, -(b - 1.5))]
    leaning = [divergences.exceeding(s) for s in (a - 1.5 + lean, -(b - 1.5 + lean))]
    assert abs(float(divergences.from_curves(*leaning) - divergences.from_curves(*curves))) < 0.12
    assert float(divergences.from_curves(*curves)) > 1.6
    if abs(lean) > 6:
        assert float(divergences.from_curves(*leaning, calibrated=False)) < 0.2
    same = divergences.exceeding(a), divergences.exceeding(-a)
    assert float(divergences.from_curves(*same)) < 1e-9


def test_thresholds_are_symmetric_and_reach_far() -> None:
    """The middle one is what a classifier says itself; the curve of a pair is read from both ends."""
    at = divergences.thresholds()
    assert len(at) == divergences.THRESHOLDS
    assert float(at[divergences.THRESHOLDS // 2]) == 0
    assert torch.equal(at, -at.flip(0))
    assert bool((at.diff() > 0).all())
    assert abs(float(at[-1]) / divergences.LARGEST - 1) < 1e-12


@given(st.floats(-2, 2.5))
def test_a_calibrated_divergence_does_not_see_the_scale_of_scores(power: float) -> None:
    """From a hundredth to some hundred times as sure of itself: the scores of a classifier that leans to no side tell as much."""
    rng = torch.Generator().manual_seed(3)
    a, b = torch.randn(400, generator=rng, dtype=torch.float64), 3 + torch.randn(400, generator=rng, dtype=torch.float64)
    d = float(divergences.from_curves(*(divergences.exceeding(10**power * s) for s in (a - 1.5, -(b - 1.5)))))
    assert 1.5 < d <= 2


@given(st.floats(-1, 1.5), st.floats(-10, 10))
def test_nor_what_it_leans_by_at_another_scale(power: float, lean: float) -> None:
    """From a tenth to some thirty times as sure of itself, and up to ten spreads to a side."""
    rng = torch.Generator().manual_seed(3)
    a, b = torch.randn(400, generator=rng, dtype=torch.float64), 3 + torch.randn(400, generator=rng, dtype=torch.float64)
    d = float(divergences.from_curves(*(divergences.exceeding(10**power * s) for s in (a - 1.5 + lean, -(b - 1.5) - lean))))
    assert 1.5 < d <= 2


def test_scores_that_are_all_but_equal_tell_nothing_unless_zero_lies_between() -> None:
    close, far = torch.full((9,), 0.03), torch.full((9,), 2 * divergences.LARGEST)
    for score in (close, far):
        assert float(divergences.from_curves(divergences.exceeding(score), divergences.exceeding(-score / 1.5))) == 0
        assert float(divergences.from_curves(divergences.exceeding(-score), divergences.exceeding(-score))) == 2


@given(st.integers(2, 41))
def test_every_pair_meets_once_and_nobody_plays_twice_a_day(n: int) -> None:
    """In n - 1 days, or n where somebody rests; each day as many play as can."""
    played = divergences.days(n)
    assert sorted(pair for each in played for pair in each) == list(combinations(range(n), 2))
    assert len(played) == n - 1 + n % 2
    for each in played:
        players = [player for pair in each for player in pair]
        assert len(players) == len(set(players)) == n - n % 2


@given(st.integers(2, 30), st.integers(1, 40))
def test_blocks_are_the_tournament_in_parts(n: int, count: int) -> None:
    """In its order, and even: no device has more than one pair a day of its block."""
    parts = divergences.blocks(n, count)
    assert len(parts) == count
    assert [pair for part in parts for pair in part] == [pair for each in divergences.days(n) for pair in each]
    most = -(-len(divergences.days(n)) // count)
    for part in parts:
        players = [player for pair in part for player in pair]
        assert max((players.count(player) for player in players), default=0) <= most


def test_one_player_is_none() -> None:
    with pytest.raises(ValueError, match="at least two players; there are 1"):
        divergences.days(1)


def measured(seed: int) -> dict[str, Tensor]:
    """Weights with two layers of batch norm, and something else."""
    rng = torch.Generator().manual_seed(seed)
    made = {"0.weight": torch.randn(3, 2, generator=rng)}
    for layer, d in (("1", 3), ("4.norm", 5)):
        made[f"{layer}.running_mean"] = torch.randn(d, generator=rng)
        made[f"{layer}.running_var"] = torch.rand(d, generator=rng)
        made[f"{layer}.num_batches_tracked"] = torch.tensor(3)
    return made


def test_it_is_its_definition() -> None:
    """Over both layers, of means and of second moments, with weights that are divided by their sum."""
    T, a, b = measured(0), measured(1), measured(2)
    expected = 0.0
    for layer in ("1", "4.norm"):
        mu = [w[f"{layer}.running_mean"].double() for w in (T, a, b)]
        s = [w[f"{layer}.running_var"].double() + m**2 for w, m in zip((T, a, b), mu, strict=True)]
        for own, one, other in (mu, s):
            expected += float(((own - 0.25 * one - 0.75 * other) ** 2).sum())
    assert divergences.batch_norm_distance(T, [(0.2, a), (0.6, b)]) == pytest.approx(expected)


def test_those_who_measured_the_same_are_at_no_distance() -> None:
    w = measured(0)
    assert divergences.batch_norm_distance(w, [(0.1, w), (0.3, w)]) == pytest.approx(0, abs=1e-20)


def test_without_batch_norm_there_is_none() -> None:
    w = nn.Linear(2, 3).state_dict()
    assert divergences.batch_norm_distance(w, [(1.0, w)]) is None


def test_weights_of_nothing() -> None:
    with pytest.raises(ValueError, match="above 0"):
        divergences.batch_norm_distance(measured(0), [(0.0, measured(1))])
