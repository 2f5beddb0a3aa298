"""Releases under noise on a grid, which closes the side channel of floating-point noise (Mironov, CCS 2012)."""

from __future__ import annotations

from math import frexp, isfinite, ldexp, sqrt
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tideline.numerics.privacy.discrete import discrete_gaussian, discrete_laplace
from tideline.numerics.privacy.streams import Stream

V = TypeVar("V", NDArray[np.floating], Tensor)
BITS = 30  # the grid's step is 2^-BITS of the sensitivity, or of the noise where that is larger, up to a factor of two
LARGEST = 2.0**52


def gaussian(values: V, sensitivity: float, noise: float, stream: Stream) -> V:
    """Values with Gaussian noise of noise * sensitivity on a grid; sensitivity is in L2. NaN, infinity and too large are refused.

    The guarantee: neighbours x, x' have |x - x'| <= S. Rounding to a grid of step g moves each of d values by g/2 at most, so
    the rounded ones are S + g sqrt(d) apart or less. The noise is of `noise` times that, so the multiplier holds as stated.
    With g <= 2^-30 S, or 2^-30 noise S where that is larger, this adds little.
    Dividing by g, a power of two, and whole numbers up to
    2^53 are exact in float64; a rounding to float32 comes after the noise and reads nothing of x.
    A discrete Gaussian of sigma steps differs from a rounded continuous one, which is as private as a continuous one, by
    a KL divergence below (24 sigma^2)^-2 a value: 2^-129 at sigma = 2^30.
    """
    positive(sensitivity=sensitivity, noise=noise)
    array = as_float64(values)
    step = grid(sensitivity * max(1.0, noise))
    whole = rounded(array, step)
    sigma = noise * (sensitivity / step + sqrt(array.size)) * (1 + 2.0**-50)
    drawn = discrete_gaussian(sigma, array.size, stream).reshape(array.shape)
    result = (whole + drawn).astype(np.float64) * step
    if isinstance(values, Tensor):
        return torch.from_numpy(result).to(values)
    return result.astype(values.dtype)


def geometric(values: NDArray[np.int64], sensitivity: int, scale: int, stream: Stream) -> NDArray[np.int64]:
    """Counts with discrete Laplace noise of sensitivity * scale: 1/scale-differentially private; sensitivity is in L1."""
    positive(sensitivity=sensitivity, scale=scale)
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"Counts are of the type {array.dtype}; give whole numbers")
    drawn = discrete_laplace(sensitivity * scale, array.size, stream)
    return array.astype(np.int64) + drawn.reshape(array.shape)


def positive(**numbers: float) -> None:
    """Raises ValueError for a number that is not finite, or not above zero."""
    for name, value in numbers.items():
        if not (isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value}; give a finite number above 0")


def grid(scale: float) -> float:
    """The step of the grid: a power of two, 2^-BITS of the scale up to a factor of two."""
    return ldexp(0.5, frexp(scale)[1] - BITS)


def rounded(array: NDArray[np.float64], step: float) -> NDArray[np.int64]:
    """Values in steps of the grid. Raises ValueError for NaN, infinity, and what is too large for it."""
    if not np.isfinite(array).all():
        raise ValueError("A value to be released is NaN or infinite; clip the values first")
    if array.size and float(np.abs(array).max()) >= LARGEST * step:
        raise ValueError(f"A value to be released is {LARGEST * step:.3g} or more, too large for its grid; clip the values first")
    return np.rint(array / step).astype(np.int64)


def as_float64(values: NDArray[np.floating] | Tensor) -> NDArray[np.float64]:
    """An array of floats, on the processor."""
    array = values.detach().cpu().double().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if isinstance(values, Tensor) and not values.is_floating_point():
        raise ValueError(f"Values to be released are of the type {values.dtype}; give floats, or `geometric` whole numbers")
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"Values to be released are of the type {array.dtype}; give floats, or `geometric` whole numbers")
    return array.astype(np.float64)
