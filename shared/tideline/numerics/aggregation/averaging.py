"""Means of named tensors, one operand in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


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
