"""Memory of processes and bytes on the loopback, read from /proc."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil


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


def loopback_bytes() -> int:
    """Bytes that have crossed the loopback since the machine started."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[0])
    return 0


class PeakMemory:
    """Samples the memory of named process trees until it is left; `peaks` holds the largest sums."""

    def __init__(self, roots: dict[str, int], seconds: float = 0.04) -> None:
        self._trees = {name: tree(pid) for name, pid in roots.items()}
        self._seconds, self._over = seconds, threading.Event()
        self.peaks = dict.fromkeys(roots, 0.0)

    def now(self) -> dict[str, float]:
        """The sums at this moment."""
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
