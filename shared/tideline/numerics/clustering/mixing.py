"""How models are mixed: for a client by what suits its data, for a cluster by what suits its members, or by attention.

Equations and algorithms are those of Mori et al., "Federated Source-free Domain Adaptation for Classification: Weighted Cluster
Aggregation for Unlabeled Data". Attention, by which each model goes to a mixture of all in which those near to it weigh more
(FedAMP): Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021, with A(x) = 1 - exp(-x / sigma)
of a squared distance x, whose slope A'(x) = exp(-x / sigma) / sigma is large between models that are near.

Shapes: C clusters; a client's weights alpha (C,) of the soft models f~_c, and beta (2,) of its own cluster's model and of their
mean f_bar = sum_c alpha_c f~_c; N models. All weights are float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.clustering.cosine import cosines

MIXINGS = ("column", "row")
SUM = 1e-4  # by which weights may miss a sum of one


@dataclass(frozen=True)
class Mix:
    """Means of the members' weights: a (C, C), a[c', c] = mean of alpha_{k,c} over k in c'; b (C, 2), B_{c,0} and B_{c,1}."""

    a: Tensor
    b: Tensor


def cosine_confidence(z: Tensor, w: Tensor) -> Tensor:
    """I_{k,c} = mean_i max_m cos(z_i, w_m) for a client's features z (n, q) and classifier w (M, q): a float64 scalar (eq. 1).

    Raises ValueError for no sample or no class, and for numbers that are not finite.
    """
    if not len(z) or not len(w):
        raise ValueError(f"The confidence of {len(z)} samples in {len(w)} classes does not exist")
    return cosines(z, w).amax(1).mean()


def softmax_weights(scores: Tensor, temperature: float) -> Tensor:
    """softmax(scores / T) of (C,), the form of alpha (eq. 1) and beta (eq. 3): not negative, and of sum one.

    Raises ValueError for no score, a score that is not finite, or a temperature that is not positive.
    """
    if not temperature > 0:
        raise ValueError(f"The temperature is {temperature}; it is positive")
    if not scores.numel() or not bool(torch.isfinite(scores).all()):
        raise ValueError("Weights want at least one score, and finite ones")
    # The largest goes first, so that a small temperature cannot make it infinite.
    scores = scores.double()
    return ((scores - scores.amax()) / temperature).softmax(0)


def mean_weights(alphas: Sequence[Tensor], betas: Sequence[Tensor], clusters: Sequence[int], C: int) -> Mix:
    """a_{c'c} and B_{c,i}: means of alpha_k (C,) and beta_k (2,) over the clients k of each cluster (algorithm 1, line 19).

    clusters: that of each client. A cluster that no client speaks for has no say, and its soft model is its own: a row of
    zeros in a, and B = (1, 0). Raises ValueError for lists of different lengths, a cluster that does not exist, or weights of the
    wrong shape, negative, not finite, or not of sum one.
    """
    if not len(alphas) == len(betas) == len(clusters):
        raise ValueError(f"{len(alphas)} alphas and {len(betas)} betas from {len(clusters)} clients")
    if any(not 0 <= c < C for c in clusters):
        raise ValueError(f"A client is in a cluster that is not one of {C}")
    a, b = torch.zeros(C, C, dtype=torch.float64), torch.zeros(C, 2, dtype=torch.float64)
    b[:, 0] = 1
    for c in set(clusters):
        members = [k for k, cluster in enumerate(clusters) if cluster == c]
        a[c] = torch.stack([checked(alphas[k], C) for k in members]).mean(0)
        b[c] = torch.stack([checked(betas[k], 2) for k in members]).mean(0)
    return Mix(a, b)


def across(a: Tensor, mixing: str) -> Tensor:
    """A (C, C) of eq. 2, A[c', c] = A_{c'->c}, the share of f_{c'} in f~_c, from means a (C, C).

    column: A_{c'->c} = a_{c'c} / sum_{c''} a_{c''c}, so that the shares in f~_c sum to one, as the text wants them. row:
    A_{c'->c} = a_{cc'}, the means of the cluster's own members, which have that sum as they are. A cluster that would get nothing
    from any gets all from itself. Raises ValueError for another mixing.
    """
    if mixing not in MIXINGS:
        raise ValueError(f"the mixing is {mixing!r}; it is one of {', '.join(MIXINGS)}")
    A = a.double() if mixing == "column" else a.double().mT
    total = A.sum(0)
    if mixing == "column":
        A = A / total.where(total > 0, 1)
    return torch.where(total > 0, A, torch.eye(len(a), dtype=torch.float64))


def soft_weights(mix: Mix, mixing: str) -> Tensor:
    """S (C, C): f~_c = B_{c,0} f_c + B_{c,1} sum_{c'} A_{c'->c} f_{c'} (eq. 2). Rows sum to one. Raises as `across` does."""
    return mix.b[:, 0].diag() + mix.b[:, 1:] * across(mix.a, mixing).mT


def start_weights(own: int, alpha: Tensor, beta: Tensor, soft: Tensor) -> Tensor:
    """v_k (C,) with f_init = sum_c v_{k,c} f_c (eq. 8), for a client of cluster `own` with alpha (L,) and beta (2,).

    soft (L, C): S of the L soft models that alpha was measured on, as a rule C; the identity as long as f~_c = f_c. Not
    negative, and of sum one. Raises ValueError for weights as in `mean_weights`, or a cluster that does not exist.
    """
    L, C = soft.shape
    if not 0 <= own < C:
        raise ValueError(f"The client is in cluster {own}; there are {C}")
    beta = checked(beta, 2)
    v = beta[1] * (checked(alpha, L) @ soft.double())
    v[own] += beta[0]
    return v


def mixed(models: Sequence[Mapping[str, Tensor]], weights: Tensor) -> dict[str, Tensor]:
    """sum_c w_c f_c of models with the same names, weights (C,), as `weighted_sum` does it: buffers too, the maximum of counters.

    Memory: the result and one operand. Raises ValueError for no model, not one weight for each, or names that differ.
    """
    if not models or weights.shape != (len(models),):
        raise ValueError(f"{len(models)} models and weights of shape {tuple(weights.shape)}; one for each, and at least one")
    if any(model.keys() != models[0].keys() for model in models):
        raise ValueError("The models to be mixed do not have the same tensors")
    return weighted_sum(zip(weights.tolist(), models, strict=True))


def checked(given: Tensor, size: int) -> Tensor:
    """Weights (size,) in float64, of sum one to the last digit. Raises ValueError unless nearly so, or where one is negative."""
    w = given.double()
    if w.shape != (size,) or not bool((w >= 0).all()) or not abs(float(w.sum()) - 1) <= SUM:
        raise ValueError(f"Weights {w.tolist()} were expected to be {size} that sum to one, none of them negative")
    return w / w.sum()


def typical(distances: Tensor) -> float:
    """sigma: the median over pairs of |w_i - w_j|^2, of distances (N, N), squared; 1 where that is 0 or there is no pair.

    So squared distances, which grow with the number of parameters, have the unit that is usual between these models.
    """
    i, j = torch.triu_indices(len(distances), len(distances), 1)
    pairs = distances.double()[i, j].sort().values
    if not len(pairs):
        return 1.0
    middle = (pairs[(len(pairs) - 1) // 2] + pairs[len(pairs) // 2]) / 2
    return float(middle) or 1.0


def attention(distances: Tensor, sigma: float, alpha: float) -> Tensor:
    """xi (N, N): xi_ij = alpha A'(|w_i - w_j|^2) for j != i, and xi_ii = 1 - sum_{j != i} xi_ij. distances (N, N), squared.

    Not negative, and rows of sum one: where the others' weights would sum to more than one, that row's are divided by their sum,
    and xi_ii is 0. Symmetric off the diagonal where no row was. alpha = 0: the identity, each model alone. Raises ValueError for
    a sigma that is not positive, a negative alpha, or distances that are not square, not finite or negative.
    """
    if not sigma > 0 or not alpha >= 0:
        raise ValueError(f"sigma is {sigma} and alpha {alpha}; sigma is positive, and alpha not negative")
    if distances.ndim != 2 or len(distances) != distances.shape[1]:
        raise ValueError(f"Distances are of shape {tuple(distances.shape)}; one for each pair of models was expected")
    if not bool(torch.isfinite(distances).all()) or bool((distances < 0).any()):
        raise ValueError("Squared distances are finite, and not negative")
    others = (alpha / sigma * (-distances.double() / sigma).exp()).fill_diagonal_(0)
    others = others / others.sum(1, keepdim=True).clamp_min(1)
    return others + (1 - others.sum(1)).clamp_min(0).diag()
