"""Clusters by k-means, as many as have the largest silhouette."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score
from torch import Tensor

from tests.numerics.clouds import normal
from tideline.numerics.clustering.clusters import clusters, inertia, looseness, regrouped, silhouette_clusters


def groups(sizes: list[int], d: int = 4, apart: float = 20.0, seed: int = 0) -> tuple[Tensor, list[int]]:
    """Tight groups of points far from each other, and the true labels."""
    of = [c for c, size in enumerate(sizes) for _ in range(size)]
    return normal(len(of), d, seed=seed) + apart * torch.eye(len(sizes), d, dtype=torch.float64)[of], of


@pytest.mark.parametrize("sizes", [[3, 3], [5, 2, 4], [4, 4, 4, 4], [1, 6]])
def test_groups_are_found(sizes: list[int]) -> None:
    points, truth = groups(sizes)
    assert silhouette_clusters(points, 20, 0).tolist() == truth


def test_the_order_does_not_matter() -> None:
    """A permutation of the points permutes the answer, but for the numbers."""
    points, truth = groups([5, 3, 4])
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    found = silhouette_clusters(points[order], 20, 0).tolist()
    assert found == [list(dict.fromkeys(truth[i] for i in order)).index(truth[i]) for i in order]


def test_it_has_the_largest_silhouette() -> None:
    points, _ = groups([4, 4, 4], apart=6.0)
    found = silhouette_clusters(points, 20, 0)
    best = silhouette_score(points.numpy(), found.numpy())
    merged = np.minimum(found.numpy(), 1)
    assert best >= silhouette_score(points.numpy(), merged)


def test_the_number_is_bounded() -> None:
    points, _ = groups([3, 3, 3, 3])
    assert int(silhouette_clusters(points, 2, 0).max()) == 1


@pytest.mark.parametrize("n", [1, 2])
def test_few_points_are_one_cluster(n: int) -> None:
    assert silhouette_clusters(normal(n, 3, seed=0), 20, 0).tolist() == [0] * n


def test_equal_points_are_one_cluster() -> None:
    """Nothing could part them; and those that differ from all others are parted."""
    assert silhouette_clusters(torch.ones(5, 2), 20, 0).tolist() == [0] * 5
    assert silhouette_clusters(torch.tensor([[1.0], [1.0], [3.0], [1.0]]), 20, 0).tolist() == [0, 0, 1, 0]


def test_a_point_beyond_all_measure() -> None:
    points = torch.cat([normal(4, 2, seed=0), torch.full((1, 2), 1e15, dtype=torch.float64)])
    assert silhouette_clusters(points, 20, 0).tolist() == [0, 0, 0, 0, 1]


def test_points_that_differ_by_rounding() -> None:
    points = 1.0 + torch.arange(6, dtype=torch.float64)[:, None] * 2**-52
    found = silhouette_clusters(points, 20, 0)
    assert found.shape == (6,) and int(found.min()) == 0


@pytest.mark.parametrize("points", [torch.zeros(0, 2), torch.tensor([[0.0], [torch.nan], [1.0]]), torch.zeros(3)])
def test_what_is_no_points_is_refused(points: Tensor) -> None:
    with pytest.raises(ValueError, match="at least one row of finite numbers"):
        silhouette_clusters(points, 20, 0)


def test_inertia_is_that_of_k_means() -> None:
    """The sum over pairs is the sum of squares round the means; nothing for equal points; times s^2 if scaled by s."""
    points, _ = groups([6, 5, 7], apart=4.0)
    labels = clusters(points, 3, 0)
    pairs = sum(
        float((points[labels == r][:, None] - points[labels == r][None]).square().sum()) / (2 * int((labels == r).sum()))
        for r in labels.unique()
    )
    assert inertia(points, labels) == pytest.approx(pairs, rel=1e-5)
    assert inertia(3 * points, labels) == pytest.approx(9 * pairs, rel=1e-5)
    assert inertia(torch.ones(5, 2), torch.tensor([0, 0, 1, 1, 1])) == 0


def test_looseness_has_no_scale() -> None:
    """A share of the sum of squares: 1 in one cluster, and where all points are equal, so that a collapse is no gain."""
    points, truth = groups([6, 5, 7])
    labels = torch.tensor(truth)
    assert looseness(points, labels) == pytest.approx(looseness(1000 * points, labels))
    assert looseness(points, labels) < 0.1
    assert looseness(points, torch.zeros(18)) == 1.0 == looseness(torch.ones(4, 3), torch.tensor([0, 0, 1, 1]))


def test_points_that_moved_keep_their_clusters() -> None:
    """k-means goes on from where they were; a cluster without points is no error, nor are points that are all equal."""
    points, _ = groups([6, 5, 7], apart=6.0)
    labels = clusters(points, 3, 0)
    again = regrouped(points + 0.1 * normal(18, 4, seed=9), 3, labels)
    assert torch.equal(again, labels)
    assert len(regrouped(points, 3, torch.zeros(18))) == 18
    assert len(regrouped(torch.ones(6, 2, dtype=torch.float64), 3, torch.tensor([0, 0, 1, 1, 2, 2]))) == 6


@pytest.mark.parametrize("points", [torch.zeros(2, 3), torch.full((4, 2), float("nan")), torch.zeros(4)])
def test_points_that_make_no_clusters_are_refused(points: Tensor) -> None:
    with pytest.raises(ValueError, match="at least 3 rows of finite numbers"):
        clusters(points, 3, 0)
