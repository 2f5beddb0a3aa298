"""Features on a common scale: by mean and spread, pooled over sites or each site's own, or by a site's own covariance.

Sun, Feng, Saenko, "Return of Frustratingly Easy Domain Adaptation", AAAI 2016; the shrinkage of a covariance: Ledoit, Wolf, "A
well-conditioned estimator for large-dimensional covariance matrices", J. Multivariate Analysis 88, 2004.

Shapes: n rows of d features. Sums are float64, so that those of sites add up to those of all rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

FLAT = 1e-6  # of the largest value of a feature: what spreads less is constant
WIDEST = 8.0  # spreads from the mean, beyond which numbers are drawn in


@dataclass(frozen=True)
class Moments:
    """count of rows; total (d,) and squares (d,) of their features, largest (d,): float64. They add up over sites."""

    count: int
    total: Tensor
    squares: Tensor
    largest: Tensor

    def __add__(self, other: Moments) -> Moments:
        largest = torch.maximum(self.largest, other.largest)
        return Moments(self.count + other.count, self.total + other.total, self.squares + other.squares, largest)

    @property
    def mean(self) -> Tensor:
        return self.total / max(self.count, 1)

    @property
    def spread(self) -> Tensor:
        """The standard deviation; 1 for a feature that is constant."""
        variance = (self.squares / max(self.count, 1) - self.mean.square()).clamp_min(0)
        spread = variance.sqrt()
        return torch.where(spread > FLAT * self.largest, spread, torch.ones_like(spread))


def moments(parts: Iterable[Tensor], d: int) -> Moments:
    """Of rows in parts (n, d)."""
    zero = torch.zeros(d, dtype=torch.float64)
    found = Moments(0, zero, zero, zero)
    for x in parts:
        own = x.double()
        found += Moments(len(x), own.sum(0), own.square().sum(0), own.abs().amax(0) if len(x) else zero)
    return found


def standardised(x: Tensor, by: Moments) -> Tensor:
    """(x - mean) / spread, like x; beyond WIDEST spreads numbers grow with their logarithm alone, so that no tail rules."""
    z = (x.double() - by.mean) / by.spread
    far = z.abs()
    return torch.where(far > WIDEST, z.sign() * (WIDEST + (1 + far - WIDEST).clamp_min(1).log()), z).to(x.dtype)


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
