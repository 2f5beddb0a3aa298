"""Divergences from errors, and from moments."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tideline.numerics.alignment.divergences import (
    LARGEST,
    THRESHOLDS,
    exceeding,
    from_curves,
    h_divergence,
    separability,
    thresholds,
)


@settings(deadline=None)
@given(st.floats(0, 1))
def test_from_an_error(error: float) -> None:
    """0 where a classifier guesses, 2 where it knows or is always wrong; one-sided it never gains from being wrong."""
    d, one = (float(h_divergence(torch.tensor(error, dtype=torch.float64), side)) for side in (False, True))
    assert 0 <= one <= d <= 2
    assert abs(d - 2 * abs(1 - 2 * error)) < 1e-12
    assert one == (d if error <= 0.5 else 0)


def test_known_answers() -> None:
    """Errors of 0, 1/4, 1/2 and 1."""
    errors = torch.tensor([0.0, 0.25, 0.5, 1.0])
    assert h_divergence(errors).tolist() == [2, 1, 0, 2]
    assert h_divergence(errors, one_sided=True).tolist() == [2, 1, 0, 0]


def test_moments_of_gaussians() -> None:
    """Two of unit variance a distance apart: the best line errs with probability Phi(-distance / 2). Symmetric, zero at home."""
    for distance in (0.0, 0.5, 1.0, 3.0, 30.0):
        mean = torch.tensor([[0.0, 5.0], [distance, 5.0]])
        d = separability(mean, torch.ones(2, 2))
        expected = 2 * (1 - 2 * float(torch.special.ndtr(torch.tensor(-distance / 2, dtype=torch.float64))))
        assert torch.allclose(d[0, 1], torch.tensor(expected, dtype=torch.float64), atol=1e-5)
        assert torch.equal(d, d.T)
        assert torch.equal(d.diagonal(), torch.zeros(2, dtype=torch.float64))


def test_constant_pixels_tell_little() -> None:
    """A number that never changes has no variance; it makes no divergence infinite or undefined."""
    mean = torch.zeros(3, 4)
    mean[1, 0] = 1.0
    d = separability(mean, torch.zeros(3, 4))
    assert bool(torch.isfinite(d).all())
    assert d[0, 2] == 0
    assert d[0, 1] == 2


@settings(deadline=None)
@given(st.lists(st.floats(-20, 20).flatmap(lambda v: st.sampled_from([v, round(v), 0.0, 1e4 * v])), min_size=1, max_size=30))
def test_shares_above_each_threshold(scores: list[float]) -> None:
    """Counted by hand; what is equal counts half, so that both devices of a pair count alike."""
    found = exceeding(torch.tensor(scores, dtype=torch.float64))
    at = thresholds().tolist()
    by_hand = [sum((s > t) + 0.5 * (s == t) for s in scores) / len(scores) for t in at]
    torch.testing.assert_close(found, torch.tensor(by_hand, dtype=torch.float64))
    back = exceeding(-torch.tensor(scores, dtype=torch.float64))
    torch.testing.assert_close(back.flip(0), 1 - found)


@settings(deadline=None)
@given(st.floats(-10, 10))
def test_a_calibrated_divergence_does_not_see_what_a_classifier_leans_by(lean: float) -> None:
    """Scores that are moved as a whole tell as much, where the plain error is lost; of equal scores nothing is told."""
    rng = torch.Generator().manual_seed(3)
    a, b = torch.randn(400, generator=rng, dtype=torch.float64), 3 + torch.randn(400, generator=rng, dtype=torch.float64)
    curves = [exceeding(s) for s in (a - 1.5, -(b - 1.5))]
    leaning = [exceeding(s) for s in (a - 1.5 + lean, -(b - 1.5 + lean))]
    assert abs(float(from_curves(*leaning) - from_curves(*curves))) < 0.12
    assert float(from_curves(*curves)) > 1.6
    if abs(lean) > 6:
        assert float(from_curves(*leaning, calibrated=False)) < 0.2
    same = exceeding(a), exceeding(-a)
    assert float(from_curves(*same)) < 1e-9


def test_thresholds_are_symmetric_and_reach_far() -> None:
    """The middle one is what a classifier says itself; the curve of a pair is read from both ends."""
    at = thresholds()
    assert len(at) == THRESHOLDS
    assert float(at[THRESHOLDS // 2]) == 0
    assert torch.equal(at, -at.flip(0))
    assert bool((at.diff() > 0).all())
    assert abs(float(at[-1]) / LARGEST - 1) < 1e-12


@settings(deadline=None)
@given(st.floats(-2, 2.5))
def test_a_calibrated_divergence_does_not_see_the_scale_of_scores(power: float) -> None:
    """From a hundredth to some hundred times as sure of itself: the scores of a classifier that leans to no side tell as much."""
    rng = torch.Generator().manual_seed(3)
    a, b = torch.randn(400, generator=rng, dtype=torch.float64), 3 + torch.randn(400, generator=rng, dtype=torch.float64)
    d = float(from_curves(*(exceeding(10**power * s) for s in (a - 1.5, -(b - 1.5)))))
    assert 1.5 < d <= 2


@settings(deadline=None)
@given(st.floats(-1, 1.5), st.floats(-10, 10))
def test_nor_what_it_leans_by_at_another_scale(power: float, lean: float) -> None:
    """From a tenth to some thirty times as sure of itself, and up to ten spreads to a side."""
    rng = torch.Generator().manual_seed(3)
    a, b = torch.randn(400, generator=rng, dtype=torch.float64), 3 + torch.randn(400, generator=rng, dtype=torch.float64)
    d = float(from_curves(*(exceeding(10**power * s) for s in (a - 1.5 + lean, -(b - 1.5) - lean))))
    assert 1.5 < d <= 2


def test_scores_that_are_all_but_equal_tell_nothing_unless_zero_lies_between() -> None:
    """Between two thresholds nothing is seen, nor beyond the last."""
    close, far = torch.full((9,), 0.03), torch.full((9,), 2 * LARGEST)
    for score in (close, far):
        assert float(from_curves(exceeding(score), exceeding(-score / 1.5))) == 0
        assert float(from_curves(exceeding(-score), exceeding(-score))) == 2
