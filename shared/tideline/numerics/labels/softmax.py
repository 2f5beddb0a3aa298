"""Probabilities of classes: the nearest point of the simplex, and multinomial logistic regression on soft labels.

Shapes: n points of d features, n_c classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def project(v: Tensor) -> Tensor:
    """The nearest point of the probability simplex in Euclidean distance, for each vector of (..., K).

    The projection is max(v - t, 0) with the one threshold t at which the entries sum to one. Entries are sorted in falling order
    u_1, u_2, ...; t = (u_1 + ... + u_r - 1) / r for the largest r with u_r > t (Held, Wolfe and Crowder, 1974). O(K log K).
    """
    # Moving all entries alike changes nothing, and with the largest at zero no digits are lost to a common offset.
    v = v - v.amax(dim=-1, keepdim=True)
    u = v.sort(dim=-1, descending=True).values
    r = torch.arange(1, v.shape[-1] + 1, dtype=v.dtype, device=v.device)
    t = (u.cumsum(dim=-1) - 1) / r
    last = (u > t).sum(dim=-1, keepdim=True) - 1
    return (v - t.gather(-1, last)).clamp_min(0)


@dataclass(frozen=True)
class Linear:
    """A linear classifier: weight (n_c, d), bias (n_c,)."""

    weight: Tensor
    bias: Tensor


def probabilities(linear: Linear, z: Tensor) -> Tensor:
    """softmax(W z + b) for z (n, d): (n, n_c)."""
    return (z @ linear.weight.mT + linear.bias).softmax(dim=-1)


def fit(z: Tensor, y: Tensor, *, l2: float = 1e-4, iterations: int = 500) -> Linear:
    """argmin over W, b of the mean cross-entropy of softmax(W z + b) with y, plus l2 s^2 |W|^2 / 2, for z (n, d), y (n, n_c).

    s is the root mean square of the centred features, over all of them: features in another unit, or moved, give the same
    probabilities. The bias is free. L-BFGS with a strong Wolfe line search from zero, in float64, so the result depends on
    nothing but the arguments; it is returned in z's dtype. Raises ValueError where there is no point, or one that is not finite.
    """
    if not len(z) or not bool(torch.isfinite(z).all()):
        raise ValueError("A classifier wants at least one point, and finite features")
    x, y = z.double(), y.double()
    centre = x.mean(dim=0)
    x = x - centre
    scale = float(x.square().mean().sqrt()) or 1.0
    W, b = minimised(x / scale, y, l2, iterations)
    W = W / scale
    return Linear(W.to(z.dtype), (b - W @ centre).to(z.dtype))


def minimised(x: Tensor, y: Tensor, l2: float, iterations: int) -> tuple[Tensor, Tensor]:
    """W (n_c, d) and b (n_c,) at the minimum, for features of unit scale."""
    W, b = x.new_zeros(y.shape[-1], x.shape[-1]), x.new_zeros(y.shape[-1])
    limits = {"max_iter": iterations, "max_eval": 4 * iterations, "tolerance_grad": 1e-8, "tolerance_change": 1e-12}
    search = torch.optim.LBFGS([W, b], line_search_fn="strong_wolfe", **limits)  # type: ignore[arg-type]

    def objective() -> float:
        log_h = (x @ W.mT + b).log_softmax(dim=-1)
        # y need not sum to one exactly: the gradient is that of the objective as it stands.
        residual = (log_h.exp() * y.sum(-1, keepdim=True) - y) / len(x)
        W.grad, b.grad = residual.mT @ x + l2 * W, residual.sum(0)
        return float(-(y * log_h).sum() / len(x) + l2 / 2 * W.square().sum())

    search.step(objective)  # type: ignore[no-untyped-call]
    return W, b
