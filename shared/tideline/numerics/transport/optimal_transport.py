"""Optimal transport between point clouds of equal weights.

Shapes: n, m points of the two clouds; d features; n_c classes; "..." any batch of problems, solved one by one or together.
Equations are those of Fernandes Montesuma et al., "Dataset Dictionary Learning in a Wasserstein Space for Federated Domain
Adaptation", 2024.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

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
    """Network simplex, one problem after the other; large ones on as many threads as torch may use.

    Small ones are solved before a thread has started, and torch's own threads, which wait by spinning, would stand in their way.
    """
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
        if sweep % CHECK_EVERY == 0 and bool((rows(log_k + f + g) - 1 / n).abs().sum(-1).le(MARGINAL).all()):
            break
    return (log_k + f + g).exp()


def rows(log_plan: Tensor) -> Tensor:
    """Sums of the rows, (..., n)."""
    return log_plan.exp().sum(-1)
