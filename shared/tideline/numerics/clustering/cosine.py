"""Rows compared by cosine, in float64, for which a row of zeros is at a right angle to everything; and rows laid on a plane."""

from __future__ import annotations

import torch
from torch import Tensor

NUMBERS = 1 << 22  # of both operands together, that are turned into float64 at once
TIE = 1e-14  # similarities this close differ by rounding alone, which is not the same on every machine


def unit(x: Tensor) -> Tensor:
    """Each row of x (n, d) brought to length one, (n, d) float64; zeros stay. Raises ValueError unless all are finite."""
    return x.double() / lengths(x)


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """cos(a_i, b_j) for a (n, d), b (m, d): (n, m) float64. Raises ValueError unless rows fit and are finite."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"Rows of shapes {tuple(a.shape)} and {tuple(b.shape)}; both are matrices with equally many columns")
    length_a, length_b = lengths(a), lengths(b)
    total = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    width = max(1, NUMBERS // max(1, len(a) + len(b)))  # rows may be whole models: beside the result nothing grows with d
    for at in range(0, a.shape[1], width):
        columns = slice(at, at + width)
        total.addmm_(a[:, columns].double() / length_a, (b[:, columns].double() / length_b).mT)
    return total.clamp_(-1, 1)


def nearest(similarity: Tensor) -> Tensor:
    """The first column of the largest entry of each row of (n, m), rounding apart: (n,) int64."""
    return (similarity >= similarity.amax(1, keepdim=True) - TIE).byte().argmax(1)


def lengths(x: Tensor) -> Tensor:
    """The length of each row of x (n, d): (n, 1) float64; infinite for zeros, since what it divides is to stay zero."""
    found: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64)
    if not bool(torch.isfinite(found).all()):
        raise ValueError("Rows that are compared have a number that is not finite")
    return found.masked_fill(found == 0, torch.inf)


def plane(z: Tensor) -> Tensor:
    """The first two principal components of rows (n, d): (n, 2). By whichever of covariance and Gram matrix is smaller."""
    x = (z - z.mean(0)).double()
    if x.shape[1] <= x.shape[0]:
        axes: Tensor = torch.linalg.eigh(x.mT @ x).eigenvectors[:, -2:]
        return (x @ axes).flip(1).float()
    found = torch.linalg.eigh(x @ x.mT)
    components: Tensor = found.eigenvectors[:, -2:] * found.eigenvalues[-2:].clamp_min(0).sqrt()
    return components.flip(1).float()
