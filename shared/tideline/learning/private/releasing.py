"""Sums over rows that leave a site under noise, in one charge: for methods whose messages are closed forms.

Rows are whole numbers of a norm that is bounded exactly, so sums of rows and of products of two features are exact, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor

from tideline.core.asked.private import Charge, Meter
from tideline.learning.private.summing import clip_to_grid
from tideline.numerics.privacy.mechanisms import gaussian
from tideline.numerics.privacy.streams import Stream

REACH = 1 << 14  # the norm of a whole row: products of two numbers are below 2^28, and sums of 2^25 of them below 2^53
SCALED = 1 + 2.0**-20  # room for the rounding of exact sums when they are scaled


def whole_rows(x: Tensor, clip: float) -> Tensor:
    """Rows (n, d), those longer than `clip` shortened, in steps of about clip / REACH: whole numbers of a norm of REACH at most.

    A row that is not finite is zero. (n, d) float64.
    """
    made = x.double().clone()
    clip_to_grid(made, clip, REACH)
    return made


def release(
    sums: Sequence[tuple[Tensor, float]], meter: Meter, noise: float | None = None, by_unit: bool = False
) -> list[Tensor]:
    """Sums with Gaussian noise, each with its sensitivity: what one row more changes in its L2 norm at most. float64.

    by_unit: whether that is so of a unit of several rows, too, where the run protects these. Raises StepFailed where it is not.
    The noise of each is in proportion to its sensitivity: together they are one vector, of the sensitivity sqrt(len(sums)).
    noise: that of the charge; None: the run's.
    """
    noise = meter.asked.noise if noise is None else noise
    assert noise is not None, "a run that has begun names its noise"
    key = meter.spend(Charge(noise), by_unit)
    whole = torch.cat([each.double().flatten() / sensitivity for each, sensitivity in sums])
    found = gaussian(whole, sqrt(len(sums)) * SCALED, noise, Stream(key))
    pieces = torch.split(found, [each.numel() for each, _ in sums])
    return [(piece * by).view_as(each) for piece, (each, by) in zip(pieces, sums, strict=True)]
