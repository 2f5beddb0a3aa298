"""Points in many dimensions, seen in two."""

from __future__ import annotations

import torch
from torch import Tensor


def plane(z: Tensor) -> Tensor:
    """The first two principal components of rows (n, d): (n, 2). By whichever of covariance and Gram matrix is smaller."""
    x = (z - z.mean(0)).double()
    if x.shape[1] <= x.shape[0]:
        axes: Tensor = torch.linalg.eigh(x.mT @ x).eigenvectors[:, -2:]
        return (x @ axes).flip(1).float()
    found = torch.linalg.eigh(x @ x.mT)
    components: Tensor = found.eigenvectors[:, -2:] * found.eigenvalues[-2:].clamp_min(0).sqrt()
    return components.flip(1).float()
