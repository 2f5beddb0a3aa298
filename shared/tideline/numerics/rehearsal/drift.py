"""Whether new rows of a site are still like those that a model was adapted to.

Two shifts are looked at: of the new rows against the old ones, beside what chance alone would make of so few rows; and of the new
rows against the labelled sites, beside those at which adapting was rehearsed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tideline.numerics.alignment.normalising import Moments
from tideline.numerics.rehearsal.shifts import Shift, distance, shift, unlike

SLACK, BY_CHANCE = 0.1, 2.0  # of a shift that is none: always, and of what chance makes of so few rows


class Holds(StrEnum):
    """Whether what was expected still holds.

    AS_IT_WAS  the rows are like those that were adapted to
    REHEARSED  they have moved, to a shift that was rehearsed; nothing was expected there
    NO         they have moved, to a shift unlike any that was rehearsed
    """

    AS_IT_WAS = "as it was"
    REHEARSED = "moved"
    NO = "no"


@dataclass(frozen=True)
class Drift:
    """moved: of new rows against old ones; most: the largest that is no drift; nearest: the distance to what was rehearsed."""

    moved: Shift
    most: Shift
    nearest: float | None
    holds: Holds


def drift(new: Moments, old: Moments, labelled: Moments, rehearsed: Sequence[Shift]) -> Drift:
    """Of new rows, one or more, against those adapted to, the labelled sites' rows, and the shifts that were rehearsed."""
    moved, rows = shift(new, old), 1 / max(new.count, 1) + 1 / max(old.count, 1)
    # Of normal rows the mean |difference of means| in spreads, and of the logarithms of spreads.
    chance = math.sqrt(2 / math.pi * rows)
    most = Shift(SLACK + BY_CHANCE * chance, SLACK + BY_CHANCE * chance / math.sqrt(2))
    here = shift(new, labelled)
    nearest = min((distance(here, each) for each in rehearsed), default=None)
    still = moved.of_means <= most.of_means and moved.of_spreads <= most.of_spreads
    odd = not rehearsed or unlike(here, rehearsed)
    return Drift(moved, most, nearest, Holds.AS_IT_WAS if still else Holds.NO if odd else Holds.REHEARSED)
