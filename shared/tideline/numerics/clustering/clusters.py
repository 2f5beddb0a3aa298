"""Clusters of points: by cosine similarity without a number of clusters (FINCH) or with one, and by k-means.

FINCH: Sarfraz, Sharma, Stiefelhagen, "Efficient Parameter-free Clustering Using First Neighbor Relations", CVPR 2019; Mori et
al., "Federated Source-free Domain Adaptation for Classification: Weighted Cluster Aggregation for Unlabeled Data", section 4.1.
k-means: as many clusters as have the largest silhouette (Rousseeuw, J. Comput. Appl. Math. 1987), or a given number.

Shapes: n points of d numbers. Labels (n,) int64 count from 0 in the order in which clusters first appear.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from tideline.numerics.clustering.cosine import cosines, nearest

STARTS = 10


def first_neighbours(points: Tensor) -> Tensor:
    """kappa (n,) int64: the nearest other point of each of points (n, d); ties go to the smallest index.

    Raises ValueError for fewer than two points, or one that is not finite.
    """
    if len(points) < 2:
        raise ValueError(f"A nearest other point wants at least two points; there are {len(points)}")
    return nearest(cosines(points, points).fill_diagonal_(-torch.inf))


def finch(points: Tensor) -> Tensor:
    """The first partition of FINCH of points (n, d): labels (n,).

    A(k, l) = 1 where l = kappa_k, k = kappa_l or kappa_k = kappa_l; clusters are the connected components of A. Two points with
    one neighbour in common are connected through it, so the links from each point to its neighbour are enough. Each cluster has
    at least two points, unless there is one point only. Raises ValueError for no point, or one that is not finite.
    """
    some(points)
    if len(points) == 1:
        return torch.zeros(1, dtype=torch.int64)
    return joined(first_neighbours(points).cpu())


def agglomerative(points: Tensor, clusters: int) -> Tensor:
    """That many clusters of points (n, d) by average linkage of cosine distances: labels (n,).

    Raises ValueError unless 1 <= clusters <= n, and for a point that is not finite.
    """
    if not 1 <= clusters <= len(points):
        raise ValueError(f"{len(points)} points cannot make {clusters} clusters")
    if clusters == len(points):
        return torch.arange(clusters)
    # Imported here, since it takes a second to load and few runs need it.
    from sklearn.cluster import AgglomerativeClustering

    # The distances are handed over: scikit-learn's own cosine refuses rows of zeros.
    distance = (1 - cosines(points, points)).fill_diagonal_(0).cpu().numpy()
    found = AgglomerativeClustering(n_clusters=clusters, metric="precomputed", linkage="average").fit(distance)
    return ranks(firsts(torch.from_numpy(found.labels_).long()))


def nearest_cluster(point: Tensor, points: Tensor, labels: Tensor) -> int:
    """The cluster of a newcomer (d,): that of its nearest among points (n, d) with labels (n,); ties as in `first_neighbours`.

    Raises ValueError for no points, or one that is not finite.
    """
    some(points, labels)
    return int(labels[nearest(cosines(point.unsqueeze(0), points))])


def repaired(labels: Tensor, points: Tensor) -> Tensor:
    """Clusters after members were lost: labels (n,) of the points (n, d) that are left, numbered anew.

    A cluster of one joins the cluster of its nearest point; clusters of one that are nearest to each other become one cluster.
    So each has at least two again, unless one point only is left. Raises ValueError for no point, and where a nearest is
    looked for also for one that is not finite.
    """
    some(points, labels)
    first = firsts(labels.cpu())
    alone = torch.bincount(first)[first] == 1
    if len(points) == 1 or not bool(alone.any()):
        return ranks(first)
    return joined(torch.where(alone, first_neighbours(points).cpu(), first))


def joined(to: Tensor) -> Tensor:
    """Labels (n,) of the connected components of the graph that links each point i with to_i (n,)."""
    root = torch.arange(len(to))
    while True:
        least = torch.minimum(root, root[to])
        lower = least.scatter_reduce(0, to, least, "amin")
        lower = lower[lower]
        if torch.equal(lower, root):
            return ranks(root)  # a root is the first point of its cluster
        root = lower


def firsts(labels: Tensor) -> Tensor:
    """The first index at which each label of (n,) stands: (n,)."""
    at = ranks(labels)
    n = len(labels)
    return torch.full((n,), n).scatter_reduce(0, at, torch.arange(n), "amin")[at]


def ranks(labels: Tensor) -> Tensor:
    """Labels (n,) as numbers from 0, in the order of their size."""
    at: Tensor = torch.unique(labels, return_inverse=True)[1]
    return at


def some(points: Tensor, labels: Tensor | None = None) -> None:
    """Raises ValueError where there is no point, or not one label for each."""
    if not len(points):
        raise ValueError("Clusters want at least one point; there is none")
    if labels is not None and labels.shape != (len(points),):
        raise ValueError(f"Labels are of shape {tuple(labels.shape)}; there are {len(points)} points")


def silhouette_clusters(points: Tensor, most: int, seed: int) -> Tensor:
    """Labels (n,) int64 of points (n, d), numbered from 0 in the order in which clusters first appear.

    k = 2 .. min(n - 1, most) are tried, with ten starts each, and of the largest mean silhouette the smallest k. Fewer than three
    points, or points that are all equal, are one cluster. Raises ValueError for no point, or one that is not finite.
    """
    points = checked(points, 1)
    highest = min(len(points) - 1, most, len(torch.unique(points, dim=0)))
    found = [split(points, k, seed) for k in range(2, highest + 1)]
    one = (0.0, -1, torch.zeros(len(points), dtype=torch.int64))
    return max(found, key=lambda each: each[:2], default=one)[2]


def split(points: Tensor, k: int, seed: int) -> tuple[float, int, Tensor]:
    """k-means into k clusters: the mean silhouette, -k, and labels (n,). Points too near for k clusters make fewer."""
    # Imported here, since it takes a second to load and few runs need it.
    from sklearn.metrics import silhouette_score

    labels = ranks(firsts(fitted(points, k, STARTS, seed)))
    value = float(silhouette_score(points.numpy(), labels.numpy())) if int(labels.max()) > 0 else -1.0
    return value, -k, labels


def fitted(points: Tensor, k: int, n_init: int, seed: int | None = None, start: Tensor | None = None) -> Tensor:
    """Labels (n,) int64 of one call of k-means."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    # One thread: of few points several only wait for each other, and a sum in another order has other last digits.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer clusters than asked for are no news here
        init = "k-means++" if start is None else start.numpy()
        fit = KMeans(n_clusters=k, n_init=n_init, random_state=seed, init=init).fit(points.numpy())
        return torch.from_numpy(fit.labels_).long()


def clusters(points: Tensor, k: int, seed: int) -> Tensor:
    """Labels (n,) of points (n, d) in k clusters, the best of ten starts. Raises ValueError for fewer than k points."""
    return fitted(checked(points, k), k, STARTS, seed)


def regrouped(points: Tensor, k: int, labels: Tensor) -> Tensor:
    """Labels (n,) of points that have moved: k-means from the means of the clusters (n,) that they were in.

    Other starts could end in other clusters and hide what the move was. A cluster without points begins at the first one.
    """
    points = checked(points, k)
    start = torch.stack([points[labels == r].mean(0) if bool((labels == r).any()) else points[0] for r in range(k)])
    return fitted(points, k, 1, start=start)


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
        wanted = "one row of finite numbers was" if k == 1 else f"{k} rows of finite numbers were"
        raise ValueError(f"Points are of shape {tuple(points.shape)}; at least {wanted} expected")
    return points.double().cpu()
