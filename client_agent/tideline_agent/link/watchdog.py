"""A thread that ends what has fallen silent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Watchdog:
    """Calls `bark` when `reset` was not called for so many seconds."""

    def __init__(self, bark: Callable[[], Any], seconds: float) -> None:
        self._bark, self._seconds = bark, seconds
        self._fed = threading.Event()
        self._done = False

    def __enter__(self) -> Watchdog:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def reset(self) -> None:
        """Somebody is alive."""
        self._fed.set()

    def fed(self, given: T) -> T:
        """Somebody is alive, and this is what he gave."""
        self.reset()
        return given

    def __exit__(self, *args: object) -> None:
        self._done = True
        self._fed.set()
        self._thread.join()

    def _watch(self) -> None:
        while self._fed.wait(self._seconds):
            if self._done:
                return
            self._fed.clear()
        self._bark()
