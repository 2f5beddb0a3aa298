"""Prototypes of classes from several clients, and the loss that draws a sample to those of its class (FedPCL).

Tan et al., "Federated Learning from Pre-Trained Models: A Contrastive Learning Approach", NeurIPS 2022.

Shapes: n or b samples of w numbers; M classes; S sets of prototypes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Sets:
    """Prototypes (S, M, w), zeros where there is none, and present (S, M) bool: which of them exist."""

    prototypes: Tensor
    present: Tensor


def class_means(z: Tensor, labels: Tensor, classes: int, least: int) -> tuple[Tensor, Tensor]:
    """C^c (M, w), the mean of z (n, w) over the samples of each class of labels (n,), and how many there are, (M,) int64.

    Computed in float64, given in z's dtype. A class with fewer than `least` samples has zeros and the count 0: its mean would say
    too much of each of them. Raises ValueError where there is not a label for each sample.
    """
    if z.ndim != 2 or labels.shape != z.shape[:1]:
        raise ValueError(f"Samples are of shape {tuple(z.shape)}, and labels of {tuple(labels.shape)}; one for each, please")
    hot = functional.one_hot(labels, classes).double()
    count = hot.sum(0)
    means = hot.mT @ z.detach().double() / count.clamp_min(1)[:, None]
    enough = count >= least
    return (means * enough[:, None]).to(z.dtype), (count * enough).long()


def mean_prototypes(sets: Sets) -> Sets:
    """Cbar^c, the mean of C_j^c over the sets that have the class: one set, with zeros for a class that none has."""
    weight = sets.present.double()
    total = torch.einsum("sm,smw->mw", weight, sets.prototypes.double())
    mean = (total / weight.sum(0).clamp_min(1)[:, None]).to(sets.prototypes.dtype)
    return Sets(mean[None], sets.present.any(0)[None])


def log_likelihoods(z: Tensor, y: Tensor, sets: Sets, tau: float) -> Tensor:
    """The mean of log softmax_c(z . C_j^c / tau)[y] over the sets j that have the class y: (b,); 0 where none has.

    The softmax of a set is over the classes that it has. z (b, w), y (b,). Differentiable in z. Raises ValueError for a tau that
    is not positive.
    """
    if not tau > 0:
        raise ValueError(f"The temperature is {tau}; it is positive")
    has = sets.present[:, y]
    logits = (torch.einsum("bw,smw->sbm", z, sets.prototypes) / tau).masked_fill(~sets.present[:, None, :], -torch.inf)
    # A set that does not have y is left out before its logarithm, which would be infinite.
    logits = torch.where(has[:, :, None], logits, 0)
    chosen = logits.log_softmax(2).gather(2, y.expand(len(has), -1)[:, :, None]).squeeze(2)
    return (chosen * has).sum(0) / has.sum(0).clamp_min(1)


def contrast(z: Tensor, y: Tensor, mean: Sets, each: Sets, tau: float) -> Tensor:
    """The mean of L over the samples whose class has a mean prototype, a scalar; 0 where none has.

    L = - log softmax_c(z . Cbar^c / tau)[y] - (1 / |P|) sum_{j in P} log softmax_c(z . C_j^c / tau)[y], P: those of `each`
    that have y. z (b, w), y (b,); mean: one set. Raises ValueError as `log_likelihoods` does.
    """
    both = log_likelihoods(z, y, mean, tau) + log_likelihoods(z, y, each, tau)
    known = mean.present[0, y]
    return -(both * known).sum() / known.sum().clamp_min(1)


def classified(z: Tensor, mean: Tensor, present: Tensor) -> Tensor:
    """z . Cbar^c of z (b, w) for the classes that have a prototype, (M, w) and present (M,): (b, M); -inf for the others."""
    return (z @ mean.mT).masked_fill(~present, -torch.inf)
