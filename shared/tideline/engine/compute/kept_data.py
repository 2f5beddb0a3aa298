"""A site's data as they were opened, for as long as there is room: runs side by side see them in several ways.

A rehearsal has a site now teach and now play the target, by rows on one scale and on another. What does not fit beside others is
let go before the next is opened, so that memory holds one set of large data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tideline.core.rows import Joined, Rows
from tideline.engine.ports.site import SiteData
from tideline.learning.cache.cached_rows import CachedRows
from tideline.learning.formats.holdings import Holdings

K = TypeVar("K")
V = TypeVar("V")
ROOM = 1 << 28  # bytes of rows that are kept beside those in use


@dataclass
class KeptData(Generic[K, V]):
    """Values by keys that need not be hashable, the newest last. size: bytes of a value's rows."""

    size: Callable[[V], float]
    room: int = ROOM
    _kept: list[tuple[K, V, float]] = field(default_factory=list)

    def of(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if it is not here."""
        at = next((i for i, (known, _, _) in enumerate(self._kept) if known == key), None)
        if at is None:
            self.fit()
            made = make()
            self._kept.append((key, made, self.size(made)))
        else:
            self._kept.append(self._kept.pop(at))
        return self._kept[-1][1]

    def fit(self) -> None:
        """Let the oldest go until the rest fits into the room."""
        while sum(size for _, _, size in self._kept) > self.room:
            del self._kept[0]


def bytes_of(data: SiteData) -> float:
    """Of the rows of all views; of data that do not tell, more than any room."""
    if not isinstance(data, Holdings):
        return math.inf
    sides = (data.train.x, data.train.bare, data.held_out.x)
    return float(sum(numbers(rows) * rows.dtype.itemsize for rows in sides if rows is not None))


def numbers(rows: Rows) -> int:
    """How many numbers rows hold; those of a cache hold none."""
    if isinstance(rows, Joined):
        return sum(map(numbers, rows.several))
    return 0 if isinstance(rows, CachedRows) else len(rows) * math.prod(rows.shape)
