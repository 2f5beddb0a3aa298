"""Federated adversarial adaptation (Peng et al., ICLR 2020): losses of eq. 4, 5, 7, 8, weights of sources of eq. 3, noise.

Eq. 4 and 5 are sums of a term of the source's rows and a term of the target's, so each party computes its own: a half.

Shapes: z (n,) an identifier's logits of "source" for n rows, K classes, T (n,) scores of the mutual-information estimator;
gains (N,) of N sources, by what each does for the target's clusters. Noise: the (epsilon, delta) of rows of norm 1 at most that
are released again and again with Gaussian noise, and such noise.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Size, Tensor
from torch.nn import functional

LARGEST = 1e14  # of a number that goes on being stepped and sent
KEY = 32  # bytes of a key


def identifier_loss(z: Tensor, *, source: bool) -> Tensor:
    """A half of eq. 4, which DI descends: -E log DI of a source's rows, -E log(1 - DI) of a target's. At DI = 1/2 log 2."""
    return -functional.logsigmoid(z if source else -z).mean()


def taken_for_source(z: Tensor) -> Tensor:
    """A half of eq. 5, which G descends, DI held: -E log DI, of a source's rows and of a target's alike."""
    return -functional.logsigmoid(z).mean()


def confusion(logits: Tensor) -> Tensor:
    """Eq. 7, which D and G descend, CI held: cross-entropy (n, K) towards equal probabilities; log K at least."""
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


def noise(key: bytes, number: int, shape: Size) -> Tensor:
    """Standard normal numbers, float32, of the key's stream (SHAKE-256) of this number; without the key none can be computed,
    from however many other streams. Raises ValueError for a key of other than 32 bytes."""
    if len(key) != KEY:
        raise ValueError(f"The key has {len(key)} bytes; {KEY} are needed")
    drawn = hashlib.shake_256(key + number.to_bytes(8, "big")).digest(8 * max(1, shape.numel()))
    stream = torch.frombuffer(bytearray(drawn), dtype=torch.int64)
    uniform = ((stream[: shape.numel()] >> 12).double() + 2.0**51 + 0.5) * 2.0**-52  # neither 0 nor 1, exactly
    normal: Tensor = torch.special.ndtri(uniform)
    return normal.float().view(shape)


def epsilon(releases: int, sigma: float, delta: float) -> float:
    """epsilon at delta of so many releases of a row of norm 1 at most, each with noise of deviation sigma in each number.

    One row is put in another's place, so that a release differs by 2 at most: Renyi divergence 2 alpha / sigma^2 of each, their
    sum 2 alpha T / sigma^2 (Mironov, CSF 2017), and epsilon = rho + 2 sqrt(rho log(1 / delta)), rho = 2 T / sigma^2, at the best
    alpha. Each row counts as if it were in each release. No noise: infinite. Raises ValueError for what is no number of releases,
    noise or probability.
    """
    if releases < 0 or sigma < 0 or not 0 < delta < 1:
        raise ValueError(f"{releases} releases, noise {sigma}, delta {delta}: give 0 or more, 0 or more, and between 0 and 1")
    if releases == 0:
        return 0.0
    rho = 2 * releases / sigma**2 if sigma > 0 else math.inf
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))
