"""Clusters by cosine similarity."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor

from tests.numerics.clouds import normal, seeded
from tests.numerics.examples import for_all
from tideline.numerics.clustering.clusters import agglomerative, finch, first_neighbours, nearest_cluster, repaired

# Angles in degrees on the half circle: 0 and 10 are mutual neighbours, 25 follows 10; 90 and 100 are mutual.
ANGLES = torch.tensor([0.0, 90.0, 10.0, 100.0, 25.0])
sizes = st.integers(2, 40)
seeds = st.integers(0, 10_000)


def at(angles: Tensor) -> Tensor:
    """Points of the plane at these angles, at different distances from the origin, which must not matter."""
    radians = torch.deg2rad(angles.double())
    return torch.stack([radians.cos(), radians.sin()], 1) * torch.linspace(1, 5, len(angles))[:, None]


def blobs(per: int, seed: int) -> tuple[Tensor, Tensor]:
    """Four clouds about directions at right angles, in random order, and which cloud each point is of."""
    of = torch.arange(4).repeat_interleave(per)[torch.randperm(4 * per, generator=seeded(seed))]
    return torch.eye(4, 10, dtype=torch.float64)[of] * 10 + 0.1 * normal(4 * per, 10, seed=seed), of


def same_partition(a: Tensor, b: Tensor) -> bool:
    """Whether two labellings put the same points together."""
    return torch.equal(a[:, None] == a, b[:, None] == b)


def by_first_appearance(labels: Tensor) -> bool:
    """Whether labels count from 0 in the order in which they first appear."""
    return list(dict.fromkeys(labels.tolist())) == list(range(int(labels.max()) + 1))


@for_all(50, sizes, st.integers(1, 8), seeds)
def test_first_neighbours_are_the_most_similar(n: int, d: int, seed: int) -> None:
    points = normal(n, d, seed=seed)
    similarity = cosine_similarity(points.numpy())
    np.fill_diagonal(similarity, -np.inf)
    kappa = first_neighbours(points)
    assert kappa.dtype is torch.int64
    assert (kappa != torch.arange(n)).all()
    chosen = similarity[np.arange(n), kappa.numpy()]
    np.testing.assert_allclose(chosen, similarity.max(1), atol=1e-13)


def test_ties_go_to_the_smallest_index() -> None:
    """Equal similarities, rows that are multiples of each other, and rows of zeros."""
    assert first_neighbours(at(torch.tensor([0.0, 60.0, 30.0, 0.0]))).tolist() == [3, 2, 0, 0]
    assert first_neighbours(torch.eye(3)).tolist() == [1, 0, 0]
    assert first_neighbours(torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.1]])).tolist() == [1, 0, 1]
    assert first_neighbours(torch.zeros(3, 2)).tolist() == [1, 0, 0]


@for_all(30, st.integers(3, 20), st.integers(1, 5000), seeds)
def test_rounding_breaks_no_tie(n: int, d: int, seed: int) -> None:
    """Multiples of one row are equally similar, whatever the last digits of the sums are."""
    points = normal(1, d, seed=seed) * torch.linspace(0.1, 3.7, n, dtype=torch.float64)[:, None]
    assert first_neighbours(points).tolist() == [1] + [0] * (n - 1)


@for_all(50, sizes, st.integers(2, 8), seeds)
def test_finch_is_the_components_of_the_neighbours(n: int, d: int, seed: int) -> None:
    """SciPy's connected components of the graph of nearest neighbours; each cluster has two members or more."""
    points = normal(n, d, seed=seed)
    kappa = first_neighbours(points).numpy()
    graph = coo_matrix((np.ones(n), (np.arange(n), kappa)), shape=(n, n))
    labels = finch(points)
    assert same_partition(labels, torch.from_numpy(connected_components(graph, directed=False)[1]))
    assert by_first_appearance(labels)
    assert int(labels.bincount().min()) >= 2


@for_all(30, sizes, seeds)
def test_finch_is_the_published_definition(n: int, seed: int) -> None:
    """All three rules of the adjacency, written out, and components by the powers of the matrix."""
    points = normal(n, 4, seed=seed)
    kappa, k = first_neighbours(points), torch.arange(n)
    linked = (kappa[:, None] == k) | (kappa == k[:, None]) | (kappa[:, None] == kappa)
    reach = torch.linalg.matrix_power(linked.double() + torch.eye(n), 2 * n) > 0
    assert torch.equal(finch(points)[:, None] == finch(points), reach)


def test_a_chain_is_one_cluster() -> None:
    """Gaps that grow: each point's neighbour is the one before, all along."""
    angles = torch.tensor([1.1**i for i in range(48)])
    assert first_neighbours(at(angles)).tolist() == [1, *range(47)]
    order = torch.randperm(48, generator=seeded(3))
    assert finch(at(angles)[order]).tolist() == [0] * 48


@pytest.mark.parametrize("seed", range(4))
def test_clouds_apart_are_never_joined(seed: int) -> None:
    """FINCH may split a cloud of many, never join two; three points of a cloud are one cluster; linkage finds the clouds."""
    points, of = blobs(3, seed)
    assert same_partition(finch(points), of)
    many, of_many = blobs(12, seed)
    together = finch(many)[:, None] == finch(many)
    assert not (together & (of_many[:, None] != of_many)).any()
    for cloud, truth in ((points, of), (many, of_many)):
        assert same_partition(agglomerative(cloud, 4), truth)


def test_labels_by_first_appearance() -> None:
    assert first_neighbours(at(ANGLES)).tolist() == [2, 3, 0, 1, 2]
    for found in (finch(at(ANGLES)), agglomerative(at(ANGLES), 2)):
        assert found.dtype is torch.int64
        assert found.tolist() == [0, 1, 0, 1, 0]
    assert agglomerative(at(ANGLES).flip(0), 2).tolist() == [0, 1, 0, 1, 0]
    assert agglomerative(at(ANGLES), 3).tolist() == [0, 1, 0, 1, 2]


@for_all(30, sizes, seeds)
def test_the_order_of_the_points_does_not_matter(n: int, seed: int) -> None:
    """Points in another order are clustered alike, by each of the functions."""
    points, order = normal(n, 5, seed=seed), torch.randperm(n, generator=seeded(seed + 1))
    assert same_partition(finch(points[order]), finch(points)[order])
    clusters = 1 + seed % n
    assert same_partition(agglomerative(points[order], clusters), agglomerative(points, clusters)[order])
    lost = torch.randint(n, (n,), generator=seeded(seed + 2))
    assert same_partition(repaired(lost[order], points[order]), repaired(lost, points)[order])


def average_linkage(similarity: np.ndarray, clusters: int) -> Tensor:
    """Merge the two clusters of the least mean distance, again and again."""
    groups = [[i] for i in range(len(similarity))]
    while len(groups) > clusters:
        pairs = itertools.combinations(range(len(groups)), 2)
        i, j = max(pairs, key=lambda p: similarity[np.ix_(groups[p[0]], groups[p[1]])].mean())
        groups[i] += groups.pop(j)
    labels = torch.empty(len(similarity), dtype=torch.int64)
    for label, group in enumerate(groups):
        labels[group] = label
    return labels


@for_all(20, st.integers(1, 14), seeds, st.data())
def test_agglomerative_is_average_linkage(n: int, seed: int, data: st.DataObject) -> None:
    points, clusters = normal(n, 3, seed=seed), data.draw(st.integers(1, n))
    labels = agglomerative(points, clusters)
    assert int(labels.max()) + 1 == clusters and by_first_appearance(labels)
    assert same_partition(labels, average_linkage(cosine_similarity(points.numpy()), clusters))


def test_a_row_of_zeros_is_at_right_angles() -> None:
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.1], [-1.0, 0.0]])
    assert agglomerative(points, 3).tolist() == [0, 1, 1, 2]


def test_a_newcomer_joins_its_nearest() -> None:
    """The cluster of the nearest point, under its own number; ties go to the smallest index."""
    labels = torch.tensor([4, 1, 4, 1, 7])
    for angle, cluster in ((-20.0, 4), (20.0, 7), (70.0, 1), (120.0, 1)):
        assert nearest_cluster(at(torch.tensor([angle]))[0], at(ANGLES), labels) == cluster
    assert nearest_cluster(torch.zeros(2), at(ANGLES), labels) == 4
    assert nearest_cluster(torch.ones(2), torch.eye(2), torch.tensor([5, 2])) == 5


def test_a_cluster_of_one_joins_its_nearest() -> None:
    """Whole clusters stay; what is left of a cluster goes where its nearest point is."""
    points = at(ANGLES)
    assert repaired(torch.tensor([3, 0, 3, 0, 0]), points).tolist() == [0, 1, 0, 1, 1]
    assert repaired(torch.tensor([3, 0, 3, 0, 5]), points).tolist() == [0, 1, 0, 1, 0]
    assert repaired(torch.tensor([0, 1, 0, 2, 0]), points).tolist() == [0, 1, 0, 1, 0]
    assert repaired(torch.tensor([9, 8, 7, 6, 5]), points).tolist() == finch(points).tolist()
    assert repaired(torch.tensor([6]), points[:1]).tolist() == [0]


@for_all(50, st.lists(st.integers(0, 9), min_size=2, max_size=25), seeds)
def test_repaired_clusters_have_two_or_more(labels: list[int], seed: int) -> None:
    """No cluster of one is left, those who were together still are, and repairing again changes nothing."""
    before, points = torch.tensor(labels), normal(len(labels), 3, seed=seed)
    after = repaired(before, points)
    assert int(after.bincount().min()) >= 2 and by_first_appearance(after)
    assert ((after[:, None] == after) | (before[:, None] != before)).all()
    assert torch.equal(repaired(after, points), after)
    alone = torch.tensor([labels.count(c) == 1 for c in labels])
    assert torch.equal(after[alone], after[first_neighbours(points)[alone]])
    assert int(after.max()) + 1 >= len({c for c in labels if labels.count(c) > 1})


def test_one_point_is_one_cluster() -> None:
    assert finch(torch.ones(1, 3)).tolist() == agglomerative(torch.ones(1, 3), 1).tolist() == [0]
    assert nearest_cluster(torch.ones(3), torch.ones(1, 3), torch.tensor([2])) == 2


def test_bad_points_are_refused() -> None:
    """None, one where two are wanted, numbers that are not finite, labels that do not fit, an impossible number of clusters."""
    none = torch.zeros(0, 2)
    for attempt in (lambda: finch(none), lambda: nearest_cluster(torch.ones(2), none, none[:, 0].long())):
        with pytest.raises(ValueError, match="at least one point"):
            attempt()
    with pytest.raises(ValueError, match="at least two points"):
        first_neighbours(torch.ones(1, 2))
    with pytest.raises(ValueError, match="not finite"):
        finch(torch.tensor([[1.0, 0.0], [float("nan"), 0.0]]))
    with pytest.raises(ValueError, match="there are 2 points"):
        repaired(torch.zeros(3, dtype=torch.int64), torch.ones(2, 2))
    for clusters in (0, 3):
        with pytest.raises(ValueError, match="cannot make"):
            agglomerative(torch.ones(2, 2), clusters)
