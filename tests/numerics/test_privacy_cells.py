"""The discrete Gaussian by cells: its table in whole numbers, what lengthens a word, and its law."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare, norm

from tideline.numerics.privacy.cells import CELLS, LOT, LOW, MORE, SUM, cells, columns
from tideline.numerics.privacy.discrete import bernoulli_exp, discrete_gaussian
from tideline.numerics.privacy.streams import Stream

WIDTHS = [2.0**-20, 0.5, 3.7, 63.9, 64.0, 100.0, 1.9 * 2**28, 2.0**36, 2.0**48]
LAST = (1 << 64) - 1


class Scripted(Stream):
    """Gives the words that it is made of."""

    def __init__(self, *words: int) -> None:
        super().__init__(bytes(32))
        self.left = list(words)

    def words(self, n: int) -> NDArray[np.uint64]:
        found, self.left = self.left[:n], self.left[n:]
        assert len(found) == n, "more words were asked for"
        return np.array(found, dtype=np.uint64)


def stream(*place: str | int) -> Stream:
    return Stream(bytes(range(32)), *place)


def fallen(square: Fraction) -> Decimal:
    return (-(Decimal(square.numerator) / Decimal(square.denominator)) / 2).exp()


@pytest.mark.parametrize(
    "sigma", [x if x in (0.5, 64.0, 2.0**36) else pytest.param(x, marks=pytest.mark.nightly(job="numbers")) for x in WIDTHS]
)
def test_every_cell_has_its_share_of_the_columns(sigma: float) -> None:
    """To 2^-181, by its definition; and together they are all, to the last unit."""
    of, height = cells(sigma), SUM // CELLS
    share = list(of.kept)
    for c, other in enumerate(of.other.tolist()):
        assert 0 <= of.kept[c] <= height and of.edges[c] == of.kept[c] >> MORE
        share[other] += height - of.kept[c]
    assert sum(share) == SUM == 1 << (10 + LOW + MORE)
    with localcontext(Context(prec=120)):
        weights = [fallen((Fraction(c << of.shift) / Fraction(sigma)) ** 2) for c in range(CELLS)]
        total = sum(weights)
        assert max(abs(Decimal(a) / SUM - b / total) for a, b in zip(share, weights, strict=True)) < Decimal(2) ** -181
        behind = fallen((Fraction(CELLS << of.shift) / Fraction(sigma)) ** 2)
        assert behind < Decimal(2) ** -184


@pytest.mark.parametrize("sigma", WIDTHS)
def test_what_is_taken_unseen_would_be_taken_wherever_it_is_in_its_cell(sigma: float) -> None:
    """The last number of a cell is the least likely; and nearly as many are taken so as can be."""
    of = cells(sigma)
    with localcontext(Context(prec=120)):
        for c in range(0, CELLS, 7):
            start, end = c << of.shift, (c + 1 << of.shift) - 1
            least = fallen((Fraction(end) ** 2 - Fraction(start) ** 2) / Fraction(sigma) ** 2)
            assert int(of.sure[c]) <= least * 2**LOT
            if start == end:
                assert of.sure[c] == 1 << LOT
            elif of.shift > 5:
                assert int(of.sure[c]) > least * 2**LOT * Decimal("0.95") - 2


def test_columns_are_exact_in_whole_numbers() -> None:
    kept, other = columns([SUM, *[0] * (CELLS - 1)])
    assert kept[1:] == [0] * (CELLS - 1) and set(other) == {0}
    kept, other = columns([SUM // CELLS] * CELLS)
    assert kept == [SUM // CELLS] * CELLS and other == list(range(CELLS))


def test_a_word_on_an_edge_is_lengthened() -> None:
    of = cells(2.0**36)
    column = next(c for c in range(CELLS) if of.other[c] != c and of.kept[c] % (1 << MORE))
    edge, more = (column << LOW) | int(of.edges[column]), of.kept[column] % (1 << MORE)
    for number, found in ((more - 1, column), (more, of.other[column])):
        scripted = Scripted(edge, number >> 64, number & LAST)
        assert of.drawn(1, scripted).tolist() == [found] and not scripted.left
    assert of.drawn(2, Scripted(edge - 1, edge + 1)).tolist() == [column, of.other[column]]


@pytest.mark.parametrize("sigma", [1.0, 2.0**36])
def test_the_far_tail_is_reached(sigma: float) -> None:
    """Up to more than 13 standard deviations, whose chance is less than 2^-120."""
    of = cells(sigma)
    c = int(13 * sigma) >> of.shift
    assert 0 < of.kept[c] < SUM >> 118
    assert of.drawn(1, Scripted(c << LOW, 0, 0)).tolist() == [c]


def test_a_number_that_has_begun_goes_on() -> None:
    with localcontext(Context(prec=80)):
        edge = int(Decimal(-1).exp() * 2**148)
    for word, found in ((edge, True), (edge + 1, False)):
        begun = np.array([word >> 128], dtype=np.uint64)
        scripted = Scripted((word >> 64) & LAST, word & LAST)
        assert bernoulli_exp(np.ones(1), lambda i: Fraction(1), scripted, begun, LOT).tolist() == [found]
    begun = stream("begun").words(200_000) >> np.uint64(64 - LOT)
    assert abs(bernoulli_exp(np.full(200_000, 0.7), lambda i: Fraction(0.7), stream(), begun, LOT).mean() - np.exp(-0.7)) < 0.005


@pytest.mark.parametrize("sigma", [50.0, 70.0, 200.0])
def test_each_number_has_its_chance(sigma: float) -> None:
    """Also where cells are of several numbers: counts of 500,000 draws, and the law by its definition."""
    n, most = 500_000, 600
    y = discrete_gaussian(sigma, n, stream("each"))
    weights = np.exp(-(np.arange(-most * 2, most * 2 + 1) ** 2.0) / (2 * sigma**2))
    law = (weights / weights.sum())[most:-most] * n
    counts = np.bincount(y[np.abs(y) <= most] + most, minlength=2 * most + 1)
    enough = law >= 10
    observed = np.append(counts[enough], n - counts[enough].sum())
    expected = np.append(law[enough], n - law[enough].sum())
    assert chisquare(observed, expected).pvalue > 1e-4


@pytest.mark.parametrize("sigma", [1.3 * 2.0**20, 2.0**36, 1.999 * 2.0**47])
def test_wide_noise_has_its_law_within_cells_and_over_them(sigma: float) -> None:
    """By quantiles of the normal law, as many of either sign, and with every ending alike."""
    n, bins = 300_000, 1000
    y = discrete_gaussian(sigma, n, stream("bins"))
    at = np.floor(norm.cdf((y + 0.5) / sigma) * bins).astype(np.int64)
    assert chisquare(np.bincount(at, minlength=bins)).pvalue > 1e-4
    assert abs((y > 0).mean() - 0.5) < 3 / sqrt(n)
    within = np.abs(y) & ((1 << cells(sigma).shift) - 1)
    assert chisquare(np.bincount(y & 31)).pvalue > 1e-4
    assert abs(within.mean() / (1 << cells(sigma).shift) - 0.5) < 0.01


def test_the_same_key_draws_the_same_noise() -> None:
    assert discrete_gaussian(2.0**36, 4, stream("golden")).tolist() == [-24391089752, -57298253728, 78949251872, 4924153952]
    assert discrete_gaussian(3.0, 8, stream("golden")).tolist() == [1, 3, 6, -4, 0, 3, 0, 1]
    assert discrete_gaussian(2.0**36, 0, stream("golden")).tolist() == []
