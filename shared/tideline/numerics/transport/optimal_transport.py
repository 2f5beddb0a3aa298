"""Optimal transport between labelled point clouds of equal weights, and their Wasserstein barycenter with free support.

Equations are those of Fernandes Montesuma et al., "Dataset Dictionary Learning in a Wasserstein Space for Federated Domain
Adaptation", 2024.

Shapes: n, m points of two clouds; K atoms of n points; n_b points of the barycenter; d features; n_c classes; "..." any batch
of problems, solved one by one or together.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

PIVOTS = 10**9  # of the network simplex: an end that no problem reaches
LARGE = 1 << 17  # costs of a problem from which on a thread pays
SPARSE = 16  # entries for each that is not zero, from which on a plan is taken as sparse
SWEEPS, CHECK_EVERY, MARGINAL = 1000, 10, 1e-6


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """|a_i - b_j|^2 for a (..., n, d) and b (..., m, d): (..., n, m), never negative, differentiable.

    |a|^2 + |b|^2 - 2 ab, one matrix product. Both clouds are first moved by the centre of b, which changes no distance: far from
    the origin the three terms would cancel to nothing in float32.
    """
    centre = b.mean(dim=-2, keepdim=True)
    a, b = a - centre, b - centre
    lengths = torch.linalg.vecdot(a, a).unsqueeze(-1) + torch.linalg.vecdot(b, b).unsqueeze(-2)
    distances: Tensor = (lengths - 2 * (a @ b.mT)).clamp_min(0)
    return distances


def ground_cost(
    z_p: Tensor, z_q: Tensor, y_p: Tensor | None = None, y_q: Tensor | None = None, beta: float | Tensor | None = None
) -> Tensor:
    """C_ij = |z_i - z_j|^2 + beta |y_i - y_j|^2 (eq. 6) for z (..., n, d), (..., m, d) and y (..., n, n_c), (..., m, n_c).

    Without labels on either side, the squared distance of the features. beta None: the largest feature cost of the whole batch,
    as a constant, so that no path between two classes is cheaper than one within a class.
    """
    return labelled(squared_distances(z_p, z_q), y_p, y_q, beta)


def labelled(feature_cost: Tensor, y_p: Tensor | None, y_q: Tensor | None, beta: float | Tensor | None = None) -> Tensor:
    """Eq. 6 from feature costs (..., n, m) that are known already."""
    if y_p is None or y_q is None:
        return feature_cost
    weight = feature_cost.detach().amax() if beta is None else beta
    return feature_cost + weight * squared_distances(y_p, y_q)


def transport_cost(cost: Tensor, plan: Tensor) -> Tensor:
    """<C, plan> (eq. 4) of (..., n, m): (...). The gradient flows through the cost alone: the plan is the cost's minimiser, so
    that by the envelope theorem its own change adds nothing."""
    return (cost * plan.detach()).sum(dim=(-2, -1))


def plan(cost: Tensor, entropy: float = 0.0) -> Tensor:
    """The cheapest way to move 1/n at each row to 1/m at each column, for a cost (n, m) or a batch (..., n, m): same shape.

    entropy 0: exact, by the network simplex (eq. 2), on the CPU whatever the device. entropy > 0: Sinkhorn's iterations in the
    log domain (Cuturi, 2013) with regularisation entropy * mean of the cost, on the cost's device, until the rows' marginals are
    within 1e-6 in total, or 1000 times; the columns' are exact. Carries no gradient. Raises ValueError for a cost that is not
    finite.
    """
    cost = cost.detach()
    if not bool(torch.isfinite(cost).all()):
        raise ValueError("The ground cost is not finite: features overflowed, or hold NaN. Scale them, or take a smaller step")
    if entropy < 0:
        raise ValueError(f"entropy is {entropy}; it is zero (exact) or positive")
    return sinkhorn(cost, entropy) if entropy else exact(cost)


def carried(plan: Tensor, x: Tensor) -> Tensor:
    """plan @ x for (n, m), (m, d): (n, d). An exact plan has at most n + m - 1 entries, so that on the CPU what is not zero is
    visited alone: a hundredth of the work of a dense product. A graphics processor is faster with the dense one."""
    if plan.is_cuda or SPARSE * int(plan.count_nonzero()) > plan.numel():
        return plan @ x
    moved: Tensor = torch.sparse.mm(plan.to_sparse(), x)
    return moved


def exact(cost: Tensor) -> Tensor:
    """Network simplex, one problem after the other; large ones, which outlast a thread's start, on as many as torch may use."""
    n, m = cost.shape[-2:]
    problems = cost.reshape(-1, n, m).double().cpu().numpy()
    if len(problems) == 1 or n * m < LARGE or torch.get_num_threads() == 1:
        plans = [network_simplex(c) for c in problems]
    else:
        with ThreadPoolExecutor(min(len(problems), torch.get_num_threads())) as pool:
            plans = list(pool.map(network_simplex, problems))
    return torch.from_numpy(np.stack(plans)).to(cost).view(cost.shape)


def network_simplex(cost: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """One problem (n, m), in float64. Costs are brought into [0, 1], which changes no plan, since the solver's tolerances are
    absolute: tiny costs would all be the same to it."""
    import ot  # type: ignore[import-untyped,unused-ignore]  # here, since it takes more than a second to load

    n, m = cost.shape
    low = cost.min()
    cost = (cost - low) / ((cost.max() - low) or 1.0)
    solved: npt.NDArray[np.float64] = ot.emd(np.full(n, 1 / n), np.full(m, 1 / m), cost, numItermax=PIVOTS)
    return solved


def sinkhorn(cost: Tensor, entropy: float) -> Tensor:
    """Entropic plans of a batch, all in one: log plan = log K + f + g with log K = -cost / regularisation."""
    n, m = cost.shape[-2:]
    tiny = torch.finfo(cost.dtype).tiny
    log_k = -cost / (entropy * cost.mean(dim=(-2, -1), keepdim=True)).clamp_min(tiny)
    g = cost.new_zeros(*cost.shape[:-2], 1, m)
    log_n, log_m = float(np.log(n)), float(np.log(m))
    for sweep in range(1, SWEEPS + 1):
        f = -log_n - torch.logsumexp(log_k + g, dim=-1, keepdim=True)
        g = -log_m - torch.logsumexp(log_k + f, dim=-2, keepdim=True)
        if sweep % CHECK_EVERY == 0 and bool(((log_k + f + g).exp().sum(-1) - 1 / n).abs().sum(-1).le(MARGINAL).all()):
            break
    return (log_k + f + g).exp()


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
    if len(a) < len(alpha):
        plans = plans.new_zeros(len(alpha), *plans.shape[1:]).index_copy_(0, active.nonzero().flatten(), plans)
    return Barycenter(z=z_B, y=y_B, plans=plans, objective=tuple(objective), beta=weight)


def mapped(plans: Tensor, values: Tensor, alpha: Tensor) -> Tensor:
    """n_B sum_k alpha_k plan_k^T values_k (eq. 13): plans (K, n, n_b), values (K, n, d), alpha (K,) -> (n_b, d).

    One product of matrices, the atoms' points below each other. Not for autograd, to which entries of zero would be lost.
    """
    n_b = plans.shape[-1]
    weights = (n_b * alpha)[:, None, None] * plans
    return carried(weights.reshape(-1, n_b).mT, values.reshape(-1, values.shape[-1]))


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
    """n rows (n,) of soft labels (m, n_c), balanced over the likeliest classes, in their order; each once before any twice."""
    likeliest = y.argmax(-1).cpu()
    present = torch.bincount(likeliest).nonzero().flatten()
    wanted = torch.bincount(balanced_classes(n, len(present)), minlength=len(present))
    return torch.cat([cycled((likeliest == c).nonzero().flatten(), int(q), rng) for c, q in zip(present, wanted, strict=True)])


def cycled(rows: Tensor, n: int, rng: Generator) -> Tensor:
    """n of the rows in random order, all of them before any comes again."""
    shuffled = rows[torch.randperm(len(rows), generator=rng, device=rng.device).cpu()]
    return shuffled.repeat(-(-n // len(rows)))[:n]
