"""Bounds on how often a process's log says the same: a crowd at the door may not fill the disk."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from structlog.typing import EventDict, WrappedLogger

MOST, SECONDS = 60, 60.0  # lines of one cause, in so many seconds
MOST_CAUSES = 500  # that are counted apart
LEFT_OUT = "lines_left_out"
SERIOUS = ("warning", "error", "critical", "exception")


@dataclass
class Window:
    """Since when lines of a cause are counted, how many were written, and how many left out."""

    began: float
    written: int = 0
    left_out: int = 0


class Throttle:
    """Counts warnings and errors by their cause; after so many, only their number is written. Any number of threads.

    report: is called with a cause and how many of its lines were left out, on a thread of its own.
    """

    def __init__(self, report: Callable[[str, int], None], most: int = MOST, seconds: float = SECONDS) -> None:
        self._report, self._most, self._seconds = report, most, seconds
        self._lock = threading.Lock()
        self._windows: dict[str, Window] = {}

    def admits(self, cause: str) -> bool:
        """Whether one more line is written."""
        now = time.monotonic()
        with self._lock:
            window = self._windows.get(cause)
            if window is None or (now - window.began >= self._seconds and not window.left_out):
                window = self._windows[cause] = Window(now)
                self._forget(now)
            if window.written < self._most:
                window.written += 1
                return True
            window.left_out += 1
            if window.left_out == 1:
                self._later(cause, max(window.began + self._seconds - now, 0.0))
            return False

    def __call__(self, logger: WrappedLogger, method: str, event_dict: EventDict) -> EventDict:
        """As a processor of structlog."""
        event = str(event_dict.get("event"))
        if method in SERIOUS and event != LEFT_OUT and not self.admits(event):
            raise structlog.DropEvent
        return event_dict

    def filter(self, record: logging.LogRecord) -> bool:
        """As a filter of what libraries log."""
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        return self.admits(f"{record.name} {kind} {str(record.msg)[:80]}")

    def _later(self, cause: str, seconds: float) -> None:
        """Have the count written when the window is over."""
        timer = threading.Timer(seconds, self._over, (cause,))
        timer.daemon = True
        timer.start()

    def _over(self, cause: str) -> None:
        with self._lock:
            window = self._windows.pop(cause, None)
        if window is not None and window.left_out:
            self._report(cause, window.left_out)

    def _forget(self, now: float) -> None:
        """Causes that nobody was silenced for, where there are many."""
        if len(self._windows) > MOST_CAUSES:
            self._windows = {cause: each for cause, each in self._windows.items() if each.left_out or each.began == now}


def left_out(cause: str, count: int) -> None:
    """Write how many lines of a cause were left out."""
    structlog.get_logger().warning(LEFT_OUT, of=cause, count=count)
