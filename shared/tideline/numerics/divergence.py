"""How far apart two devices' data lie: the empirical H-divergence from a classifier's errors, or from means and variances.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024
(arXiv 2304.12422), algorithm 1; Ben-David et al., "A theory of learning from different domains", Machine Learning 79, 2010.
"""

from __future__ import annotations

import torch
from torch import Tensor

NARROW = 1e-6  # of the mean variance: added to each, so that a constant pixel is not infinitely telling


def h_divergence(error: Tensor, one_sided: bool = False) -> Tensor:
    """d in [0, 2] from the mean error of a classifier of "mine or yours" over both devices: 2 |1 - 2 error|.

    one_sided: max(0, 2 (1 - 2 error)), the classical form. Where nothing tells the two apart, the error is near 1 / 2, and noise
    alone makes the former a little larger.
    """
    d = 2 * (1 - 2 * error)
    return d.clamp(0, 2) if one_sided else d.abs().clamp(max=2)


def separability(mean: Tensor, variance: Tensor) -> Tensor:
    """d (N, N) from means and variances (N, d) of N devices' rows, as if each were Gaussian with independent coordinates.

    The best line between i and j errs with probability Phi(-Delta / 2), Delta^2 = sum_k (m_ik - m_jk)^2 / v_ijk, with v_ij the
    mean of both variances.
    """
    mean, variance = mean.double(), variance.double().clamp(min=0)
    variance = variance + NARROW * variance.mean().clamp(min=NARROW)
    rows = [((mean - m) ** 2 / ((variance + v) / 2)).sum(1) for m, v in zip(mean, variance, strict=True)]
    delta = torch.stack(rows).sqrt()
    return h_divergence(torch.special.ndtr(-delta / 2), one_sided=True)
