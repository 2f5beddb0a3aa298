"""Streams of a secret key, and noise that is drawn from them."""

from __future__ import annotations

from fractions import Fraction
from math import exp, log, pi, sqrt

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from scipy.stats import chisquare

from tests.numerics.examples import for_all
from tideline.numerics.privacy.discrete import below, bernoulli_exp, discrete_gaussian, discrete_laplace
from tideline.numerics.privacy.mechanisms import gaussian, geometric, grid
from tideline.numerics.privacy.streams import Part, Stream, encoded

KEY = bytes(range(32))
PLACES = st.lists(st.one_of(st.text(max_size=3), st.integers(-300, 300), st.binary(max_size=3)), max_size=4)


def stream(*place: Part) -> Stream:
    return Stream(KEY, *place)


def test_the_words_of_a_key_are_fixed() -> None:
    words = [0x7C49BD359CD4A55D, 0x7F791122C76D8257, 0x966B623C997ABA44]
    assert stream("golden", 1, b"x").words(3).tolist() == words
    assert stream().uniforms(2).tolist() == pytest.approx([0.17847695, 0.18662804], abs=1e-8)


@for_all(200, PLACES, PLACES)
def test_two_places_share_no_stream(a: list[Part], b: list[Part]) -> None:
    alike = [(type(p), p) for p in a] == [(type(p), p) for p in b]
    assert (encoded(tuple(a)) == encoded(tuple(b))) is alike
    assert (Stream(KEY, *a).words(2).tolist() == Stream(KEY, *b).words(2).tolist()) is alike


def test_a_child_begins_at_its_own_place() -> None:
    parent = stream("a")
    first = parent.words(3).tolist() + parent.words(2).tolist()
    assert first == stream("a").words(5).tolist()
    assert parent.child("b", 1).words(4).tolist() == stream("a", "b", 1).words(4).tolist()
    assert Stream(bytes(32)).words(1).tolist() != stream().words(1).tolist()


def test_streams_refuse_what_they_cannot_tell_apart() -> None:
    with pytest.raises(ValueError, match="give 32"):
        Stream(b"short")
    with pytest.raises(TypeError, match="give texts"):
        stream(True)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.7])
def test_the_discrete_gaussian_has_its_law(sigma: float) -> None:
    reach, n = int(5 * sigma) + 1, 200_000
    y = discrete_gaussian(sigma, n, stream("fit"))
    weights = np.exp(-(np.arange(-60, 61) ** 2) / (2 * sigma**2))
    law = weights / weights.sum()
    inner = slice(60 - reach + 1, 60 + reach)
    counts = np.array([(y == k).sum() for k in range(-reach + 1, reach)])
    enough = law[inner] * n >= 5
    observed = np.append(counts[enough], n - counts[enough].sum())
    expected = np.append(law[inner][enough], 1 - law[inner][enough].sum()) * n
    merged = expected >= 5
    observed, expected = observed[merged], expected[merged]
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3
    assert abs((y > 0).mean() - (y < 0).mean()) < 5 / sqrt(n)


@pytest.mark.parametrize("sigma", [2.0**20, 2.0**30, 2.0**48])
def test_wide_noise_has_its_moments(sigma: float) -> None:
    y = discrete_gaussian(sigma, 200_000, stream("wide")) / sigma
    assert abs(y.mean()) < 5 / sqrt(len(y))
    assert abs((y**2).mean() - 1) < 5 * sqrt(2 / len(y))
    assert abs((y**4).mean() - 3) < 5 * sqrt(96 / len(y))


def test_the_discrete_laplace_has_its_law() -> None:
    n, scale = 200_000, 3
    y = discrete_laplace(scale, n, stream("laplace"))
    r = exp(-1 / scale)
    law = (1 - r) / (1 + r) * r ** np.abs(np.arange(-15, 16))
    counts = np.array([(y == k).sum() for k in range(-15, 16)])
    assert chisquare(np.append(counts, n - counts.sum()), np.append(law, 1 - law.sum()) * n).pvalue > 1e-3


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf"), 2.0**49])
def test_widths_beyond_the_proof_are_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match="give one from"):
        discrete_gaussian(sigma, 1, stream())
    with pytest.raises(ValueError):
        discrete_laplace(1.5, 1, stream())  # type: ignore[arg-type]


def test_a_word_that_is_too_short_is_lengthened() -> None:
    """The exact comparison, at both sides of exp(-1), and where nothing but certainty is left."""
    edge = 125182886983370532117250726298150828301  # floor(2^128 / e)
    assert below(edge, Fraction(1)) and not below(edge + 1, Fraction(1))
    assert below(2**128 - 1, Fraction(0))
    many = bernoulli_exp(np.full(100_000, log(2)), lambda i: Fraction(log(2)), stream("half"))
    assert abs(many.mean() - 0.5) < 0.01


@for_all(30, st.floats(1e-3, 1e3), st.floats(0.1, 10))
def test_released_values_lie_on_the_grid(sensitivity: float, noise: float) -> None:
    """The least bits say nothing of the values: all of them are multiples of one power of two."""
    values = np.array([0.1, -1 / 3, pi]) * sensitivity
    step = grid(sensitivity * max(1.0, noise))
    result = gaussian(values, sensitivity, noise, stream("grid"))
    assert (result / step == np.rint(result / step)).all()


def test_released_values_have_the_noise_that_was_asked() -> None:
    noisy = gaussian(torch.full((400, 500), 7.0), 2.0, 1.5, stream("release"))
    assert noisy.dtype == torch.float32 and noisy.shape == (400, 500)
    assert float(noisy.mean()) == pytest.approx(7, abs=0.04)
    assert float(noisy.std()) == pytest.approx(3, rel=0.01)
    assert gaussian(np.zeros(3, np.float32), 1.0, 1.0, stream()).dtype == np.float32


def test_counts_get_whole_noise() -> None:
    noisy = geometric(np.full(100_000, 5), 1, 2, stream("counts"))
    assert noisy.dtype == np.int64 and noisy.mean() == pytest.approx(5, abs=0.05)
    with pytest.raises(ValueError, match="whole numbers"):
        geometric(np.array([1.5]), 1, 1, stream())  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_what_no_noise_covers_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="clip the values"):
        gaussian(np.array([value]), 1.0, 1.0, stream())


@pytest.mark.parametrize(("sensitivity", "noise"), [(0.0, 1.0), (1.0, 0.0), (float("nan"), 1.0), (1.0, float("inf"))])
def test_releases_refuse_noise_that_is_none(sensitivity: float, noise: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        gaussian(np.zeros(1), sensitivity, noise, stream())
    with pytest.raises(ValueError, match="give floats"):
        gaussian(np.zeros(1, np.int64), 1.0, 1.0, stream())  # type: ignore[type-var]
