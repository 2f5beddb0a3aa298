"""Two terms that keep a probabilistic representation simple, and what such a representation predicts.

Nguyen, Torr, Lim, NeurIPS 2022. Shapes: n rows, m numbers of a representation, K classes, S draws. Of a row x with
the label y the encoder tells mu (m,) and sigma (m,), and z ~ N(mu, diag sigma^2). The class's reference is
N(r_mu[y], diag r_sigma[y]^2), r_sigma = softplus(r_s); C is one number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

LEAST = 1e-6  # of a deviation, so that its logarithm is finite


@dataclass(frozen=True)
class References:
    """What representations of a class are drawn to: r_mu (K, m), r_s (K, m), and C ()."""

    r_mu: Tensor
    r_s: Tensor
    C: Tensor

    @property
    def r_sigma(self) -> Tensor:
        """softplus(r_s), (K, m)."""
        return functional.softplus(self.r_s)


def length(z: Tensor, squared: bool = False) -> Tensor:
    """The mean over rows (n, m) of |z|_2, or of its square: a number."""
    squares = z.square().sum(1)
    # The root of 0 has no slope; the norm's own gradient there is 0.
    return squares.mean() if squared else torch.linalg.vector_norm(z, dim=1).mean()


def divergence(mu: Tensor, sigma: Tensor, r_mu: Tensor, r_sigma: Tensor) -> Tensor:
    """KL(N(mu, diag sigma^2) || N(r_mu, diag r_sigma^2)) of each row: (n, m) each -> (n,)."""
    each = r_sigma.log() - sigma.log() + (sigma.square() + (mu - r_mu).square()) / (2 * r_sigma.square()) - 0.5
    return each.sum(1)


def class_divergence(mu: Tensor, sigma: Tensor, y: Tensor, references: References) -> Tensor:
    """The mean over rows of the divergence of N(C mu, diag (C sigma)^2) from the reference of the row's class: a number.

    mu, sigma (n, m), y (n,). It bounds what z tells of x beyond what y does. Deviations below LEAST count as LEAST.
    """
    r = references
    ours, theirs = (r.C * sigma).clamp_min(LEAST), r.r_sigma.clamp_min(LEAST)
    return divergence(r.C * mu, ours, r.r_mu[y], theirs[y]).mean()


def log_mean_softmax(logits: Tensor) -> Tensor:
    """log of the mean over draws of the softmax: (S, n, K) -> (n, K)."""
    return logits.log_softmax(2).logsumexp(0) - math.log(len(logits))
