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


@dataclass(frozen=True)
class ClassSums:
    """count (K,) and total (K, d) of each class's rows, second (d, d) the sum of x x' over all rows; float64."""

    count: Tensor
    total: Tensor
    second: Tensor

    def __add__(self, other: ClassSums) -> ClassSums:
        return ClassSums(self.count + other.count, self.total + other.total, self.second + other.second)


def class_sums(x: Tensor, y: Tensor, classes: int) -> ClassSums:
    """Of rows x (n, d) with labels y (n,)."""
    own = x.double()
    total = torch.zeros(classes, own.shape[1], dtype=torch.float64).index_add_(0, y, own)
    return ClassSums(torch.bincount(y, minlength=classes).double(), total, own.mT @ own)


def heads(sums: ClassSums, shrinkage: float = SHRINKAGE) -> Linear:
    """W = Sigma^-1 mu, b = -mu Sigma^-1 mu / 2 + log prior, float64.

    Sigma is the covariance within classes, shrunk to its mean variance.
    A class without rows is never predicted: its bias is the least float. Raises ValueError where no class has two rows.
    """
    n, there = sums.count.sum(), sums.count > 0
    if float(sums.count.max()) < 2:
        raise ValueError("Gaussian heads want a class with two rows")
    mu = sums.total / sums.count.clamp_min(1)[:, None]
    within = (sums.second - mu.mT @ (sums.count[:, None] * mu)) / n
    level = within.diagonal().mean().clamp_min(torch.finfo(torch.float32).tiny)
    sigma = (1 - shrinkage) * within + shrinkage * level * torch.eye(len(within), dtype=within.dtype)
    W = torch.linalg.solve(sigma, mu.mT).mT
    b = -(mu * W).sum(1) / 2 + (sums.count / n).clamp_min(torch.finfo(torch.float64).tiny).log()
    return Linear(W, torch.where(there, b, torch.full_like(b, torch.finfo(torch.float32).min)))
