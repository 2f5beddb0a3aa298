"""What charges cost together, by Renyi divergences: an upper bound that needs no library.

Of Gaussian noise: a / (2 s^2) at order a. On a Poisson sample, at whole orders: Mironov, Talwar, Zhang, "Renyi Differential
Privacy of the Sampled Gaussian Mechanism", 2019 (arXiv 1908.10530). To epsilon and delta: Canonne, Kamath, Steinke, "The Discrete
Gaussian for Differential Privacy", 2020 (arXiv 2004.00010), proposition 12. At each order costs add up, over runs, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

from tideline.core.asked.private import Charge

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 384, 512, 768, 1024)
ROUNDED = 1 + 1e-9  # more than what a sum of so many floats is off
Bound = Callable[[tuple[Charge, ...], float], float]  # the epsilon of charges at a delta, or more


def renyi_epsilon(charges: Iterable[Charge], delta: float) -> float:
    """The epsilon of all charges together at a delta, or somewhat more; 0 without charges. Raises ValueError for no delta."""
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; give one between 0 and 1")
    sums = [0.0] * len(ORDERS)
    for each in charges:
        if each.times and each.rate:
            sums = [total + each.times * own for total, own in zip(sums, divergences(each.noise, each.rate), strict=True)]
    if not any(sums):
        return 0.0
    return max(0.0, min(at_delta(order, found, delta) for order, found in zip(ORDERS, sums, strict=True)) * ROUNDED)


def at_delta(order: int, divergence: float, delta: float) -> float:
    return divergence + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


@lru_cache(maxsize=1024)
def divergences(noise: float, rate: float) -> tuple[float, ...]:
    """Of one release, at each of ORDERS. Without noise they are infinite."""
    if not noise > 0:
        return (math.inf,) * len(ORDERS)
    if rate >= 1:
        return tuple(order / (2 * noise**2) for order in ORDERS)
    return tuple(sampled(noise, rate, order) for order in ORDERS)


def sampled(noise: float, rate: float, order: int) -> float:
    """Of a Poisson sample: the logarithm of the sum over k of C(a, k) (1 - q)^(a - k) q^k exp(k (k - 1) / (2 s^2))."""
    terms = [
        math.lgamma(order + 1)
        - math.lgamma(k + 1)
        - math.lgamma(order - k + 1)
        + (order - k) * math.log1p(-rate)
        + k * math.log(rate)
        + k * (k - 1) / (2 * noise**2)
        for k in range(order + 1)
    ]
    most = max(terms)
    return max(0.0, most + math.log(math.fsum(math.exp(term - most) for term in terms))) / (order - 1)
