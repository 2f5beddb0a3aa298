"""Clusters of points by k-means: as many as have the largest silhouette (Rousseeuw, J. Comput. Appl. Math. 1987), or so many.

Shapes: n points of d numbers.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from tideline.numerics.clustering.finch import firsts, ranks

STARTS = 10


def silhouette_clusters(points: Tensor, most: int, seed: int) -> Tensor:
    """Labels (n,) int64 of points (n, d), numbered from 0 in the order in which clusters first appear.

    k = 2 .. min(n - 1, most) are tried, with ten starts each, and of the largest mean silhouette the smallest k. Fewer than three
    points, or points that are all equal, are one cluster. Raises ValueError for no point, or one that is not finite.
    """
    if points.ndim != 2 or not len(points) or not bool(torch.isfinite(points).all()):
        raise ValueError(f"Points are of shape {tuple(points.shape)}; at least one row of finite numbers was expected")
    points = points.double().cpu()
    highest = min(len(points) - 1, most, len(torch.unique(points, dim=0)))
    found = [split(points, k, seed) for k in range(2, highest + 1)]
    one = (0.0, -1, torch.zeros(len(points), dtype=torch.int64))
    return max(found, key=lambda each: each[:2], default=one)[2]


def split(points: Tensor, k: int, seed: int) -> tuple[float, int, Tensor]:
    """k-means into k clusters: the mean silhouette, -k, and labels (n,). Points too near for k clusters make fewer."""
    # Imported here, since it takes a second to load and few runs need it.
    from sklearn.metrics import silhouette_score

    labels = ranks(firsts(fitted(points, k, n_init=STARTS, random_state=seed)))
    value = float(silhouette_score(points.numpy(), labels.numpy())) if int(labels.max()) > 0 else -1.0
    return value, -k, labels


def fitted(points: Tensor, k: int, **how: Any) -> Tensor:
    """Labels (n,) int64 of one call of k-means."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    # One thread: of few points several only wait for each other, and a sum in another order has other last digits.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer clusters than asked for are no news here
        return torch.from_numpy(KMeans(n_clusters=k, **how).fit(points.numpy()).labels_).long()


def clusters(points: Tensor, k: int, seed: int) -> Tensor:
    """Labels (n,) of points (n, d) in k clusters, the best of ten starts. Raises ValueError for fewer than k points."""
    return fitted(checked(points, k), k, n_init=STARTS, random_state=seed)


def regrouped(points: Tensor, k: int, labels: Tensor) -> Tensor:
    """Labels (n,) of points that have moved: k-means from the means of the clusters (n,) that they were in.

    Other starts could end in other clusters, and the difference would hide what the move was. A cluster without points begins at
    the first one.
    """
    points = checked(points, k)
    start = torch.stack([points[labels == r].mean(0) if bool((labels == r).any()) else points[0] for r in range(k)])
    return fitted(points, k, init=start.numpy(), n_init=1)


def inertia(points: Tensor, labels: Tensor) -> float:
    """sum_r 1 / (2 n_r) sum_{a, b in r} |x_a - x_b|^2, which is the sum of squared distances to the clusters' means."""
    points = points.double()
    groups = (points[labels == r] for r in torch.unique(labels))
    return sum(float(((group - group.mean(0)) ** 2).sum()) for group in groups)


def looseness(points: Tensor, labels: Tensor) -> float:
    """inertia over the total sum of squares, in [0, 1]: it has no scale. 1 for points that are all equal: no gain."""
    total = inertia(points, torch.zeros(len(points), dtype=torch.int64))
    return inertia(points, labels) / total if total > 0 else 1.0


def checked(points: Tensor, k: int) -> Tensor:
    """Points in float64 on the CPU. Raises ValueError."""
    if points.ndim != 2 or len(points) < k or not bool(torch.isfinite(points).all()):
        raise ValueError(f"Points are of shape {tuple(points.shape)}; at least {k} rows of finite numbers were expected")
    return points.double().cpu()
