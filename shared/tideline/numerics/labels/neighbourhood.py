"""Soft neighbourhood density: how good a classifier is, seen from its outputs on data without labels.

Saito, Kim, Teterwak, Sclaroff, Darrell, Saenko, "Tune it the Right Way: Unsupervised Validation of Domain Adaptation via Soft
Neighborhood Density", ICCV 2021; equations 5 and 6 of Mori et al., appendix B.2.

Shapes: n samples, c classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tideline.numerics.clustering.cosine import unit


def soft_density(p: Tensor, temperature: float = 0.05, block: int = 1024) -> float:
    """S = - mean_i sum_j P_ij log P_ij with P = softmax(Q / T) by rows and Q_ij = cos(p_i, p_j), j != i (eq. 5-6).

    For softmax outputs p (n, c). Between 0 and log(n - 1), which n equal rows reach: a classifier that says the same of
    everything looks best (see `collapsed`). 0 for fewer than two rows. Time O(n^2), in float64; memory: a copy of p and tiles of
    block^2. Raises ValueError unless temperature and block are positive, and outputs a matrix of finite numbers.
    """
    if not temperature > 0 or block < 1:
        raise ValueError(f"The temperature is {temperature} and the block {block}; both are positive")
    if p.ndim != 2:
        raise ValueError(f"Outputs are of shape {tuple(p.shape)}; a row for each sample was expected")
    u = unit(p)
    if len(u) < 2:
        return 0.0
    total = sum(float(entropies(u, at, block, temperature).sum()) for at in range(0, len(u), block))
    return total / len(u)


def entropies(u: Tensor, at: int, block: int, temperature: float) -> Tensor:
    """The entropies of the rows of P from `at` on, (block,), of unit rows u (n, c), one tile of columns after the other.

    With x_j = (Q_ij - 1) / T the entropy is log sum_j e^x_j - sum_j x_j e^x_j / sum_j e^x_j. The sums are kept divided by
    e^top, where top is the largest x so far.
    """
    rows = u[at : at + block]
    top = u.new_full((len(rows), 1), -2 / temperature)
    mass, moment = torch.zeros_like(top), torch.zeros_like(top)
    for other in range(0, len(u), block):
        x = (rows @ u[other : other + block].mT).sub_(1).div_(temperature)
        if other == at:
            x.fill_diagonal_(-torch.inf)
        higher = torch.maximum(top, x.amax(1, keepdim=True))
        e = (x - higher).exp_()
        if other == at:
            x.fill_diagonal_(0)  # with e = 0 there: no 0 times infinity
        shrunk = (top - higher).exp_()
        mass = mass * shrunk + e.sum(1, keepdim=True)
        moment = moment * shrunk + x.mul_(e).sum(1, keepdim=True)
        top = higher
    return (top + mass.log() - moment / mass).flatten()


def collapsed(p: Tensor, share: float = 0.95) -> bool:
    """Whether more than that share of the rows of p (n, c) have the same class as their likeliest; never for no rows."""
    return bool(len(p)) and int(p.argmax(1).bincount().amax()) / len(p) > share
