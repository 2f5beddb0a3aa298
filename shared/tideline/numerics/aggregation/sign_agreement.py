"""Means of updates masked by how far the updates agree in sign.

Tenison, Sreeramadas, Mugunthan, Oyallon, Rish, Belilovsky: Gradient Masked Averaging for Federated Learning, 2022.

Of N updates w_i of a model w, with coefficients p_i that sum to one, element by element:

    Delta_i = w_i - w        a = |(1 / N) sum_i sign(Delta_i)|        m = 1 where a >= tau, else a
    w <- w + eta_s m sum_i p_i Delta_i
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from tideline.numerics.aggregation.averaging import weighted_sum

Weights = Mapping[str, Tensor]
LARGEST = 1e15  # of a new element, either way: beyond it nobody could answer, and rounds could add up to infinity


def masked_mean(
    w: Weights, updates: Iterable[tuple[float, Weights]], tau: float, rate: float, trained: Collection[str]
) -> dict[str, Tensor]:
    """The next w. updates: (p_i, w_i), read once and one at a time; rate: eta_s; trained: the names that are masked.

    The others, such as what batch norm measures, are the plain mean. Where eta_s m is 1 the element is the mean itself, so
    that tau = 0 and eta_s = 1 give the mean bit for bit. Memory: the mean, a sum of signs and one update.
    Raises ValueError where there is no update.
    """
    votes = {name: torch.zeros(w[name].shape) for name in trained}
    seen = 0

    def counted() -> Iterator[tuple[float, Weights]]:
        nonlocal seen
        for p, update in updates:
            seen += 1
            for name, sum_of_signs in votes.items():
                sum_of_signs += (update[name] - w[name]).sign()
            yield p, update

    mean = weighted_sum(counted())
    if not seen:
        raise ValueError("A mean needs one update or more; there is none")
    for name, sum_of_signs in votes.items():
        mean[name] = moved(w[name], mean[name], rate * mask(sum_of_signs, seen, tau))
    return mean


def mask(votes: Tensor, n: int, tau: float) -> Tensor:
    """m of the sums of the signs of n updates (...,): (...,) in [0, 1].

    a >= tau is decided by whole numbers: the least k with k / n >= tau, so that rounding in another dtype moves no element.
    """
    least = next((k for k in range(n + 1) if k / n >= tau), n + 1)
    votes = votes.abs()
    return torch.where(votes >= least, 1.0, votes / n)


def moved(w: Tensor, mean: Tensor, share: Tensor) -> Tensor:
    """w + share (mean - w), in w's dtype; the mean itself where the share is 1."""
    went = (w + share * (mean - w)).clamp(-LARGEST, LARGEST).to(w.dtype)
    return torch.where(share == 1.0, mean, went)
