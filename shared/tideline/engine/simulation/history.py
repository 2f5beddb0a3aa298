"""What a journal in memory remembers and seldom reads: packed, a block of many rows at once."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from tideline.archive.disk.spill import Blob, Spill
from tideline.core.settings import Plain

T = TypeVar("T")
BLOCK = 512  # rows that are packed at once; so many stay as they are, as the newest are what is read


def packed(rows: Iterable[Plain], spill: Spill) -> Blob:
    text = json.dumps(list(rows), separators=(",", ":"), default=dict)
    return spill.store(zlib.compress(text.encode(), 1))


def unpacked(block: Blob) -> list[Plain]:
    rows: list[Plain] = json.loads(zlib.decompress(block.content()))
    return rows


class History(Generic[T]):
    """A list that only grows. Its lock is its owner's.

    to_plain, from_plain: a row as plain data, and back. What is read of it again is equal, but that tuples are lists.
    """

    def __init__(self, spill: Spill, to_plain: Callable[[T], Plain], from_plain: Callable[[Plain], T]) -> None:
        self._spill, self._to_plain, self._from_plain = spill, to_plain, from_plain
        self._packed: list[Blob] = []
        self._newest: list[T] = []

    def __len__(self) -> int:
        return len(self._packed) * BLOCK + len(self._newest)

    def append(self, row: T) -> None:
        self._newest.append(row)
        if len(self._newest) >= 2 * BLOCK:
            self._packed.append(packed(map(self._to_plain, self._newest[:BLOCK]), self._spill))
            del self._newest[:BLOCK]

    def since(self, first: int = 0) -> Iterator[T]:
        """The rows from a place on, which is not negative; one block at a time in memory."""
        for i in range(first // BLOCK, len(self._packed)):
            rows = unpacked(self._packed[i])
            yield from map(self._from_plain, rows[max(first - i * BLOCK, 0) :])
        yield from self._newest[max(first - len(self._packed) * BLOCK, 0) :]
