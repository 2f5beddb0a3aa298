"""Whether a coordinator can take work. Anybody may ask, so the answer is good for a moment."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tideline.core.errors import FederationError
from tideline.engine.ports import Journal

FRESH_SECONDS = 1.0
LEAST_FREE = 100_000_000  # bytes of a disk


class Readiness:
    """Looks at what a coordinator needs. Any number of threads.

    worker   whether the numeric worker lives; it is started again by the next call that needs it
    ending   whether the coordinator is closing
    folders  those on whose disks it writes
    """

    def __init__(
        self,
        journal: Journal,
        worker: Callable[[], bool],
        ending: Callable[[], bool],
        folders: Iterable[Path],
        least: int = LEAST_FREE,
    ) -> None:
        self._journal, self._worker, self._ending, self._least = journal, worker, ending, least
        self._folders = tuple(folders)
        self._lock = threading.Lock()
        self._until, self._known = float("-inf"), tuple[str, ...]()

    def reasons(self) -> tuple[str, ...]:
        """Why it is not ready; nothing where it is."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = tuple(self._looked())
                self._until = time.monotonic() + FRESH_SECONDS
            return self._known

    def _looked(self) -> Iterable[str]:
        if self._ending():
            yield "it is stopping"
        try:
            self._journal.marker()
        except FederationError as error:
            yield error.what
        if not self._worker():
            yield "the numeric worker is not running"
        for folder in self._folders:
            free = free_bytes(folder)
            if free is None:
                yield f"{folder} cannot be looked at"
            elif free < self._least:
                yield f"the disk of {folder} has {free // 1_000_000} MB left"


def free_bytes(folder: Path) -> int | None:
    """What may still be written where a folder lies; None where it cannot be told."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
