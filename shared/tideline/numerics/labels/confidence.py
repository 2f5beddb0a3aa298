"""Pseudo-labels for the rows of which a model is sure, with a threshold for each class.

Shapes: n samples, M classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

NONE = -1


def confident(p: Tensor, most: float = 0.9) -> Tensor:
    """Labels (n,) int64 of outputs p (n, M): the likeliest class where its probability exceeds the class's threshold, else -1.

    A class's threshold is min(most, the median of the likeliest probabilities of its rows), so that about half of an unsure
    class's rows have a label, and all of a sure one's. The median of an even number is the mean of the two in the middle; ties
    go to the smallest class. Raises ValueError unless p is a matrix of finite numbers with at least one row.
    """
    if p.ndim != 2 or not p.numel() or not bool(torch.isfinite(p).all()):
        raise ValueError(f"Outputs are of shape {tuple(p.shape)}; at least one row of finite numbers was expected")
    p = p.double()
    top = p.amax(1)
    labels = (p == top[:, None]).int().argmax(1)
    threshold = p.new_full((p.shape[1],), most)
    for m in sorted(set(labels.tolist())):
        threshold[m] = top[labels == m].quantile(0.5).clamp(max=most)
    return labels.where(top > threshold[labels], torch.full_like(labels, NONE))
