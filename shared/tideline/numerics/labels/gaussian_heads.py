"""A linear classifier of features from sums alone: classes are Gaussians with one covariance (Fisher's discriminant).

In one round of federated learning: FedCGS (Guan, Zhou, Gu, AAAI 2025).

Shapes: n rows of d features, K classes. Sums add up over sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tideline.numerics.labels.softmax import Linear

SHRINKAGE = 0.2
FLAT = 1e-12  # of a feature's mean square: a variance that is less is rounding
LEAST = 1e-9  # variance within classes, where classes lie in points
NEVER = float(torch.finfo(torch.float32).min)  # a class's bias


@dataclass(frozen=True)
class ClassSums:
    """count (K,) and total (K, d) of each class's rows, second (d, d) the sum of x x' over all rows; float64."""

    count: Tensor
    total: Tensor
    second: Tensor

    def __add__(self, other: ClassSums) -> ClassSums:
        return ClassSums(self.count + other.count, self.total + other.total, self.second + other.second)


def no_sums(classes: int, d: int) -> ClassSums:
    """Those of no rows."""
    zeros = [torch.zeros(shape, dtype=torch.float64) for shape in ((classes,), (classes, d), (d, d))]
    return ClassSums(*zeros)


def class_sums(x: Tensor, y: Tensor, classes: int) -> ClassSums:
    """Of rows x (n, d) with labels y (n,)."""
    own = x.double()
    total = torch.zeros(classes, own.shape[1], dtype=torch.float64).index_add_(0, y, own)
    return ClassSums(torch.bincount(y, minlength=classes).double(), total, own.mT @ own)


def heads(sums: ClassSums, shrinkage: float = SHRINKAGE) -> Linear:
    """W = Sigma^-1 mu, b = -mu Sigma^-1 mu / 2 + log prior, float64.

    Sigma is the covariance within classes, of features in units of their spread over all rows, shrunk to its mean variance. So no
    scale of a feature matters; a constant one has no weight. A class without rows is never predicted: its bias is the least of
    floats. Raises ValueError where no class has two rows, or sums are not those of rows.
    """
    n, there = sums.count.sum(), sums.count > 0
    if float(sums.count.max()) < 2:
        raise ValueError("Gaussian heads want a class with two rows")
    centre = sums.total.sum(0) / n
    scatter = sums.second - n * centre[:, None] * centre
    spread, still = spreads(scatter.diagonal() / n, sums.second.diagonal() / n)
    mu = (sums.total / sums.count.clamp_min(1)[:, None] - centre) / spread * there[:, None]
    within = scatter / n / spread / spread[:, None] - mu.mT @ (sums.count[:, None] * mu) / n
    W = weights(mu, within, shrinkage).masked_fill(still, 0.0)
    b = -(mu * W).sum(1) / 2 + (sums.count / n).clamp_min(torch.finfo(torch.float64).tiny).log()
    if not bool(torch.isfinite(W).all()):
        raise ValueError("The sums are not those of rows")
    W = W / spread
    return Linear(W, torch.where(there, b - W @ centre, torch.full_like(b, NEVER)))


def spreads(variance: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
    """Standard deviations (d,), 1 for what is constant but for rounding; and which are constant. square: mean squares."""
    still = variance <= FLAT * square
    return torch.where(still, torch.ones_like(variance), variance.clamp_min(0).sqrt()), still


def weights(mu: Tensor, within: Tensor, shrinkage: float) -> Tensor:
    """mu Sigma^-1 (K, d), Sigma: the covariance `within` (d, d), shrunk.

    Sums with noise may be those of no rows: directions in which their variance is negative then have none.
    """
    level = within.diagonal().mean().clamp_min(LEAST)
    evenly = shrinkage * level * torch.eye(len(within), dtype=within.dtype)
    sigma = (1 - shrinkage) * within + evenly
    if int(torch.linalg.cholesky_ex(sigma).info) and bool(torch.isfinite(within).all()):
        values, vectors = torch.linalg.eigh(within)
        if float(values[0]) < -LEAST * float(level):
            sigma = (1 - shrinkage) * (vectors * values.clamp(min=0)) @ vectors.mT + evenly
    found: Tensor = torch.linalg.solve_ex(sigma, mu.mT).result
    return found.mT
