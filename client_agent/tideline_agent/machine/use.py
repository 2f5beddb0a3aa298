"""How busy the machine is: its processors since the last look, and its GPUs in the last moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tideline.engine.process.measuring import cores
from tideline_agent.machine.device import device_name
from tideline_agent.machine.gpus import Gpu, Read, gpus_in, listed

FRESH_SECONDS = 2.0  # for which what was read is shown again: whoever looks more often costs nothing
IDLE = (3, 4)  # of the numbers of a processor's times: idle, and waiting for a disk


@dataclass(frozen=True)
class Use:
    """device: the name of what steps compute on. cpu: the share of all processors that worked since the last look; None: unknown
    yet, or this system does not say.
    """

    device: str
    cores: int
    cpu: float | None
    gpus: tuple[Gpu, ...]


@dataclass
class Machine:
    """Looks at the machine when it is asked, at most every two seconds. Any number of threads.

    device: as the owner has set it. read, stat: where it looks. now: seconds of a clock that never goes back.
    """

    device: str
    read: Read = listed
    stat: Path = Path("/proc/stat")
    now: Callable[[], float] = time.monotonic
    _times: tuple[float, float] | None = None
    _seen: tuple[float, Use] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def use(self) -> Use:
        with self._lock:
            if self._seen is None or self.now() - self._seen[0] >= FRESH_SECONDS:
                self._seen = self.now(), self._read()
            return self._seen[1]

    def _read(self) -> Use:
        text = self.read()
        before, self._times = self._times, times(self.stat)
        gpus = gpus_in(text)
        return Use(device_name(self.device, lambda: text), cores(), share(before, self._times), gpus)


def times(stat: Path) -> tuple[float, float] | None:
    """What all processors worked, and how long there were any, in ticks; None where the system does not say."""
    try:
        first = stat.read_text().splitlines()[0].split()
        numbers = [float(each) for each in first[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    if first[0] != "cpu" or len(numbers) < 5:
        return None
    return sum(numbers) - sum(numbers[at] for at in IDLE), sum(numbers)


def share(before: tuple[float, float] | None, now: tuple[float, float] | None) -> float | None:
    """The share of the time between two looks in which processors worked."""
    if before is None or now is None or now[1] <= before[1]:
        return None
    return max(0.0, min((now[0] - before[0]) / (now[1] - before[1]), 1.0))
