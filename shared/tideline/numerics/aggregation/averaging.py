"""Named tensors of many updates made one: weighted sums, means masked by the updates' signs, and how far models differ.

Masks: Tenison, Sreeramadas, Mugunthan, Oyallon, Rish, Belilovsky, "Gradient Masked Averaging for Federated Learning", 2022.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
LARGEST = 1e15  # of a new element, either way: beyond it sites cannot compute, and rounds could add up to infinity


def weighted_sum(terms: Iterable[tuple[float, Mapping[str, Tensor]]]) -> dict[str, Tensor]:
    """sum_i a_i w_i over named tensors, in the order given.

    Floating tensors, buffers such as running means included, are summed with the coefficients a_i in their own dtype. Whole
    numbers (`num_batches_tracked`) take the maximum: a mean of counters is no counter. Memory: the result and one operand.
    """
    total: dict[str, Tensor] = {}
    for a, weights in terms:
        for name, w in weights.items():
            if name not in total:
                total[name] = w * a if w.is_floating_point() else w.clone()
            elif w.is_floating_point():
                total[name].add_(w, alpha=a)
            else:
                torch.maximum(total[name], w, out=total[name])
    return total


def on_simplex(w: Tensor) -> Tensor:
    """Weights (..., n), none of them negative, divided by their sum; equal ones where that is 0."""
    total = w.sum(-1, keepdim=True)
    return torch.where(total > 0, w / total, 1 / max(w.shape[-1], 1))


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
    """m of sums of n signs (...,): (...,) in [0, 1]. Whole numbers decide a >= tau: another dtype's rounding moves no element."""
    least = next((k for k in range(n + 1) if k / n >= tau), n + 1)
    votes = votes.abs()
    return torch.where(votes >= least, 1.0, votes / n)


def moved(w: Tensor, mean: Tensor, share: Tensor) -> Tensor:
    """w + share (mean - w), in w's dtype; the mean itself where the share is 1."""
    went = (w + share * (mean - w)).clamp(-LARGEST, LARGEST).to(w.dtype)
    return torch.where(share == 1.0, mean, went)


def spread(models: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """Of each tensor the mean over its entries of the deviation (1 / N, float64) over models (Welford, 1962); 0 of one model."""
    n, mean, squares = 0, dict[str, Tensor](), dict[str, Tensor]()
    for model in models:
        n += 1
        for name, w in model.items():
            if name not in mean:
                mean[name], squares[name] = w.double(), torch.zeros_like(w, dtype=torch.float64)
            away = w.double() - mean[name]
            mean[name] = mean[name] + away / n
            squares[name] += away * (w.double() - mean[name])
    return {name: float((each / n).sqrt().mean()) for name, each in squares.items()}
