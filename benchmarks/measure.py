"""What processes hold and use, and bytes on the loopback, read from /proc."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

QUANTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def anonymous_mb(pid: int) -> float:
    """Anonymous and shared memory of a process, in 10^6 bytes. Mapped files do not count: the kernel takes them back at will."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    kb = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem"))}
    return sum(kb.values()) * 1024 / 1e6


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    try:
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(roots: Mapping[str, int]) -> dict[str, float]:
    """Processor seconds that named processes and, as `NAME child`, their descendants have used."""
    used: dict[str, float] = {}
    for name, root in roots.items():
        for pid in tree(root):
            with suppress(psutil.NoSuchProcess):
                times = psutil.Process(pid).cpu_times()
                part = name if pid == root else f"{name} child"
                used[part] = used.get(part, 0.0) + times.user + times.system
    return used


def loopback_bytes() -> int:
    """Bytes that have crossed the loopback since the machine started."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[0])
    return 0


class PeakMemory:
    """Samples the memory of named process trees until it is left; `peaks` holds the largest sums.

    later: also count processes that begin meanwhile; every sample then reads the machine's list of processes.
    """

    def __init__(self, roots: dict[str, int], seconds: float = 0.04, later: bool = False) -> None:
        self._roots, self._later = roots, later
        self._trees = {name: tree(pid) for name, pid in roots.items()}
        self._seconds, self._over = seconds, threading.Event()
        self.peaks = dict.fromkeys(roots, 0.0)

    def now(self) -> dict[str, float]:
        """The sums at this moment."""
        if self._later:
            self._trees = {name: tree(pid) for name, pid in self._roots.items()}
        return {name: sum(anonymous_mb(pid) for pid in pids) for name, pids in self._trees.items()}

    def __enter__(self) -> PeakMemory:
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(self._seconds):
            for name, mb in self.now().items():
                self.peaks[name] = max(self.peaks[name], mb)


def grown(work: Callable[[], Any], children: bool = False) -> tuple[float, Any]:
    """The largest growth of this process's anonymous memory during some work, in MB; and what came of the work.

    children: count the processes that the work starts, whole; sampled four times a second.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before would be used again unseen
    before = anonymous_mb(os.getpid())
    with PeakMemory({"me": os.getpid()}, 0.25 if children else 0.001, later=children) as memory:
        made = work()
    return memory.peaks["me"] - before, made


@dataclass(frozen=True)
class Reading:
    """A process at one moment: seconds since the epoch, processor seconds used, memory in MB, open files, threads."""

    at: float
    cpu: float
    mb: float
    files: int
    threads: int


def reading(pid: int) -> Reading:
    """A process as it is now. Raises psutil.NoSuchProcess."""
    process = psutil.Process(pid)
    with process.oneshot():
        used = process.cpu_times()
        return Reading(time.time(), used.user + used.system, anonymous_mb(pid), process.num_fds(), process.num_threads())


class Readings:
    """Reads named processes now and then until it is left."""

    def __init__(self, pids: Mapping[str, int], seconds: float = 0.5) -> None:
        self._pids, self._seconds, self._over = dict(pids), seconds, threading.Event()
        self.of: dict[str, list[Reading]] = {name: [] for name in pids}

    def __enter__(self) -> Readings:
        self._read()
        self._thread = threading.Thread(target=self._keep_reading)
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._over.set()
        self._thread.join()
        self._read()

    def between(self, name: str, began: float, ended: float) -> list[Reading]:
        """The readings of a process in a span of time."""
        return [each for each in self.of[name] if began <= each.at <= ended]

    def cpu_percent(self, name: str, began: float, ended: float) -> float:
        """Processor time in a span, in percent of one core."""
        found = self.between(name, began, ended)
        return 100 * (found[-1].cpu - found[0].cpu) / (found[-1].at - found[0].at) if len(found) > 1 else float("nan")

    def _keep_reading(self) -> None:
        while not self._over.wait(self._seconds):
            self._read()

    def _read(self) -> None:
        for name, pid in self._pids.items():
            with suppress(psutil.NoSuchProcess):
                self.of[name].append(reading(pid))


def spread(seconds: Iterable[float]) -> dict[str, float]:
    """Median, 99th percentile and largest, in milliseconds; NaN where there are none."""
    report = sorted(1000 * each for each in seconds) or [float("nan")]
    return {name: round(report[min(int(share * len(report)), len(report) - 1)], 1) for name, share in QUANTILES.items()}
