"""Whether a coordinator can take work. Anybody may ask: the answer is good for a moment, and has no details of the machine."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from tideline.core.errors import FederationError
from tideline.engine.ports.journal import Journal

log = structlog.get_logger()
FRESH_SECONDS = 1.0
LEAST_FREE = 100_000_000  # bytes of a disk


class Readiness:
    """Looks at what a coordinator needs. Any number of threads.

    worker   whether the numeric worker lives; who is asked starts it again
    ending   whether the coordinator is closing
    folders  those on whose disks it writes
    warned   what is not in the way yet
    """

    def __init__(
        self,
        journal: Journal,
        worker: Callable[[], bool],
        ending: Callable[[], bool],
        folders: Iterable[Path],
        least: int = LEAST_FREE,
        warned: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._journal, self._worker, self._ending, self._least = journal, worker, ending, least
        self._folders = tuple(folders)
        self._lock = threading.Lock()
        self._until, self._known = float("-inf"), tuple[str, ...]()
        self._details = ""
        self._warned, self._warnings = warned, tuple[str, ...]()

    def reasons(self) -> tuple[str, ...]:
        with self._lock:
            if time.monotonic() >= self._until:
                found = dict(self._looked())
                self._log_details("; ".join(found.values()))
                self._known = tuple(found)
                self._until = time.monotonic() + FRESH_SECONDS
            return self._known

    def warnings(self) -> tuple[str, ...]:
        """What does not keep the coordinator from work yet, for everybody: clocks, and the end of its certificate."""
        found = self._warned()
        with self._lock:
            if found != self._warnings:
                self._warnings = found
                log.warning("soon_in_the_way", warnings="; ".join(found)) if found else log.info("no_more_warnings")
        return found

    def _log_details(self, details: str) -> None:
        """Say in the log what is in the way, when it is another thing than before."""
        if details != self._details:
            self._details = details
            log.warning("not_ready", reasons=details) if details else log.info("ready_again")

    def _looked(self) -> Iterable[tuple[str, str]]:
        """Reasons for all to hear, each with what the log is told of it."""
        if self._ending():
            yield ("it is stopping",) * 2
        try:
            self._journal.marker()
        except FederationError as error:
            yield "the database does not answer", error.what
        if not self._worker():
            yield ("the numeric worker is not running",) * 2
        for folder in self._folders:
            free = free_bytes(folder)
            if free is None:
                yield "a disk cannot be looked at", f"{folder} cannot be looked at"
            elif free < self._least:
                yield "a disk is short of room", f"the disk of {folder} has {free // 1_000_000} MB left"


def free_bytes(folder: Path) -> int | None:
    """What may still be written where a folder lies; None where it cannot be told."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
