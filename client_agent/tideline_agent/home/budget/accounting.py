"""The closer accounting, by distributions of the privacy loss, where dp-accounting is installed beside the agent."""

from __future__ import annotations

from importlib.util import find_spec

from tideline.core.asked.private import Charge
from tideline.engine.epsilon.renyi import Bound
from tideline.numerics.privacy.accounting import Gaussian, Sampled, epsilon


def close_bound() -> Bound | None:
    """What gives a closer epsilon; None where the package is not installed."""
    return by_distributions if find_spec("dp_accounting") is not None else None


def by_distributions(charges: tuple[Charge, ...], delta: float) -> float:
    """The epsilon of charges at a delta, from above."""
    return epsilon(
        (
            Sampled(rate=each.rate, noise=each.noise, times=each.times)
            if each.rate < 1
            else Gaussian(noise=each.noise, times=each.times)
            for each in charges
        ),
        delta,
    )
