"""Floats as whole numbers modulo 2^32 or 2^64, whose sum cannot wrap.

A value x becomes q(x) = rint(x * 2^exponent), clipped to [-most, most] with most = rint(clip * 2^exponent); negative numbers are
two's complements. The sum of all sites lies in [-sites * most, sites * most]. It is the sum of integers, and no wrapped one, if

    sites * most <= 2^(bits - 1) - 1,

which `Grid` proves when it is made, so before anybody sends a number. Multiplying by a power of two is exact, so the only
loss is that of rint, half a step at most, and that of clipping, which is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tideline.core.errors import kind_of
from tideline.secure.errors import RangeRefused, ValuesRefused

Words = NDArray[np.unsignedinteger]  # values modulo 2^32 or 2^64
Floats = NDArray[np.floating]
WORDS: dict[int, tuple[type[np.unsignedinteger], type[np.signedinteger]]] = {32: (np.uint32, np.int32), 64: (np.uint64, np.int64)}
CHUNK = 1 << 16  # values at once: their float64 stay in a core's cache
LEAST, MOST = 2.0**-100, 2.0**60  # that a clip may be


@dataclass(frozen=True)
class Encoded:
    """Values on a grid, and how many of them had to be clipped."""

    values: Words
    clipped: int


@dataclass(frozen=True)
class Grid:
    """Steps of 2^-exponent, for a sum of so many sites modulo 2^bits. Raises RangeRefused where it could wrap."""

    clip: float
    sites: int
    bits: int
    exponent: int

    def __post_init__(self) -> None:
        check_numbers(self.clip, self.sites, self.bits)
        if self.most < 1:
            what = f"A step of 2^{-self.exponent} is more than twice the clip of {self.clip:g}, so every value would become 0"
            raise RangeRefused(what, "Choose smaller steps, or have `finest` choose them", path="clip")
        if self.sites * self.most > self.largest:
            what = (
                f"The sum of {self.sites} sites with values up to {self.clip:g} in steps of 2^{-self.exponent} may reach"
                f" {self.sites * self.most}, and integers of {self.bits} bits hold {self.largest}: it could wrap"
            )
            raise RangeRefused(what, "Choose larger steps, a smaller clip, or 64 bits", path="clip")

    @property
    def most(self) -> int:
        """The largest value of a site, in steps."""
        return most_of(self.clip, self.exponent)

    @property
    def largest(self) -> int:
        """The largest sum that can be told from a negative one."""
        return largest_of(self.bits)

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        return np.dtype(WORDS[self.bits][0])

    def zeros(self, n: int) -> Words:
        return np.zeros(n, self.dtype)

    def encode(self, values: Floats) -> Encoded:
        """Values in steps, in a row. Those beyond the clip are clipped and counted. Raises ValuesRefused for NaN and infinity."""
        flat = floats(values).reshape(-1)
        words, clipped = np.empty(flat.size, self.dtype), 0
        steps = words.view(WORDS[self.bits][1])
        for part in chunks(flat.size):
            x = flat[part].astype(np.float64)
            if not np.isfinite(x).all():
                at = part.start + int(np.flatnonzero(~np.isfinite(x))[0])
                raise ValuesRefused(f"Value {at} of {flat.size} is {flat[at]}, which no sum can hold", "Check the training")
            clipped += int(np.count_nonzero(np.abs(x) > self.clip))
            np.clip(x, -self.clip, self.clip, out=x)
            steps[part] = np.rint(np.ldexp(x, self.exponent, out=x), out=x)
        return Encoded(words, clipped)

    def steps(self, words: Words) -> NDArray[np.signedinteger]:
        """A sum, or a site's values, as signed integers. Nothing is copied."""
        return self.checked(words).view(WORDS[self.bits][1])

    def decode(self, total: Words, dtype: DTypeLike = np.float64) -> Floats:
        """A sum as floats: the sum of the integers times the step, rounded once where the type does not hold it."""
        steps = self.steps(total)
        made: Floats = np.empty(steps.size, dtype)
        step = 2.0**-self.exponent  # a power of two, so nothing is rounded by it
        for part in chunks(steps.size):
            made[part] = steps[part].astype(np.float64) * step
        return made

    def check(self, words: Words, n: int) -> None:
        """Raises ValuesRefused unless these are n values of one site, none beyond the clip, that can be masked where they lie."""
        if self.checked(words).size != n:
            raise ValuesRefused(f"{words.size} values came, and {n} are to be summed", "Send what the round's terms say")
        if not (words.flags.writeable and words.flags.c_contiguous):
            what = "The values lie in pieces, or cannot be written to: they are masked where they lie"
            raise ValuesRefused(what, "Give the array that the round's own grid has encoded, or a copy of it")
        steps = self.steps(words)
        for part in chunks(n):
            least, most = int(steps[part].min()), int(steps[part].max())
            if max(-least, most) > self.most:
                what = f"A value is {most if most > self.most else least} steps, and {self.most} was agreed: the sum could wrap"
                raise ValuesRefused(what, "Encode values by the round's own grid, which clips them")

    def checked(self, words: Words) -> Words:
        if words.dtype != self.dtype or words.ndim != 1:
            what = f"Values came as {words.ndim} axes of {words.dtype}, and a sum is of one axis of {self.dtype}"
            raise ValuesRefused(what, "Encode them by the round's own grid")
        return words


def finest(clip: float, sites: int, bits: int = 32) -> Grid:
    """The grid with the smallest steps for which the sum of so many sites cannot wrap. Raises RangeRefused."""
    check_numbers(clip, sites, bits)
    exponent = exponent_of(Fraction(largest_of(bits), sites) / Fraction(clip)) + 1
    while sites * most_of(clip, exponent) > largest_of(bits):
        exponent -= 1
    return Grid(clip, sites, bits, exponent)


def check_numbers(clip: float, sites: int, bits: int) -> None:
    """Raises RangeRefused for numbers of no grid."""
    if bits not in WORDS:
        raise RangeRefused(f"A sum is of {bits!r} bits", "Choose 32, or 64", path="bits")
    if type(sites) is not int or sites < 1:
        raise RangeRefused(f"A sum is of {sites!r} sites", "Choose a whole number of 1 or more", path="sites")
    if isinstance(clip, bool) or not isinstance(clip, int | float):
        raise RangeRefused(f"The clip is {kind_of(clip)}", "Choose a number", path="clip")
    if not isfinite(clip) or not LEAST <= clip <= MOST:
        raise RangeRefused(f"The clip is {clip!r}", "Choose a number from 2^-100 to 2^60", path="clip")


def most_of(clip: float, exponent: int) -> int:
    """The clip in steps of 2^-exponent, to the nearest, ties to even: as rint has it."""
    return round(Fraction(clip) * Fraction(2) ** exponent)


def largest_of(bits: int) -> int:
    return (1 << (bits - 1)) - 1


def exponent_of(x: Fraction) -> int:
    """The largest power of two in x, or the next."""
    return x.numerator.bit_length() - x.denominator.bit_length()


def floats(values: Floats) -> Floats:
    array = np.asarray(values)
    if array.dtype not in (np.float32, np.float64):
        raise ValuesRefused(f"Values are of the type {array.dtype}", "Give float32 or float64")
    return array


def chunks(n: int) -> Iterator[slice]:
    """Slices that cover n values, one after the other."""
    return (slice(at, min(at + CHUNK, n)) for at in range(0, n, CHUNK))
