"""Which part of the sites an exchange asks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from tideline.core.settings import EMPTY, setting


class Draw(StrEnum):
    """What decides who is drawn."""

    UNIFORM = "uniform"
    WEIGHTS = "weights"
    AVAILABILITY = "availability"


class Last(StrEnum):
    """Whom the last scoring asks."""

    ALL = "all"
    SAMPLE = "sample"


@dataclass(frozen=True)
class Sampling:
    """Exchanges that may be sampled ask a part of the sites that they name: a cohort, drawn anew each time."""

    sites: float | int = setting(doc="how many sites are asked: a whole number, or a share up to 1.0, rounded up")
    by: Draw = setting(Draw.UNIFORM, doc="how they are drawn")
    weights: Mapping[str, float] = setting(EMPTY, low=0, doc="by weights: site name: weight")
    last: Last = setting(Last.ALL, doc="whom the last scoring asks")

    def size(self, named: int, least: int = 1) -> int:
        """How many of so many are asked. least: how few a share may come to."""
        if isinstance(self.sites, int):
            return min(self.sites, named)
        share = math.ceil(Decimal(str(self.sites)) * named)  # of a float 0.07 * 100 would be a little more than 7
        return min(max(share, least), named)
