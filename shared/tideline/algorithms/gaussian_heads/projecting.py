"""Features on few random directions (Johnson, Lindenstrauss 1984): fewer products to send, and in private runs less noise."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

SEED = 1984  # public: everybody draws the same directions


def directions(d: int, k: int) -> Tensor | None:
    """P (d, k) float64, by which x P has the squared norm of x on average. k = 0: none, the features stay as they are."""
    if k == 0:
        return None
    drawn = torch.randn(d, k, generator=Generator().manual_seed(SEED), dtype=torch.float64)
    return drawn / math.sqrt(k)


def projected(x: Tensor, P: Tensor | None) -> Tensor:
    """Rows x (n, d) on the directions: (n, k); without directions x itself."""
    return x if P is None else x.double() @ P


def of_all_features(W: Tensor, P: Tensor | None) -> Tensor:
    """The weights (K, d) of features whose weights on the directions are W (K, k): W P'."""
    return W if P is None else W @ P.mT
