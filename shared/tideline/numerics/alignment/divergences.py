"""How far apart two places' data are: the empirical H-divergence, and the distance of what batch norm measured.

H-divergence, from a classifier's errors or from means and variances: Wang, Hosseinalipour, Brinton, "Multi-Source to
Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024 (arXiv 2304.12422), algorithm 1; Ben-David et al., "A
theory of learning from different domains", Machine Learning 79, 2010. All pairs meet in a round-robin tournament (the circle
method).

Batch-norm distance: Feng et al., "Unsupervised Multi-Source Decentralized Domain Adaptation via Knowledge Distillation", ICML
2021; weights are named tensors as `state_dict` has them, LAYER.running_mean and LAYER.running_var, (d,) each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise

import torch
from torch import Tensor

THRESHOLDS = 257
LARGEST = 1024.0  # of a threshold on a difference of outputs
NARROW = 1e-6  # of the mean variance: added to each, so that a constant pixel is not infinitely telling
MEAN, VARIANCE = ".running_mean", ".running_var"
Pair = tuple[int, int]


def h_divergence(error: Tensor, one_sided: bool = False) -> Tensor:
    """d in [0, 2] from the mean error of a classifier of "mine or yours" over both devices: 2 |1 - 2 error|.

    one_sided: max(0, 2 (1 - 2 error)), the classical form. Where nothing tells the two apart, the error is near 1 / 2, and noise
    alone makes the former a little larger.
    """
    d = 2 * (1 - 2 * error)
    return d.clamp(0, 2) if one_sided else d.abs().clamp(max=2)


def thresholds() -> Tensor:
    """(THRESHOLDS,) float64 from -LARGEST over 0 to LARGEST: 0.06 apart near zero, farther out in steps of a share of their size.

    So scores within LARGEST that spread over a tenth or more are told apart, wherever the classifier leans.
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

    Plain: at threshold 0. calibrated: at the threshold that tells the two best apart, twice the Kolmogorov-Smirnov statistic,
    since halves that were trained on one label each lean to a side, which says nothing of the data.
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


def measured(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For each layer of batch norm mu and s = variance + mu^2, the first two moments: (2, d) float64."""
    found = {}
    for name in sorted(weights):
        if name.endswith(MEAN):
            layer = name.removesuffix(MEAN)
            mu = weights[name].double()
            found[layer] = torch.stack([mu, weights[layer + VARIANCE].double() + mu.square()])
    return found


def batch_norm_distance(target: Mapping[str, Tensor], sources: Iterable[tuple[float, Mapping[str, Tensor]]]) -> float | None:
    """sum over layers of |mu_T - sum_k a_k mu_k|^2 + |s_T - sum_k a_k s_k|^2; None for a network without batch norm.

    The a_k are divided by their sum, so that places which measured the same are at distance 0. Raises ValueError where that is 0.
    """
    own = measured(target)
    if not own:
        return None
    theirs = {layer: torch.zeros_like(moments) for layer, moments in own.items()}
    total = 0.0
    for a, weights in sources:
        total += a
        for layer, moments in measured(weights).items():
            theirs[layer] += a * moments
    if not total > 0:
        raise ValueError(f"The sources' weights sum to {total}; one of them must be above 0")
    return sum(float((moments - theirs[layer] / total).square().sum()) for layer, moments in own.items())


def days(n: int) -> tuple[tuple[Pair, ...], ...]:
    """The pairs (i, j), i < j, of each of n - 1 days, or n of an odd n, when one rests. Raises ValueError for fewer than two."""
    if n < 2:
        raise ValueError(f"A tournament wants at least two players; there are {n}")
    seats = n + n % 2  # of an odd number the last seat is empty
    return tuple(tuple(sorted(filter(lambda pair: pair[1] < n, day(seats, d)))) for d in range(seats - 1))


def day(seats: int, d: int) -> list[Pair]:
    """The pairs of a day: seat 0 stays, the others have moved on by d places round the table."""
    order = [0, *((i + d) % (seats - 1) + 1 for i in range(seats - 1))]
    pairs = [(order[i], order[seats - 1 - i]) for i in range(seats // 2)]
    return [(min(pair), max(pair)) for pair in pairs]


def blocks(n: int, count: int) -> tuple[tuple[Pair, ...], ...]:
    """The tournament in so many parts of consecutive days, as even as can be; of more parts than days the last are empty."""
    played = days(n)
    cuts = [round(k * len(played) / count) for k in range(count + 1)]
    return tuple(tuple(pair for d in played[a:b] for pair in d) for a, b in pairwise(cuts))
