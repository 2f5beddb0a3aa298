"""How far apart two places are in what batch norm measured there.

Batch-norm distance of Feng et al., "Unsupervised Multi-Source Decentralized Domain Adaptation via Knowledge Distillation",
ICML 2021. Weights are named tensors as `state_dict` has them: LAYER.running_mean and LAYER.running_var, (d,) each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

MEAN, VARIANCE = ".running_mean", ".running_var"


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
