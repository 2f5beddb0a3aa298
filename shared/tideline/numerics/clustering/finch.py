"""Who belongs together: clusters of points by cosine similarity, without a number of clusters (FINCH) or with one.

FINCH: Sarfraz, Sharma, Stiefelhagen, "Efficient Parameter-free Clustering Using First Neighbor Relations", CVPR 2019; Mori et
al., "Federated Source-free Domain Adaptation for Classification: Weighted Cluster Aggregation for Unlabeled Data", section 4.1.

Shapes: n points of d numbers. Labels (n,) int64 count from 0 in the order in which clusters first appear.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tideline.numerics.clustering.cosine import cosines, nearest


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
