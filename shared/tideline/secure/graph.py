"""Who shares masks with whom: everybody up to 64 sites; beyond, a graph in which each site has k neighbours.

The graph is that of Bell et al. 2020: sites stand on a circle in an order that a seed shuffles, and each is a neighbour of the
k/2 before and the k/2 after it. A site's secrets are in shares for its neighbours and itself, any `threshold` of which make
one. `design` computes the smallest k for which three things hold for all n sites together, where at most DROPPED of them drop out
and at most COLLUDING tell the coordinator all they know, whoever these are, as long as they do not depend on the graph:

    it can be summed   at least `threshold` neighbours of each site remain, but with probability 2^-30. The number that remains
                       is hypergeometric; the bound is the sum over all sites
    one secret alone   fewer than `threshold` neighbours of each site collude, but with 2^-40: the others give shares of a site's
                       key or of its self mask, never of both, for the one set of survivors that sites have agreed on
    one sum alone      the honest sites that remain are connected, but with 2^-40: they are, unless k/2 in a row on the circle are
                       gone or collude; n windows of probability (DROPPED + COLLUDING)^(k/2) or less

Where no k < n - 1 does, everybody is everybody's neighbour, and then no probability is left: any floor(2 n / 3) + 1 suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate, takewhile
from math import comb

WHOLE = 64  # sites up to which everybody is everybody's neighbour
DROPPED, COLLUDING = Fraction(1, 3), Fraction(1, 10)
UNSUMMED, UNSAFE = Fraction(1, 2**30), Fraction(1, 2**40)  # the failure that is allowed of each kind
WORD = b"tideline secure graph 1\n"


@dataclass(frozen=True)
class Design:
    """How many neighbours a site has, and how many of them and itself it takes to make its secrets."""

    neighbours: int
    threshold: int


@dataclass(frozen=True)
class Failure:
    """Bounds of the probabilities that a graph fails: it cannot be summed, tells both secrets of a site, or tells two sums."""

    unsummed: Fraction
    both_secrets: Fraction
    two_sums: Fraction

    @property
    def allowed(self) -> bool:
        return self.unsummed <= UNSUMMED and max(self.both_secrets, self.two_sums) <= UNSAFE


def enough(sites: int) -> int:
    """How many of a round's sites have to remain: more than two thirds."""
    return 2 * sites // 3 + 1


@lru_cache(256)
def design(present: int, sites: int | None = None) -> Design:
    """For so many sites that have sent keys, of so many in the round."""
    whole = Design(present - 1, enough(sites or present))
    if present <= WHOLE:
        return whole
    low, high = 1, (present - 1) // 2  # halves of k: what suffices with few suffices with more
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fitting(present, 2 * middle) else (middle + 1, high)
    threshold = fitting(present, 2 * low) if 2 * low < present - 1 else None
    return whole if threshold is None else Design(2 * low, threshold)


def fitting(n: int, k: int) -> int | None:
    """The largest threshold with which k neighbours can be summed, if that is safe."""
    allowed = UNSUMMED * comb(n - 1, k) / n
    sums = accumulate(drawn(n - 1, enough(n), k))
    threshold = sum(1 for _ in takewhile(lambda failing: failing <= allowed, sums))
    return threshold if failure(n, Design(k, threshold)).allowed else None


def failure(n: int, plan: Design) -> Failure:
    """What a graph of n sites fails with, as bounds."""
    k, t, remaining, colluding = plan.neighbours, plan.threshold, enough(n), int(COLLUDING * n)
    ways = comb(n - 1, k)
    few = sum(drawn(n - 1, remaining, k)[:t])
    many = sum(drawn(n - 1, colluding, k)[t:])
    gone = Fraction(n - remaining + colluding, n)
    return Failure(Fraction(n * few, ways), Fraction(n * many, ways), n * gone ** (k // 2))


@lru_cache(64)
def drawn(n: int, marked: int, k: int) -> tuple[int, ...]:
    """In how many ways k of n have 0, 1, ... k marked ones. Each follows from the one before."""
    least = max(0, k - (n - marked))
    counts = [0] * least + [comb(marked, least) * comb(n - marked, k - least)]
    for i in range(least, k):
        counts.append(counts[i] * (marked - i) * (k - i) // ((i + 1) * (n - marked - k + i + 1)))
    return tuple(counts)


def neighbours(sites: tuple[str, ...], k: int, seed: bytes) -> dict[str, tuple[str, ...]]:
    """Each site's neighbours, sorted. seed: what no single site chooses; a name's place on the circle is a hash of both."""
    if k >= len(sites) - 1:
        return {name: tuple(sorted(other for other in sites if other != name)) for name in sites}
    circle = sorted(sites, key=lambda name: sha256(WORD + seed + name.encode()).digest())
    steps = [step for step in range(-(k // 2), k // 2 + 1) if step]
    return {name: tuple(sorted(circle[(at + step) % len(circle)] for step in steps)) for at, name in enumerate(circle)}
