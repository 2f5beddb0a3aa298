"""What was made of a value that never changes, kept for as long as it is asked for again soon."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """The last `most` values that were made. Any number of threads; two may make the same at once.

    A source is known by identity, so it need not be hashable, and is held so that no other takes its place.
    """

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._made: dict[tuple[Hashable, ...], tuple[object, V]] = {}

    def of(self, source: object, make: Callable[[], V], *more: Hashable) -> V:
        """What `make` gives for a source and what else it depends on; made once."""
        key = (id(source), *more)
        known = self._made.get(key)
        if known is None:
            known = source, make()
            with self._lock:
                self._made[key] = known
                if len(self._made) > self._most:
                    del self._made[next(iter(self._made))]
        return known[1]
