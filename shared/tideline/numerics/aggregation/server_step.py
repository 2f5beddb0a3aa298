"""The server's step along clients' gradients: their weights and clipping, and one step of an optimiser in place.

GradAlign: Bartholet et al., "Non-linear Fusion in Federated Learning" (2024), eq. 8, eq. 9 and algorithm 3. Clients whose
gradients point where the others' do weigh more. A step takes one slice of a tensor at a time, so its memory is one slice's
gradient, however many numbers and clients there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.optim.adam import adam

LEAST = 1e-12  # a norm below which there is no direction
LARGEST = 1e15  # of a gradient's entry: its square is still a number in float32


def clipping(gram: Tensor, weights: Tensor, most: float) -> float:
    """What shortens sum_i w_i g_i to the norm `most`, from the gradients' inner products (N, N): in (0, 1]."""
    w = weights.double()
    norm = float((w @ gram.double() @ w).clamp(min=0).sqrt())
    return min(1.0, most / norm) if norm else 1.0


def alignment(gram: Tensor, sign: int = 1) -> Tensor:
    """softmax(sign * gamma) with gamma_i = cos(g_avg, g_i), from the gradients' inner products (N, N): (N,) float64, of sum one.

    The paper's eq. 9 has exp(-gamma), its algorithm 3 softmax(gamma); its text says that weight grows with similarity, which is
    sign = 1. A gradient without direction has the cosine 0. Raises ValueError for no gradient, or products that are not finite.
    """
    gram = gram.double()
    if not len(gram) or not bool(torch.isfinite(gram).all()):
        raise ValueError("Weights want at least one gradient, and finite ones")
    N = len(gram)
    norms, mean = gram.diag().clamp(min=0).sqrt(), (gram.sum() / N**2).clamp(min=0).sqrt()
    there = (norms >= LEAST) & (mean >= LEAST)
    cosines = torch.where(there, gram.mean(1) / (norms * mean).where(there, 1), 0.0).clamp(-1, 1)
    return (sign * cosines).softmax(0)


@dataclass(frozen=True)
class Optimised:
    """What is optimised, and the optimiser's memory: first and second moments by name (SGD has the first), and steps done."""

    theta: Mapping[str, Tensor]
    m: Mapping[str, Tensor]
    v: Mapping[str, Tensor] = field(default_factory=dict)
    steps: int = 0


def begin(theta: Mapping[str, Tensor], optimiser: str) -> Optimised:
    """Before the first step: moments of zero."""
    m, v = ({name: torch.zeros_like(each) for name, each in theta.items()} for _ in range(2))
    return Optimised(theta, m, v if optimiser == "adam" else {})


def step_(
    at: Optimised,
    gradients: Iterable[tuple[str, slice, Tensor]],
    *,
    optimiser: str,
    rate: float,
    weight_decay: float,
    momentum: float = 0.9,
    ema: float = 1.0,
) -> Optimised:
    """Adam or SGD in place along gradients (name, rows, gradient of theta[name][rows]), each row given once; others stay.

    ema: a of theta <- a theta + (1 - a) theta_before, with which the stepped values are written back (algorithm 4 of Bartholet
    et al., 2024); 1 leaves them. Weight decay is a term of the gradient. Entries beyond LARGEST count as that.
    """
    for name, rows, gradient in gradients:
        p, m = at.theta[name][rows], at.m[name][rows]
        before = p.clone() if ema != 1 else p
        g = gradient.to(p.dtype).clamp_(-LARGEST, LARGEST)
        if optimiser == "adam":
            adam_(p, g, (m, at.v[name][rows]), torch.tensor(at.steps), rate, weight_decay)
        else:  # SGD with momentum; m, its buffer, is zero before the first step
            m.mul_(momentum).add_(g).add_(p, alpha=weight_decay)
            p.sub_(m, alpha=rate)
        if ema != 1:
            p.lerp_(before, 1 - ema)
    return replace(at, steps=at.steps + 1)


def adam_(
    x: Tensor,
    g: Tensor,
    moments: tuple[Tensor, Tensor],
    taken: Tensor,
    rate: float,
    weight_decay: float = 0.0,
    fused: bool = False,
) -> None:
    """One step of Adam (Kingma, Ba, ICLR 2015) in place; fused: in one pass over the memory, with other last digits.

    taken: steps before this one. Where rows have taken different numbers of steps, the most counts.
    """
    adam(
        *([x], [g], [moments[0]], [moments[1]], [], [taken.max().float()]),
        amsgrad=False,
        beta1=0.9,
        beta2=0.999,
        lr=rate,
        weight_decay=weight_decay,
        eps=1e-8,
        maximize=False,
        foreach=False,
        fused=fused,
    )
