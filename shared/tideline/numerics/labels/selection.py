"""Whether to trust an adapted classifier where no label is known: by what neighbours in feature space say of its changes."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS = 1024  # rows compared with all others at once


def neighbours(z: Tensor, k: int) -> Tensor:
    """The k nearest other rows of each row of z (n, d): (n, k) int64. With fewer than k + 1 rows, all the others."""
    k = min(k, len(z) - 1)
    found = []
    for at in range(0, len(z), ROWS):
        distance = torch.cdist(z[at : at + ROWS], z)
        distance[torch.arange(len(distance)), torch.arange(at, at + len(distance))] = torch.inf
        found.append(distance.topk(k, largest=False).indices)
    return torch.cat(found)


def consistency(labels: Tensor, near: Tensor) -> float:
    """The mean share of a row's neighbours near (n, k) that get its own label; labels (n,)."""
    return float((labels[near] == labels.unsqueeze(1)).double().mean()) if near.numel() else 0.0


def disagreement(a: Tensor, b: Tensor) -> float:
    """The share of rows that two classifiers label differently; labels (n,)."""
    return float((a != b).double().mean())


def evidence(adapted: Tensor, plain: Tensor, near: Tensor) -> float:
    """rho: by how much neighbours agree better after adaptation, in units of the share of labels that it changed; 0 if it changed
    none. Labels (n,), near (n, k)."""
    changed = disagreement(adapted, plain)
    return (consistency(adapted, near) - consistency(plain, near)) / changed if changed else 0.0
