"""Features on a common scale: by mean and spread, pooled over sites or each site's own, or by a site's own covariance.

Sun, Feng, Saenko, "Return of Frustratingly Easy Domain Adaptation", AAAI 2016; the shrinkage of a covariance: Ledoit, Wolf, "A
well-conditioned estimator for large-dimensional covariance matrices", J. Multivariate Analysis 88, 2004.

Shapes: n rows of d features.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

FLAT = 1e-7  # of a feature's mean: what spreads less is constant, as far as float32 can tell
WIDEST = 8.0  # spreads from the mean, beyond which numbers are drawn in


@dataclass(frozen=True)
class Moments:
    """count of rows; mean (d,) and variance (d,) of their features, float64. Those of all rows are the sum over sites: Chan,
    Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", COMPSTAT 1982. Unlike sums of
    squares they stay in the range of the features, and lose no digits where a mean is far from 0.
    """

    count: int
    mean: Tensor
    variance: Tensor

    def __add__(self, other: Moments) -> Moments:
        count = self.count + other.count
        if not self.count or not other.count:
            return self if self.count else other
        share, apart = other.count / count, other.mean - self.mean
        between = share * (1 - share) * apart.square()
        return Moments(count, self.mean + share * apart, (1 - share) * self.variance + share * other.variance + between)

    @property
    def spread(self) -> Tensor:
        """The standard deviation; 1 for a feature that is constant."""
        spread = self.variance.sqrt()
        return torch.where(spread > FLAT * self.mean.abs(), spread, torch.ones_like(spread))


def moments(parts: Iterable[Tensor], d: int) -> Moments:
    """Of rows in parts (n, d)."""
    zero = torch.zeros(d, dtype=torch.float64)
    found = Moments(0, zero, zero)
    for x in parts:
        if len(x):
            own = x.double()
            found += Moments(len(x), own.mean(0), own.var(0, correction=0))
    return found


def drawn_in(z: Tensor) -> Tensor:
    """Numbers of rows in spreads: beyond WIDEST they grow with their logarithm alone, so that no tail rules."""
    far = z.abs()
    return torch.where(far > WIDEST, z.sign() * (WIDEST + (1 + far - WIDEST).clamp_min(1).log()), z)


def standardised(x: Tensor, by: Moments) -> Tensor:
    """(x - mean) / spread, like x, its tails drawn in."""
    return drawn_in((x.double() - by.mean) / by.spread).to(x.dtype)


@dataclass(frozen=True)
class Whitening:
    """z = (x - mean) W: mean (d,), W (d, d) symmetric. shrinkage: the share of the mean variance in the covariance."""

    mean: Tensor
    W: Tensor
    shrinkage: float


def whitening(x: Tensor, least: float = 0.1) -> Whitening:
    """ZCA of rows x (n, d): W = ((1 - s) C + s tr(C) / d I)^(-1/2), s by Ledoit and Wolf, `least` at least.

    Costs O(n d^2 + d^3). Raises ValueError without a row.
    """
    if not len(x):
        raise ValueError("Whitening wants at least one row")
    own = x.double()
    mean = own.mean(0)
    centred = own - mean
    C = centred.mT @ centred / len(x)
    s = max(ledoit_wolf(centred, C), least)
    level = C.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    shrunk = (1 - s) * C + s * level * torch.eye(len(C), dtype=C.dtype)
    values, vectors = torch.linalg.eigh(shrunk)
    W = (vectors * values.clamp_min(FLAT * level).rsqrt()) @ vectors.mT
    return Whitening(mean, W, s)


def ledoit_wolf(centred: Tensor, C: Tensor) -> float:
    """The shrinkage in [0, 1] that least misses the covariance, of centred rows (n, d) with the covariance C (d, d)."""
    n, d = centred.shape
    level = C.diagonal().mean()
    off = (C.square().sum() / d - level.square()).clamp_min(0)  # |C - level I|^2 / d
    if not float(off) > 0:
        return 1.0
    # mean over rows of |x x' - C|^2 / d, by |x|^4 - 2 x' C x + |C|^2, whose mean is that of |x|^4 less |C|^2.
    fourth = centred.square().sum(1).square().mean()
    error = (fourth - C.square().sum()).clamp_min(0) / d / n
    return float((error / off).clamp(0, 1))


def whitened(x: Tensor, by: Whitening) -> Tensor:
    """(x - mean) W, like x."""
    return ((x.double() - by.mean) @ by.W).to(x.dtype)
