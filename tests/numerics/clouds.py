"""Random labelled point clouds for tests of transport, barycenters and dictionaries."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from tideline.numerics.transport.dictionary import Dictionary, one_hot_logits, soft_labels


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=dtype)


def simplex_point(size: int, seed: int) -> Tensor:
    """A vector of positive weights that sum to one."""
    return normal(size, seed=seed).softmax(0)


def labels(n: int, classes: int) -> Tensor:
    return torch.arange(n) * classes // n


def one_hot(of: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(of, classes).double()


def atoms(K: int, n: int, d: int, classes: int, seed: int, *, apart: float = 2.0) -> Dictionary:
    """K atoms of n class-ordered points about one centre a class, each atom moved by an offset of its own; soft labels."""
    of = labels(n, classes)
    centres = apart * normal(classes, d, seed=seed)
    z = centres[of] + 0.5 * normal(K, n, d, seed=seed + 1) + normal(K, 1, d, seed=seed + 2)
    y = soft_labels(one_hot_logits(of, classes, 0.9).double() + 0.3 * normal(K, n, classes, seed=seed + 3))
    return Dictionary(z, y)


def client(n: int, d: int, classes: int, seed: int, *, apart: float = 2.0) -> tuple[Tensor, Tensor]:
    """Data of a client: (n, d) and one-hot labels (n, classes) in random order."""
    of = torch.randint(classes, (n,), generator=seeded(seed + 7))
    centres = apart * normal(classes, d, seed=seed)
    return centres[of] + 0.5 * normal(n, d, seed=seed + 8) + 1.0, one_hot(of, classes)
