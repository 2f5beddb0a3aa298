"""When a site took an order up, began its step and finished it: as its agent tells it, and as the coordinator places it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tideline.core.settings import Plain

STAGES = "stages"  # among the facts of an order: what the coordinator made of them


@dataclass(frozen=True)
class Stages:
    """How long ago a site began to fetch, began its step, and had finished it: seconds before its reply was sent.

    Ages and no times of day, for clocks differ. What lies before `fetching` is waiting: at the coordinator, on the way, for an
    owner's word or hours, for other orders, and for the price of a private run.
    """

    fetching: float
    began: float
    done: float

    def older(self, seconds: float) -> Stages:
        """The same, told so much later."""
        return Stages(self.fetching + seconds, self.began + seconds, self.done + seconds)


def placed(stages: Stages | None, created: float, answered: float) -> list[Plain] | None:
    """When fetching, computing and sending began, on the coordinator's clock; None where nothing was told, or nonsense.

    Within the time for which the order was open, whatever was told.

    >>> placed(Stages(9.0, 7.0, 2.0), 100.0, 110.0)
    [101.0, 103.0, 108.0]
    >>> placed(Stages(99.0, 7.0, 8.0), 100.0, 110.0)
    [100.0, 103.0, 103.0]
    """
    if stages is None or not all(math.isfinite(age) and age >= 0 for age in (stages.fetching, stages.began, stages.done)):
        return None
    times, last = list[Plain](), created
    for age in (stages.fetching, stages.began, stages.done):
        last = min(max(last, answered - age), max(answered, created))
        times.append(last)
    return times


def stages_in(facts: Mapping[str, Plain]) -> list[float] | None:
    """What `placed` gave, out of an order's facts; None where it gave nothing."""
    found = facts.get(STAGES)
    if not isinstance(found, list) or len(found) != 3:
        return None
    return [float(each) for each in found if isinstance(each, (int, float))]


class Timetable:
    """What an agent notes of the orders at work: by a clock that never goes back. Each order is noted by one thread."""

    def __init__(self) -> None:
        self._noted: dict[str, list[float]] = {}

    def fetches(self, order: str, now: float) -> None:
        """An order is taken up."""
        self._noted[order] = [now]

    def begins(self, order: str, now: float) -> None:
        """Its step begins, once more where what it read did not stay whole."""
        if order in self._noted:
            self._noted[order][1:] = [now]

    def ends(self, order: str, now: float) -> None:
        """Its step is done, or failed."""
        if len(self._noted.get(order, ())) == 2:
            self._noted[order].append(now)

    def stages(self, order: str, now: float) -> Stages | None:
        """What there is to tell; None of a reply that was worked out before this process began, or of which no step began."""
        noted = self._noted.get(order, [])
        return Stages(*(now - at for at in noted)) if len(noted) == 3 else None

    def forget(self, order: str) -> None:
        """It is answered, or given up."""
        self._noted.pop(order, None)
