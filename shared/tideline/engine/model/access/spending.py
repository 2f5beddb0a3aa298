"""What steps spend on computing, as sites report it: seconds of accelerators and of processors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tideline.core.errors import ConfigRefused
from tideline.core.run import OrderId

DAY_SECONDS, HOUR_SECONDS = 86400, 3600.0
FIRST_YEAR, LAST_YEAR = 1970, 9998
MOST_DEVICES, MOST_CORES = 64, 1024  # that one step may say it had


@dataclass(frozen=True)
class Spent:
    """What one reply says of its step, in seconds. Of a reply without it nobody knows.

    gpu      of wall clock while accelerators were held, times their number      devices  that number
    cpu      of processors, those of all threads                                 cores    that it could use
    order    the order that the step ran for: a reply that answers another one, too, is counted once
    """

    gpu: float = 0.0
    cpu: float = 0.0
    devices: int = 0
    cores: int = 0
    order: OrderId = OrderId("")


@dataclass(frozen=True)
class Spending:
    """Sums of that. reported, unreported: replies that said what they took, and such that did not."""

    gpu: float = 0.0
    cpu: float = 0.0
    reported: int = 0
    unreported: int = 0

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            self.gpu + other.gpu, self.cpu + other.cpu, self.reported + other.reported, self.unreported + other.unreported
        )

    @property
    def gpu_hours(self) -> float:
        return self.gpu / HOUR_SECONDS

    @property
    def cpu_hours(self) -> float:
        return self.cpu / HOUR_SECONDS


def shown(spending: Spending) -> dict[str, Any]:
    """The sums as users read them."""
    return {
        "gpu_hours": spending.gpu_hours,
        "cpu_hours": spending.cpu_hours,
        "reported": spending.reported,
        "unreported": spending.unreported,
    }


def spending_of(spent: Spent | None) -> Spending:
    """What one reply adds."""
    return Spending(unreported=1) if spent is None else Spending(spent.gpu, spent.cpu, reported=1)


def summed(each: Iterable[Spending]) -> Spending:
    return sum(each, Spending())


def bounded(spent: Spent, wall: float) -> Spent:
    """As much as there can be: a step has each device and core no longer than its order was open (`wall`, seconds).

    What is no number, or below zero, is nothing.
    """
    devices, cores = min(spent.devices, MOST_DEVICES), min(spent.cores, MOST_CORES)
    gpu, cpu = least(spent.gpu, wall * devices), least(spent.cpu, wall * cores)
    return replace(spent, gpu=gpu, cpu=cpu, devices=devices, cores=cores)


def least(value: float, most: float) -> float:
    return max(min(value, most), 0.0) if value > 0.0 else 0.0


def day_of(seconds: float) -> int:
    """The day in UTC, counted from 1970 on."""
    return int(seconds // DAY_SECONDS)


def day_name(day: int) -> str:
    """Such as 2026-11-03."""
    return f"{datetime.fromtimestamp(day * DAY_SECONDS, UTC):%Y-%m-%d}"


@dataclass(frozen=True)
class Month:
    """A calendar month in UTC. first, end: its first day, and that of the next, counted from 1970 on."""

    name: str
    first: int
    end: int

    @property
    def ends(self) -> float:
        return float(self.end * DAY_SECONDS)

    @property
    def over(self) -> str:
        return f"{day_name(self.end)} 00:00 UTC"


def month_of(seconds: float) -> Month:
    """The month of a time."""
    at = datetime.fromtimestamp(seconds, UTC)
    return month(at.year, at.month)


MONTH = re.compile(r"(\d{4})-(\d\d)")


def month_in(text: str) -> Month:
    """A month such as 2026-11. Raises ConfigRefused."""
    found = MONTH.fullmatch(text)
    try:
        if found is None or not FIRST_YEAR <= int(found[1]) <= LAST_YEAR:
            raise ValueError
        return month(int(found[1]), int(found[2]))
    except ValueError:
        raise ConfigRefused(f"{text[:40]!r} is no month", "Write one such as 2026-11", path="month") from None


def month(year: int, number: int) -> Month:
    """A month by its numbers. Raises ValueError."""
    first = datetime(year, number, 1, tzinfo=UTC)
    after = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    return Month(f"{year:04}-{number:02}", day_of(first.timestamp()), day_of(after.timestamp()))
