"""How far apart two devices' data lie: the empirical H-divergence from a classifier's errors, or from means and variances.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024
(arXiv 2304.12422), algorithm 1; Ben-David et al., "A theory of learning from different domains", Machine Learning 79, 2010.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

THRESHOLDS = 257
LARGEST = 1024.0  # of a threshold on a difference of outputs
NARROW = 1e-6  # of the mean variance: added to each, so that a constant pixel is not infinitely telling


def h_divergence(error: Tensor, one_sided: bool = False) -> Tensor:
    """d in [0, 2] from the mean error of a classifier of "mine or yours" over both devices: 2 |1 - 2 error|.

    one_sided: max(0, 2 (1 - 2 error)), the classical form. Where nothing tells the two apart, the error is near 1 / 2, and noise
    alone makes the former a little larger.
    """
    d = 2 * (1 - 2 * error)
    return d.clamp(0, 2) if one_sided else d.abs().clamp(max=2)


def thresholds() -> Tensor:
    """(THRESHOLDS,) from -LARGEST over 0 to LARGEST, float64: dense near zero, and farther out in steps of a share of their size.

    Near zero they are 0.06 apart. So scores are told apart that spread over a tenth and more and lie within LARGEST, wherever the
    classifier leans; of smaller and of larger ones only those of which zero lies in between.
    """
    above = torch.linspace(0, math.asinh(LARGEST), THRESHOLDS // 2 + 1, dtype=torch.float64)[1:].sinh()
    return torch.cat([-above.flip(0), torch.zeros(1, dtype=torch.float64), above])


def exceeding(score: Tensor) -> Tensor:
    """(THRESHOLDS,): the share of scores (n,) above each of the `thresholds`; one that is equal counts half."""
    ordered, at = score.double().sort().values, thresholds()
    ranks = torch.searchsorted(ordered, at), torch.searchsorted(ordered, at, right=True)
    return 1 - (ranks[0] + ranks[1]).double() / (2 * max(len(score), 1))


def from_curves(mine: Tensor, theirs: Tensor, calibrated: bool = True, one_sided: bool = False) -> Tensor:
    """d of a pair from `exceeding` (THRESHOLDS,) of each device's rows, where a score is the output for the other less its own.

    Plain, the error is that at threshold 0, as the classifier says. calibrated: at the threshold that tells the two best apart,
    which is twice the Kolmogorov-Smirnov statistic of their scores. Halves that were trained on one label each lean to a side,
    from one exchange to the next to another, and what they lean by says nothing of the data.
    """
    error = (mine + theirs.flip(0)) / 2
    return h_divergence(error, one_sided).max() if calibrated else h_divergence(error[THRESHOLDS // 2], one_sided)


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
