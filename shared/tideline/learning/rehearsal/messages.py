"""What sites and coordinator of a rehearsal tell each other, and what a site remembers. Shapes: m candidates, d features."""

from __future__ import annotations

import torch
from torch import Tensor

from tideline.core.privacy import Exposure
from tideline.core.record import field, record
from tideline.numerics.alignment import normalising


@record
class Moments:
    """Up: of a site's training rows, float64, by which its shift is known; of images by channel."""

    count: int = field("", Exposure.COUNT, low=0, doc="training rows")
    mean: Tensor = field("d", Exposure.STATISTIC, doc="the mean of each feature")
    variance: Tensor = field("d", Exposure.STATISTIC, low=0, doc="its variance")


def no_moments(d: int) -> Moments:
    zero = torch.zeros(d, dtype=torch.float64)
    return Moments(0, zero, zero)


def as_record(found: normalising.Moments) -> Moments:
    return Moments(found.count, found.mean, found.variance)


def moments_in(given: Moments) -> normalising.Moments:
    return normalising.Moments(given.count, given.mean, given.variance)


@record
class Counts:
    """Up: rows of a site by what each candidate predicts; zeros for one that predicts nothing."""

    rows: Tensor = field("m", Exposure.COUNT, low=0, doc="rows that the candidate predicts")
    right: Tensor = field("m", Exposure.COUNT, low=0, doc="of them, predicted right")
    gained: Tensor = field("m", Exposure.COUNT, low=0, doc="right, and wrong without adaptation")
    lost: Tensor = field("m", Exposure.COUNT, low=0, doc="wrong, and right without adaptation")
    changed: Tensor = field("m", Exposure.COUNT, low=0, doc="predicted otherwise than without adaptation")
    confidence: Tensor = field("m", Exposure.STATISTIC, low=0, doc="the sum of the confidences")


@record
class Weights:
    """Down: how much each candidate's predictions count."""

    w: Tensor = field("m")


@record
class Known:
    """Down, to targets: the weights; and by what shifts are measured: moments of all labelled sites, shifts where they played."""

    w: Tensor = field("m")
    labelled: Moments
    shifts: Tensor = field("r 2", doc="of each site that played, against the other labelled ones")


@record
class Compared:
    """What a site remembers: moments of the rows that were adapted to, and of a target what it was sent of the others."""

    own: Moments
    labelled: Moments
    shifts: Tensor = field("r 2")


@record
class Voted:
    """Up: the same of the weighed predictions."""

    counts: Tensor = field("4", Exposure.COUNT, low=0, doc="rows, gained, lost, changed")
    confidence: Tensor = field("", Exposure.STATISTIC, low=0, doc="the sum of the confidences")


@record
class Agreed:
    """Up: rows of a target, without labels, at which each candidate agrees with the mean of all of them."""

    rows: int = field("", Exposure.COUNT, low=0, doc="rows")
    agreed: Tensor = field("m", Exposure.COUNT, low=0, doc="rows at which the candidate agrees with the mean of all")


@record
class Foretold:
    """Up: of a target's rows, without labels: how many there are, how many the weighed predictions change, their confidences."""

    rows: int = field("", Exposure.COUNT, low=0, doc="rows")
    changed: int = field("", Exposure.COUNT, low=0, doc="rows predicted otherwise than without adaptation")
    confidence: float = field("", Exposure.STATISTIC, low=0, doc="the sum of the confidences")
