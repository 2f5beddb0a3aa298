"""Knowledge vote and consensus focus: what several models of other places agree on, and how much each adds to it.

Feng et al., "Unsupervised Multi-Source Decentralized Domain Adaptation via Knowledge Distillation", ICML 2021, and its authors'
code, which marks where the two differ. Shapley, "A value for n-person games", 1953: a game's value is a function of a set of
players, given as their numbers in rising order; they are 0 .. S - 1.

Shapes: S sources, n samples, K classes. p (S, n, K): each source's probabilities of each sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import torch
from torch import Tensor
from torch.nn import functional

UNSURE = 1e-3  # weight in the paper's distillation of a sample of which no source is sure
Value = Callable[[tuple[int, ...]], float]


@dataclass(frozen=True)
class Vote:
    """What the sources agree on, sample by sample.

    label    (n,) int64, the consensus class c*
    sure     (n,) bool, u: whether any source's largest probability exceeds the gate
    support  (n,) int64, n_V: how many sources voted for c*
    mean     (n, K), pbar: the mean of the supporters' probabilities
    """

    label: Tensor
    sure: Tensor
    support: Tensor
    mean: Tensor


def finite(p: Tensor) -> Tensor:
    """p (..., K) with rows that hold a number that is none replaced by equal probabilities: a broken model knows nothing."""
    good = torch.isfinite(p).all(-1, keepdim=True)
    return torch.where(good, p, torch.full_like(p, 1 / p.shape[-1]))


def vote(p: Tensor, gate: float) -> Vote:
    """The vote of p (S, n, K): sources that are surer than the gate vote, of a sample of which none is, all do.

    A vote weighs as much as the source is sure; of equal classes the first wins. Raises ValueError where there is no source.
    """
    top, label = strongest(p)
    votes, active = cast(top, label, p.shape[-1], gate)
    chosen = votes.argmax(1)
    supports = active & (label == chosen)
    support = supports.sum(0)
    mean = (p * supports[..., None]).sum(0) / support[:, None]
    return Vote(chosen, (top > gate).any(0), support, mean)


def strongest(p: Tensor) -> tuple[Tensor, Tensor]:
    """Each source's largest probability and its class, (S, n) each. Raises ValueError where there is no source."""
    if p.ndim != 3 or not len(p):
        raise ValueError(f"Probabilities are of shape {tuple(p.shape)}; (sources, samples, classes) with a source was expected")
    top, label = p.max(2)
    return top, label


def cast(top: Tensor, label: Tensor, K: int, gate: float) -> tuple[Tensor, Tensor]:
    """The votes of each class (n, K), float64, and who cast one (S, n)."""
    sure = top > gate
    active = sure | ~sure.any(0)
    votes = torch.zeros(top.shape[1], K, dtype=torch.float64, device=top.device)
    for weight, where in zip(top.double() * active, label, strict=True):
        votes.scatter_add_(1, where[:, None], weight[:, None])
    return votes, active


def quality(top: Tensor, label: Tensor, K: int, gate: float) -> float:
    """Q = sum_x u(x) n_V(x) max_c pbar_c(x) of a set of sources, by their `strongest` (S, n); 0 of none.

    A supporter's largest probability is that of c*, so n_V max_c pbar_c is the sum of the supporters' largest: the votes for c*.
    """
    if not len(top):
        return 0.0
    votes, _ = cast(top, label, K, gate)
    return float(votes.max(1).values[(top > gate).any(0)].sum())


def qualities(top: Tensor, label: Tensor, K: int, gate: float) -> Tensor:
    """What each sample adds to `quality` (n,): of one that some source is sure of, the votes for c*, else 0. At most S."""
    votes, _ = cast(top, label, K, gate)
    return votes.max(1).values * (top > gate).any(0)


def shares(focus: Tensor, sure: float) -> Tensor:
    """Weights (S + 1,) of the target and of each source, float64, on the simplex.

    a_T = sure / (S + 1), where sure is the share of samples of which some source is sure; a_k = (1 - a_T) CF(k) / sum CF.
    Negative focus (S,) counts as 0; where none is left, sources are equal. Raises ValueError for a share that is none.
    """
    if not 0 <= sure <= 1:
        raise ValueError(f"The share of samples is {sure}; it is between 0 and 1")
    CF = focus.double().clamp_min(0)
    total = float(CF.sum())
    CF = CF / total if total > 0 else torch.full_like(CF, 1 / len(CF))
    own = sure / (len(CF) + 1)
    return torch.cat([torch.tensor([own], dtype=torch.float64), (1 - own) * CF])


def share_of_pair(uniform: Tensor) -> float:
    """l ~ Beta(2, 2) of three uniform numbers (3,): the one in the middle."""
    return float(uniform.sort().values[1])


def mixed_cross_entropy(logits: Tensor, label: Tensor, partner: Tensor, share: float, weight: Tensor) -> Tensor:
    """mean_x weight(x) CE(share 1_label + (1 - share) 1_partner, logits (n, K)), with labels, partners and weights (n,)."""
    log_h = logits.log_softmax(1)
    own, other = (functional.nll_loss(log_h, y, reduction="none") for y in (label, partner))
    return (weight * (share * own + (1 - share) * other)).mean()


def weighted_divergence(logits: Tensor, mean: Tensor, weight: Tensor) -> Tensor:
    """mean_x weight(x) KL(mean || softmax(logits)), of (n, K), (n, K) and (n,): the paper's distillation."""
    return (weight * functional.kl_div(logits.log_softmax(1), mean, reduction="none").sum(1)).mean()


def shapley(value: Value, S: int) -> Tensor:
    """phi_k = sum over sets T without k of |T|! (S - |T| - 1)! / S! (v(T + k) - v(T)): (S,) float64, from 2^S values."""
    v = {T: value(T) for size in range(S + 1) for T in combinations(range(S), size)}
    phi = torch.zeros(S, dtype=torch.float64)
    for T, worth in v.items():
        t = len(T)
        for k in set(range(S)) - set(T):
            added = v[tuple(sorted((*T, k)))] - worth
            phi[k] += factorial(t) * factorial(S - t - 1) / factorial(S) * added
    return phi


def leave_one_out(value: Value, S: int) -> Tensor:
    """v(all) - v(all without k): (S,) float64. Asks for S + 1 values."""
    everybody = tuple(range(S))
    whole = value(everybody)
    return torch.tensor([whole - value(tuple(j for j in everybody if j != k)) for k in everybody], dtype=torch.float64)
