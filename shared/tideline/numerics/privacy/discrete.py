"""Discrete Gaussian and Laplace noise, sampled by rejection, after Canonne, Kamath, Steinke (2020, arXiv 2004.00010).

A Gaussian's size lies in a cell that is drawn by its weight (`cells`), anywhere in it, and is taken with the chance exp(-x) that
its weight has of the cell's, which a lot of 20 bits decides for 97 in 100. Zero with a minus before it is dropped.

How exact it is: uniform integers are exact, by rejection. Each Bernoulli trial of exp(-x) compares a word of 64 bits or more
with a float whose error is below 2^-49; where both are closer than 2^-46, the word is lengthened by 64 bits and compared with
exp(-x) in decimals of 60 digits of the exact fraction x. So a trial errs by less than 2^-127. Trials of exp(-1) in a row are one
comparison with its powers, lengthened where a word is equal to one of them. A draw takes fewer than 2^4 trials on average;
10^7 < 2^24 draws are within 2^-127 * 2^28 = 2^-99 of the exact law in total variation, well below 2^-40. A Gaussian one takes
fewer than 2, whose cells err by less than 2^-179 and whose trials, of 148 bits, by less than 2^-147: so many are within 2^-121.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tideline.numerics.privacy.cells import LOT, cells
from tideline.numerics.privacy.streams import Stream

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
LEAST, MOST = 2.0**-20, 2.0**48
UNSURE = 2.0**-46
BLOCK = 1 << 14  # candidates at once: what the processor's nearest cache holds


def discrete_gaussian(sigma: float, n: int, stream: Stream) -> Ints:
    """n draws y with probability in proportion to exp(-y^2 / (2 sigma^2)); sigma in [2^-20, 2^48] steps of the grid."""
    checked("sigma", sigma)
    return _gathered(lambda many: _gaussian(float(sigma), many, stream), n, spare=0.03)


def discrete_laplace(scale: int, n: int, stream: Stream) -> Ints:
    """n draws y with probability in proportion to exp(-|y| / scale); scale is a whole number in [1, 2^48]."""
    checked("scale", scale)
    if scale != int(scale) or scale < 1:
        raise ValueError(f"The scale of a discrete Laplace is {scale}; give a whole number of 1 or more")
    return _gathered(lambda many: _laplace(int(scale), many, stream), n, spare=2.0)


def checked(name: str, value: float) -> None:
    """Raises ValueError for a width outside of what is proven."""
    if not LEAST <= value <= MOST:
        raise ValueError(f"The noise's {name} is {value} steps of its grid; give one from 2^-20 to 2^48")


def bernoulli_exp(
    x: Floats, exponent: Callable[[int], Fraction], stream: Stream, begun: Words | None = None, bits: int = 0
) -> NDArray[np.bool_]:
    """Trials that succeed with probability exp(-x); exponent(i) is the exact x[i], asked for where a word is too short.

    begun: the first `bits` bits of each trial's number, where they are drawn already.
    """
    words = stream.words(len(x))
    first = np.zeros_like(words) if begun is None else begun
    short = (first.astype(np.float64) + words.astype(np.float64) * 2.0**-64) * 2.0**-bits - np.exp(-x)
    success = short < 0
    for i in np.flatnonzero(np.abs(short) < UNSURE):
        word = (int(first[i]) << 128) | (int(words[i]) << 64) | int(stream.words(1)[0])
        success[i] = below(word, exponent(int(i)), 128 + bits)
    return success


def below(word: int, x: Fraction, bits: int = 128) -> bool:
    """Whether word / 2^bits < exp(-x)."""
    with localcontext() as context:
        context.prec = 60
        return Decimal(word) < (-(Decimal(x.numerator) / Decimal(x.denominator))).exp() * (1 << bits)


def _gaussian(sigma: float, many: int, stream: Stream) -> Ints:
    """Draws of a discrete Gaussian, as many as are left of `many` candidates. A word is a sign, a lot and a place in a cell."""
    of = cells(sigma)
    cell, words = of.drawn(many, stream), stream.words(many)
    place = (words & np.uint64((1 << of.shift) - 1)).view(np.int64)
    lots = (words >> np.uint64(of.shift)) & np.uint64((1 << LOT) - 1)
    size = (cell << of.shift) | place
    taken = lots < of.sure.take(cell)
    unsure = np.flatnonzero(~taken)
    taken[unsure] = _fallen(sigma, of.shift, cell[unsure], size[unsure], lots[unsure], stream)
    sign = words.view(np.int64) >> 63  # of all bits: 0, or -1 for a minus
    taken &= (size | ~sign) != 0
    signed: Ints = ((size ^ sign) - sign)[taken]
    return signed


def _fallen(sigma: float, shift: int, cell: Ints, size: Ints, lots: Words, stream: Stream) -> NDArray[np.bool_]:
    """Whether numbers of that size are taken: trials of their weights' shares of those of their cells, of which lots begin."""
    width, square = float(1 << shift), Fraction(sigma) ** 2
    along = (size - (cell << shift)) / width

    def exponent(i: int) -> Fraction:
        return (int(size[i]) ** 2 - (int(cell[i]) << shift) ** 2) / (2 * square)

    return bernoulli_exp((2 * cell + along) * along * (width / sigma) ** 2 / 2, exponent, stream, lots, LOT)


def _laplace(scale: int, many: int, stream: Stream) -> Ints:
    """Draws of a discrete Laplace, as many as are left of `many` candidates."""
    u = _uniform(scale, many, stream)
    u = u[bernoulli_exp(u / scale, lambda i: Fraction(int(u[i]), scale), stream)]
    size = u + scale * _geometric(len(u), stream)
    negative = (stream.words(len(u)) >> np.uint64(63)).astype(bool)
    taken = ~(negative & (size == 0))
    signed: Ints = np.where(negative, -size, size)[taken]
    return signed


def _uniform(scale: int, many: int, stream: Stream) -> Ints:
    """Whole numbers in [0, scale), each as likely: words beyond the last whole multiple of it are dropped."""
    words = stream.words(many)
    over = (1 << 64) % scale
    if over:
        words = words[words < np.uint64((1 << 64) - over)]
    return (words % np.uint64(scale)).astype(np.int64)


def _geometric(n: int, stream: Stream) -> Ints:
    """How many trials of exp(-1) succeed in a row, n times: k or more, if a word is below exp(-k)."""
    words = stream.words(n)
    passed = np.searchsorted(POWERS, words, side="right")  # powers that are not above the word
    counts = len(POWERS) - passed
    for i in np.flatnonzero((words == POWERS[passed - 1]) | (words == 0)):
        word, counts[i] = (int(words[i]) << 64) | int(stream.words(1)[0]), 0
        while below(word, Fraction(int(counts[i]) + 1)):
            counts[i] += 1
    return counts.astype(np.int64)


def powers() -> NDArray[np.uint64]:
    """exp(-k) for k = 44 to 1 in words of 64 bits, without what is behind the point; exp(-45) is below all but the word 0."""
    with localcontext() as context:
        context.prec = 60
        return np.array([int(Decimal(-k).exp() * 2**64) for k in range(44, 0, -1)], dtype=np.uint64)


POWERS = powers()


def _gathered(candidates: Callable[[int], Ints], n: int, spare: float) -> Ints:
    """The first n of what rejection leaves. spare: how many candidates are drawn beside n, as a share of it."""
    found, have = [np.zeros(0, np.int64)], 0
    while have < n:
        found.append(candidates(min(BLOCK, 16 + n - have + int(spare * (n - have)))))
        have += len(found[-1])
    return np.concatenate(found)[:n]
