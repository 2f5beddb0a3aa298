"""Weights of sources by what each does for a target's clusters (Peng et al., ICLR 2020, eq. 3 and its authors' code).

Shapes: N sources; all in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor


def raw(gains: Tensor) -> Tensor:
    """w = softmax(gains), (N,): as the paper has it."""
    return gains.double().softmax(0)


def flattened(gains: Tensor) -> Tensor:
    """w = (1 + softmax(gains)) / (N + 1), (N,): each within [1, 2] / (N + 1). Of four, 0.2 + 0.2 softmax, as in the code."""
    return (1 + raw(gains)) / (len(gains) + 1)


def uniform(gains: Tensor) -> Tensor:
    """1 / N each."""
    return torch.full((len(gains),), 1 / len(gains), dtype=torch.float64)
