"""Clusters of points by k-means, as many as have the largest silhouette (Rousseeuw, J. Comput. Appl. Math. 1987).

Shapes: n points of d numbers.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from tideline.numerics.clustering import firsts, ranks

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
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import silhouette_score
    from threadpoolctl import threadpool_limits

    # One thread: of few points several only wait for each other, and a sum in another order has other last digits.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer clusters than asked for are no news here
        given = KMeans(n_clusters=k, n_init=STARTS, random_state=seed).fit(points.numpy()).labels_
    labels = ranks(firsts(torch.from_numpy(given).long()))
    value = float(silhouette_score(points.numpy(), labels.numpy())) if int(labels.max()) > 0 else -1.0
    return value, -k, labels
