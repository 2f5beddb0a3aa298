"""The losses of federated adversarial adaptation (Peng et al., ICLR 2020): eq. 4, 5, 7 and 8; and weights of sources, eq. 3.

Eq. 4 and 5 are sums of a term of the source's rows and a term of the target's, so each party computes its own: a half.

Shapes: z (n,) an identifier's logits of "source" for n rows, K classes, T (n,) scores of the mutual-information estimator;
gains (N,) of N sources, by what each does for the target's clusters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

LARGEST = 1e14  # of a number that goes on being stepped and sent


def identifier_loss(z: Tensor, *, source: bool) -> Tensor:
    """A half of eq. 4, which DI descends: -E log DI of a source's rows, -E log(1 - DI) of a target's. At DI = 1/2 log 2."""
    return -functional.logsigmoid(z if source else -z).mean()


def taken_for_source(z: Tensor) -> Tensor:
    """A half of eq. 5, which G descends, DI held: -E log DI, of a source's rows and of a target's alike."""
    return -functional.logsigmoid(z).mean()


def confusion(logits: Tensor) -> Tensor:
    """Eq. 7, which D and G descend, CI held: cross-entropy (n, K) towards the uniform distribution. Least, log K, where CI cannot
    tell classes apart.
    """
    return -logits.log_softmax(1).mean()


def mutual_information(joint: Tensor, shuffled: Tensor) -> Tensor:
    """Eq. 8: E T(p, q) - log E exp T(p, q'), of n pairs and of n that were paired anew. A lower bound; stable."""
    n = math.log(len(shuffled))
    return joint.mean() - (shuffled.logsumexp(0) - n)


def capped_information(estimate: float, n: int) -> float:
    """The estimate to report: n pairs show log n at most, and what lies above is error (McAllester, Stratos, 2020)."""
    return min(estimate, math.log(n))


def error_of(z: Tensor, *, source: bool) -> float:
    """The share of rows that the identifier takes for the other party's; a logit of zero decides nothing, and counts half."""
    wrong = z < 0 if source else z > 0
    return float((wrong.double() + 0.5 * (z == 0).double()).mean())


def a_distance(error: float) -> float:
    """2 (1 - 2 err): 2 for domains that an identifier tells apart, 0 for those that it cannot (Ben-David et al., 2007)."""
    return 2 * (1 - 2 * error)


def clipped(f: Tensor, c: float) -> Tensor:
    """Rows (n, d) shortened to an L2 norm of c, where they are longer. Differentiable."""
    lengths = torch.linalg.vector_norm(f, dim=1, keepdim=True)
    shorter: Tensor = f * (c / lengths.clamp_min(c))
    return shorter


def finite(*tensors: Tensor) -> bool:
    """Whether there is neither a NaN nor an infinity."""
    return all(bool(torch.isfinite(t).all()) for t in tensors)


def bounded(*tensors: Tensor) -> bool:
    """Whether all are numbers, none beyond 10^14 either way: what a message may hold, with room for a step."""
    return all(bool((t.abs() <= LARGEST).all()) for t in tensors)


def raw(gains: Tensor) -> Tensor:
    """w = softmax(gains), (N,): as the paper has it."""
    return gains.double().softmax(0)


def flattened(gains: Tensor) -> Tensor:
    """w = (1 + softmax(gains)) / (N + 1), (N,): each within [1, 2] / (N + 1). Of four, 0.2 + 0.2 softmax, as in the code."""
    return (1 + raw(gains)) / (len(gains) + 1)


def uniform(gains: Tensor) -> Tensor:
    """1 / N each."""
    return torch.full((len(gains),), 1 / len(gains), dtype=torch.float64)
