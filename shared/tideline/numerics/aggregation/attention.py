"""Attention between models: each goes to a mixture of all in which those near to it weigh more (FedAMP).

Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021. The attention is that of
A(x) = 1 - exp(-x / sigma) of a squared distance x, whose slope A'(x) = exp(-x / sigma) / sigma is large between models that are
near.

Shapes: N models; all in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor


def typical(distances: Tensor) -> float:
    """sigma: the median over pairs of |w_i - w_j|^2, of distances (N, N), squared; 1 where that is 0 or there is no pair.

    So a squared distance, which grows with the number of parameters, is measured in units of what is usual between these models.
    Of an even number of pairs it lies halfway between the two in the middle.
    """
    i, j = torch.triu_indices(len(distances), len(distances), 1)
    pairs = distances.double()[i, j].sort().values
    if not len(pairs):
        return 1.0
    middle = (pairs[(len(pairs) - 1) // 2] + pairs[len(pairs) // 2]) / 2
    return float(middle) or 1.0


def attention(distances: Tensor, sigma: float, alpha: float) -> Tensor:
    """xi (N, N): xi_ij = alpha A'(|w_i - w_j|^2) for j != i, and xi_ii = 1 - sum_{j != i} xi_ij. distances (N, N), squared.

    Not negative, and rows of sum one: where the others' weights would sum to more than one, that row's are divided by their sum,
    and xi_ii is 0. Symmetric off the diagonal where no row was. alpha = 0: the identity, each model alone. Raises ValueError for
    a sigma that is not positive, a negative alpha, or distances that are not square, not finite or negative.
    """
    if not sigma > 0 or not alpha >= 0:
        raise ValueError(f"sigma is {sigma} and alpha {alpha}; sigma is positive, and alpha not negative")
    if distances.ndim != 2 or len(distances) != distances.shape[1]:
        raise ValueError(f"Distances are of shape {tuple(distances.shape)}; one for each pair of models was expected")
    if not bool(torch.isfinite(distances).all()) or bool((distances < 0).any()):
        raise ValueError("Squared distances are finite, and not negative")
    others = (alpha / sigma * (-distances.double() / sigma).exp()).fill_diagonal_(0)
    others = others / others.sum(1, keepdim=True).clamp_min(1)
    return others + (1 - others.sum(1)).clamp_min(0).diag()
