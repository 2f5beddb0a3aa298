"""GradAlign: clients whose gradients point where the others' do weigh more.

Bartholet et al., "Non-linear Fusion in Federated Learning" (2024), eq. 8, eq. 9 and algorithm 3.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-12  # a norm below which there is no direction


def clipping(gram: Tensor, weights: Tensor, most: float) -> float:
    """What shortens sum_i w_i g_i to the norm `most`, from the gradients' inner products (N, N): in (0, 1]."""
    w = weights.double()
    norm = float((w @ gram.double() @ w).clamp(min=0).sqrt())
    return min(1.0, most / norm) if norm else 1.0


def alignment(gram: Tensor, sign: int = 1) -> Tensor:
    """softmax(sign * gamma) with gamma_i = cos(g_avg, g_i), from the gradients' inner products (N, N): (N,) float64, of sum one.

    The paper's eq. 9 has exp(-gamma), its algorithm 3 softmax(gamma); its text says that weight grows with similarity, which is
    sign = 1. A gradient without direction has the cosine 0. Raises ValueError for no gradient, or products that are not finite.
    """
    gram = gram.double()
    if not len(gram) or not bool(torch.isfinite(gram).all()):
        raise ValueError("Weights want at least one gradient, and finite ones")
    N = len(gram)
    norms, mean = gram.diag().clamp(min=0).sqrt(), (gram.sum() / N**2).clamp(min=0).sqrt()
    there = (norms >= LEAST) & (mean >= LEAST)
    cosines = torch.where(there, gram.mean(1) / (norms * mean).where(there, 1), 0.0).clamp(-1, 1)
    return (sign * cosines).softmax(0)
