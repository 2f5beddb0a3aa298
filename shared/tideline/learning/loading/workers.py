"""How many threads read ahead, and the threads: they begin when one is first needed, and end with the step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
AUTO_MOST = 8  # threads, where nobody says how many: beyond that a disk, or the step, is what they wait for
MOST = 64
CGROUPS = Path("/sys/fs/cgroup")


class Workers:
    """At most `count` threads that read rows; 0: the step reads them itself."""

    def __init__(self, count: int) -> None:
        self.count = max(0, min(count, MOST))
        self._threads: ThreadPoolExecutor | None = None

    def begin(self, read: Callable[P, T], *args: P.args, **given: P.kwargs) -> Future[T] | None:
        """A call that a thread will make; None where there is to be none, or the system has no room for another."""
        if not self.count:
            return None
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.count, "tideline-rows")
        try:
            return self._threads.submit(read, *args, **given)
        except RuntimeError:
            self.count = 0
            return None

    def close(self) -> None:
        """End the threads. What none has begun is not done; what is being read is waited for."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)


STEP: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextmanager
def reading_ahead(count: int | None = None) -> Iterator[None]:
    """The threads that all passes over rows within have in common. count: None for as many as fit this process."""
    workers = Workers(fitting() if count is None else count)
    before = STEP.set(workers)
    try:
        yield
    finally:
        STEP.reset(before)
        workers.close()


@contextmanager
def here() -> Iterator[Workers]:
    """The step's own threads; outside a step, some for one pass."""
    if (known := STEP.get()) is not None:
        yield known
        return
    workers = Workers(fitting())
    try:
        yield workers
    finally:
        workers.close()


@lru_cache(maxsize=1)
def fitting() -> int:
    """As many as cores that this process may use, at most AUTO_MOST."""
    return min(cores(), AUTO_MOST)


def cores(groups: Path = CGROUPS) -> int:
    """Cores that this process may use: those that it is bound to, or fewer by the quota of its control group."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = quota_in(groups)
    return bound if quota is None else max(1, min(bound, round(quota)))


def quota_in(groups: Path) -> float | None:
    """Cores by the quota of a control group, of the second or first kind; None without one, or where none can be read."""
    try:
        quota, period = (groups / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = ((groups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        except (OSError, ValueError):
            return None
    try:
        found = float(quota) / float(period)
    except (ValueError, ZeroDivisionError):  # "max"
        return None
    return found if found > 0 else None
