"""What releases spend: epsilon of a list of events, by distributions of the privacy loss (Koskela et al. 2020).

Neighbours differ by one row that is added or removed. The accountant is Google's dp-accounting, an extra of the package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from math import inf, isfinite, isnan

from tideline.core.errors import ConfigRefused

INSTALL = "pip install 'tideline[privacy]'"
STEP, COARSER = 1e-4, 0.25  # the distributions' grid, and the noise below which it gets coarser: losses grow with 1 / noise^2
CLOSE = 5e-4
MOST = 2.0**20


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise of `noise` times the sensitivity, over all rows, `times` times."""

    noise: float
    times: int = 1

    def __post_init__(self) -> None:
        check_event(self.noise, self.times)


@dataclass(frozen=True)
class Sampled:
    """Gaussian noise on a Poisson sample, in which each row is with probability `rate`, `times` times."""

    rate: float
    noise: float
    times: int = 1

    def __post_init__(self) -> None:
        check_event(self.noise, self.times)
        if not 0 <= self.rate <= 1:
            raise ValueError(f"A sample's rate is {self.rate}; give one from 0 to 1")


Spent = Gaussian | Sampled
Plan = Callable[[float], Iterable[Spent]]


def check_event(noise: float, times: int) -> None:
    """Raises ValueError for numbers that no release has."""
    if isnan(noise) or noise < 0:
        raise ValueError(f"A release's noise is {noise}; give 0 or more")
    if times < 0:
        raise ValueError(f"A release is made {times} times; give 0 or more")


def epsilon(events: Iterable[Spent], delta: float) -> float:
    """The epsilon that all events spend together at this delta: an upper bound, close. Without noise it is infinite."""
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; give one between 0 and 1")
    counts: Counter[tuple[float, float]] = Counter()
    for event in events:
        rate = event.rate if isinstance(event, Sampled) else 1.0
        if rate > 0 and event.times and isfinite(event.noise):
            counts[rate, event.noise] += event.times
    return _epsilon(tuple(sorted((*which, times) for which, times in counts.items())), delta)


@lru_cache(maxsize=1024)
def _epsilon(counts: tuple[tuple[float, float, int], ...], delta: float) -> float:
    if not counts:
        return 0.0
    if not min(noise for _, noise, _ in counts):
        return inf
    check_installed()
    import dp_accounting
    from dp_accounting import pld

    step = STEP * max(1.0, (COARSER / min(noise for _, noise, _ in counts)) ** 2)
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = pld.PLDAccountant(relation, value_discretization_interval=step)
    for rate, noise, times in counts:
        release = dp_accounting.GaussianDpEvent(noise)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, release) if rate < 1 else release, times)
    return float(accountant.get_epsilon(delta))


def check_installed() -> None:
    """Raises ConfigRefused where the extra is not installed."""
    if find_spec("dp_accounting") is None:
        what = "Private training counts what it spends with dp-accounting, which is not installed here"
        raise ConfigRefused(what, f"Install it: {INSTALL}", path="privacy")


def noise_for(target: float, delta: float, plan: Plan) -> float:
    """The smallest noise whose plan spends `target` or less, up to a thousandth; plan(noise) gives the events. Never above it."""
    if not target > 0:
        raise ValueError(f"The epsilon asked for is {target}; give one above 0")
    high = 1.0
    while epsilon(plan(high), delta) > target:
        high *= 2
        if high > MOST:
            raise ValueError(f"No noise brings this plan to epsilon {target} at delta {delta}; ask for more, or plan less")
    low = high / 2
    while low > 1 / MOST and epsilon(plan(low), delta) <= target:
        low, high = low / 2, low
    while high - low > CLOSE * low:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon(plan(middle), delta) <= target else (middle, high)
    return high
