"""The Wasserstein barycenter of labelled point clouds, with free support.

Shapes: K atoms of n points; n_b points of the barycenter; d features; n_c classes. Equations as in transport.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from tideline.numerics.transport.optimal_transport import carried, labelled, plan, squared_distances, transport_cost


@dataclass(frozen=True)
class Barycenter:
    """B(alpha; P): its points and what made them.

    z (n_b, d) and y (n_b, n_c), labels on the simplex. plans (K, n, n_b), from each atom to the barycenter, of which z and y are
    the maps (eq. 13); zero for atoms of weight zero. objective: sum_k alpha_k OT(P_k, B) before each change of the support, which
    never rises. beta (): the weight of the labels in the cost (eq. 6).
    """

    z: Tensor
    y: Tensor
    plans: Tensor
    objective: tuple[float, ...]
    beta: Tensor


def barycenter(
    z: Tensor,
    y: Tensor,
    alpha: Tensor,
    n_b: int,
    rng: Generator,
    *,
    start: str = "atom",
    beta: float | None = None,
    entropy: float = 0.0,
    iterations: int = 10,
    tol: float = 1e-4,
) -> Barycenter:
    """argmin_B sum_k alpha_k OT(P_k, B) (eq. 5) with the labelled cost, by turns of plans and barycentric maps (eq. 13).

    z (K, n, d), y (K, n, n_c) on the simplex, alpha (K,) on the simplex. start: "atom", the points of the atom with the largest
    weight, drawn class by class where n_b is not n; or "normal", N(0, 1) with balanced labels. rng serves the start alone. Ends
    after so many iterations, or when no point moves by more than tol times the largest distance seen at the start.

    beta None: the largest feature cost at the start, kept to the end. A beta that followed the support would be another objective
    in each iteration, and neither its descent nor the end of the iterations could be promised. Atoms of weight zero take no part
    and cost nothing. Raises ValueError for weights that are all zero, for an unknown start, and for a cost that is not finite.
    """
    active = alpha > 0
    if not bool(active.any()):
        raise ValueError("The weights of the barycenter are all zero")
    z_P, y_P, a = (z, y, alpha) if bool(active.all()) else (z[active], y[active], alpha[active])
    z_B, y_B = starting(z_P, y_P, a, n_b, rng, start)
    objective: list[float] = []
    for i in range(max(iterations, 1)):
        cost = squared_distances(z_P, z_B)
        if i == 0:
            scale = cost.amax()
            weight = scale if beta is None else scale.new_tensor(beta)
        cost = labelled(cost, y_P, y_B, weight)
        plans = plan(cost, entropy)
        objective.append(float(a @ transport_cost(cost, plans)))
        before, z_B, y_B = z_B, mapped(plans, z_P, a), mapped(plans, y_P, a)
        if bool((z_B - before).square().sum(-1).amax() <= tol**2 * scale):
            break
    return Barycenter(
        z=z_B, y=y_B, plans=plans if len(a) == len(alpha) else spread(plans, active), objective=tuple(objective), beta=weight
    )


def mapped(plans: Tensor, values: Tensor, alpha: Tensor) -> Tensor:
    """n_B sum_k alpha_k plan_k^T values_k (eq. 13): plans (K, n, n_b), values (K, n, d), alpha (K,) -> (n_b, d).

    One product of matrices, the atoms' points below each other. Not for autograd, to which entries of zero would be lost.
    """
    n_b = plans.shape[-1]
    weights = (n_b * alpha)[:, None, None] * plans
    return carried(weights.reshape(-1, n_b).mT, values.reshape(-1, values.shape[-1]))


def spread(plans: Tensor, active: Tensor) -> Tensor:
    """Plans of the active atoms at their places among all; the others' are zero."""
    whole = plans.new_zeros(len(active), *plans.shape[1:])
    whole[active] = plans
    return whole


def starting(z: Tensor, y: Tensor, alpha: Tensor, n_b: int, rng: Generator, start: str) -> tuple[Tensor, Tensor]:
    """The first support (n_b, d) and its labels (n_b, n_c)."""
    if start == "atom":
        k = int(alpha.argmax())
        rows = torch.arange(n_b) if n_b == z.shape[1] else balanced_rows(y[k], n_b, rng)
        return z[k, rows.to(z.device)], y[k, rows.to(z.device)]
    if start == "normal":
        noise = torch.randn(n_b, z.shape[-1], generator=rng, dtype=z.dtype, device=rng.device)
        return noise.to(z.device), torch.eye(y.shape[-1], dtype=y.dtype, device=y.device)[balanced_classes(n_b, y.shape[-1])]
    raise ValueError(f"start is {start!r}; it is 'atom' or 'normal'")


def balanced_classes(n: int, classes: int) -> Tensor:
    """n classes in order, each as often as any other, or once more: (n,)."""
    return torch.arange(n) * classes // n


def balanced_rows(y: Tensor, n: int, rng: Generator) -> Tensor:
    """n rows of soft labels (m, n_c), balanced over the classes that are likeliest somewhere, in the order of the classes: (n,).

    No row comes twice before all of its class have come once: equal points would stay one point.
    """
    likeliest = y.argmax(-1).cpu()
    present = torch.bincount(likeliest).nonzero().flatten()
    wanted = torch.bincount(balanced_classes(n, len(present)), minlength=len(present))
    return torch.cat([cycled((likeliest == c).nonzero().flatten(), int(q), rng) for c, q in zip(present, wanted, strict=True)])


def cycled(rows: Tensor, n: int, rng: Generator) -> Tensor:
    """n of the rows in random order, all of them before any comes again."""
    shuffled = rows[torch.randperm(len(rows), generator=rng, device=rng.device).cpu()]
    return shuffled.repeat(-(-n // len(rows)))[:n]
