"""A clip that follows a quantile of gradients' norms (Andrew, Thakkar, McMahan, Ramaswamy, NeurIPS 2021, arXiv 1905.03871).

In each step the sum tells one number more: of how many rows the norm was not above the clip, less half of all. One row changes it
by 1/2. Both are one vector, so they cost as much as the sum alone whose noise z is 1 / z^2 = 1 / z_sum^2 + 1 / z_count^2: nothing
more is charged, and the gradients' noise is somewhat larger (theorem 1 there).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tideline.core.asked.private import Privacy
from tideline.numerics.privacy.mechanisms import gaussian
from tideline.numerics.privacy.streams import Stream

SPEED = 0.2  # of the clip's logarithm in a step, as there
LEAST, MOST = 1e-6, 1e6  # of a clip
NOISE = 5.0  # of the count, in units of the noise of both


@dataclass(frozen=True)
class Quantile:
    """The share of rows that the clip leaves as they are, and the count's noise, more than 1, in units of the noise of both."""

    share: float
    noise: float = NOISE

    def of_gradients(self, noise: float) -> float:
        """The noise of the sum, in clips, by which both together are as private as `noise`."""
        return noise / math.sqrt(1 - self.noise**-2)

    def moved(self, clip: float, short: int, drawn: int, expected: float, noise: float, stream: Stream) -> float:
        """The next clip: short of the rows drawn were not longer than it. expected: how many are drawn, a public number."""
        count = torch.tensor([2 * short - drawn], dtype=torch.float64)  # one row more or less changes it by 1
        noised = float(gaussian(count, 1.0, self.noise * noise, stream)[0])
        share = min(max(noised / (2 * expected) + 0.5, 0.0), 1.0)
        return within(clip * math.exp(-SPEED * (share - self.share)))


def within(clip: float) -> float:
    return min(max(clip, LEAST), MOST)


def noise_of_gradients(privacy: Privacy, noise: float) -> float:
    """The noise of the sum of gradients, in clips, of a run whose steps are as private as `noise`."""
    quantile = quantile_of(privacy)
    return quantile.of_gradients(noise) if quantile else noise


def quantile_of(privacy: Privacy) -> Quantile | None:
    """What a run's clip follows; None where it stays."""
    if privacy.quantile is None:
        return None
    return Quantile(privacy.quantile) if privacy.quantile_noise is None else Quantile(privacy.quantile, privacy.quantile_noise)
