"""Who shares masks with whom: regular, of one piece, from a seed; and how often that may fail."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from scipy.stats import hypergeom  # type: ignore[import-untyped]

from tideline.secure.graph import COLLUDING, UNSAFE, UNSUMMED, WHOLE, Design, design, enough, failure, fitting, neighbours


def names(n: int) -> tuple[str, ...]:
    return tuple(f"site-{i:04}" for i in range(n))


@pytest.mark.parametrize("n", [3, 8, 64])
def test_few_sites_are_all_neighbours(n: int) -> None:
    assert design(n) == Design(n - 1, 2 * n // 3 + 1) and n <= WHOLE
    assert all(len(each) == n - 1 and name not in each for name, each in neighbours(names(n), n - 1, b"").items())


def test_of_a_round_of_eight_seven_that_came_still_need_six() -> None:
    assert design(7, 8) == Design(6, 6)


@pytest.mark.parametrize(
    ("n", "k", "threshold"),
    [(65, 64, 44), (80, 76, 51), (100, 78, 46), (200, 80, 32), (500, 94, 34), (1000, 110, 40), (3500, 130, 47)],
)
def test_the_designs(n: int, k: int, threshold: int) -> None:
    """Fixed: sites and coordinator must find the same. Where nothing smaller will do, all are neighbours."""
    assert design(n) == Design(k, threshold)
    if k == n - 1:
        return
    bounds = failure(n, design(n))
    assert bounds.allowed and bounds.unsummed <= UNSUMMED and max(bounds.both_secrets, bounds.two_sums) <= UNSAFE
    assert not failure(n, Design(k, threshold + 1)).allowed, "it is the largest threshold"
    assert all(fitting(n, less) is None for less in range(2, k, 2)), "and there is no smaller number of neighbours"


@pytest.mark.parametrize(("n", "k", "t"), [(100, 20, 12), (200, 60, 35), (1000, 100, 60)])
def test_the_bounds_by_another_library(n: int, k: int, t: int) -> None:
    """The tails of hypergeometric laws, by scipy."""
    bounds, colluding = failure(n, Design(k, t)), int(COLLUDING * n)
    assert float(bounds.unsummed) == pytest.approx(n * hypergeom(n - 1, enough(n), k).cdf(t - 1), rel=1e-6)
    assert float(bounds.both_secrets) == pytest.approx(n * hypergeom(n - 1, colluding, k).sf(t - 1), rel=1e-6)
    assert bounds.two_sums == n * Fraction(n - enough(n) + colluding, n) ** (k // 2)


@pytest.mark.parametrize(("n", "k"), [(100, 78), (65, 10), (200, 152)])
def test_a_graph_is_regular_and_both_ways(n: int, k: int) -> None:
    graph = neighbours(names(n), k, b"seed")
    assert {len(set(each)) for each in graph.values()} == {k}
    assert all(name not in each and list(each) == sorted(each) for name, each in graph.items())
    assert all(name in graph[other] for name, each in graph.items() for other in each)


def test_a_graph_is_of_its_seed() -> None:
    """Not of the order in which sites are named."""
    sites = names(100)
    graph = neighbours(sites, 20, b"seed")
    assert graph == neighbours(sites[::-1], 20, b"seed") != neighbours(sites, 20, b"other")


def test_a_site_meets_every_other_as_often() -> None:
    """Over seeds, each pair is one of neighbours in about k of n - 1 cases."""
    sites, k, times = names(20), 6, 600
    met = sum(sites[1] in neighbours(sites, k, str(seed).encode())[sites[0]] for seed in range(times))
    assert abs(met / times - k / 19) < 5 * (k / 19 / times) ** 0.5


def pieces(graph: dict[str, tuple[str, ...]], remaining: set[str]) -> int:
    """Into how many pieces those that remain fall."""
    left, count = set(remaining), 0
    while left:
        count += 1
        reached = [left.pop()]
        while reached:
            new = left.intersection(graph[reached.pop()])
            left -= new
            reached.extend(new)
    return count


def test_what_remains_is_of_one_piece() -> None:
    """With a third and a tenth gone at random; it falls apart only where k/2 in a row on the circle are gone, twice."""
    rng, sites, plan = Random(0), names(100), design(100)
    for seed in range(100):
        graph = neighbours(sites, plan.neighbours, str(seed).encode())
        assert pieces(graph, set(rng.sample(sites, 57))) == 1
        remaining = set(rng.sample(sites, enough(100)))
        assert min(len(remaining.intersection(graph[name])) for name in sites) >= plan.threshold


def test_pieces_are_counted() -> None:
    """A circle of which two runs of k/2 are gone is two."""
    graph = neighbours(names(12), 4, b"")
    circle = ["site-0000"]
    while len(circle) < 12:
        shared = {name: len(set(graph[name]) & set(graph[circle[-1]])) for name in graph[circle[-1]] if name not in circle}
        circle.append(max(shared, key=lambda name: (shared[name], name)))
    assert pieces(graph, set(circle)) == 1 and pieces(graph, set(circle[2:6] + circle[8:])) == 2
