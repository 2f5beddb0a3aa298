"""Makes a cache of a domain's samples: files that lie apart by as many threads as there are processors, others as they come."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.learning.cache.layout import Head
from tideline.learning.cache.writing import Writer
from tideline.learning.formats.kinds.shapes import check_values, sized
from tideline.learning.formats.memory import memory_bytes
from tideline.learning.formats.surveys import Piece
from tideline.learning.rows.resizing import Sized

CHUNK = 256  # rows of an array that are resized together
FLUSH_SECONDS, LOG_SECONDS = 2.0, 30.0
MOST_WORKERS = 32
PER_WORKER = 1 << 30  # bytes: the largest image that is read, a few times
Lost = tuple[tuple[int, str], ...]
log = logging.getLogger(__name__)


class Mixed(Exception):
    """A sample is of another type than the first, or white at another value: the rows have to be floats."""


@dataclass(frozen=True)
class Source:
    """A domain's samples as they are stored, with the world whose rows they are to become.

    what: what they are called. read: one row's, where each lies apart; stream: else all, in order, some at a time.
    """

    count: int
    world: World
    what: str
    read: Callable[[int], Piece] | None
    stream: Callable[[], Iterator[Piece]]

    def row(self, number: int) -> Piece:
        """One row alone, wherever it lies. Raises DataRefused."""
        if self.read is not None:
            return self.read(number)
        for piece in self.stream():
            if piece.x is not None and piece.start <= number < piece.start + len(piece.x):
                at = number - piece.start
                return Piece(number, piece.x[at : at + 1], piece.transform)
        return Piece(number, None, piece.transform, "it is no longer there")

    def first(self) -> Sized | None:
        """The first sample that can be read; None if there is none."""
        for piece in self.stream() if self.read is None else map(self.read, range(self.count)):
            if piece.x is not None:
                return self.sized(piece.x[:1], piece)
        return None

    def sized(self, x: NDArray[np.generic], piece: Piece, start: int | None = None) -> Sized:
        """Samples of a piece, checked. Raises DataRefused."""
        check_values(x, self.world, piece.transform, piece.start if start is None else start)
        return sized(x, self.world, piece.transform)


def fitted(made: Sized, head: Head) -> NDArray[np.generic]:
    """Samples as the rows of a head are. Raises Mixed."""
    if made.x.dtype == head.dtype and made.white == head.white:
        return made.x
    if head.dtype != "float32" or head.white != 1.0:
        raise Mixed
    return np.asarray(made.x, np.float32) / np.float32(made.white)


def workers_here() -> int:
    """As many as this process may use processors, and has memory for."""
    return max(1, min(len(os.sched_getaffinity(0)), MOST_WORKERS, memory_bytes() // PER_WORKER))


@dataclass
class Build:
    """One making of a cache. progress: told now and then which share is done."""

    writer: Writer
    source: Source
    workers: int
    progress: Callable[[float], None]
    done: int = 0
    lost: list[tuple[int, str]] = field(default_factory=list)
    errors: list[tuple[int, BaseException]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._next = itertools.count()
        self._began = self._flushed = self._logged = time.monotonic()

    def run(self) -> Lost:
        """All rows lie there; those that cannot be read, with the types of their errors.

        Raises what went wrong with the first row of which something did: Mixed, DataRefused; OSError where the disk is full.
        """
        if self.source.read is None:
            self.stream()
        else:
            self.apart()
        return tuple(sorted(self.lost))

    def stream(self) -> None:
        for piece in self.source.stream():
            assert piece.x is not None
            for start in range(0, len(piece.x), CHUNK):
                first = piece.start + start
                made = self.source.sized(piece.x[start : start + CHUNK], piece, first)
                for row, x in enumerate(fitted(made, self.writer.head), first):
                    self.writer.put(row, x)
                self.done = first + len(made.x)
                self.report()

    def apart(self) -> None:
        threads = [threading.Thread(target=self.work, name=f"rows-{n}") for n in range(self.workers)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(FLUSH_SECONDS / 10)
                    self.report()
        finally:
            self._stop.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        # Rows are given out in order, so all before the first error were looked at.
        if self.errors:
            raise min(self.errors, key=lambda each: each[0])[1]

    def work(self) -> None:
        """One thread: row after row."""
        assert self.source.read is not None
        while not self._stop.is_set() and (row := next(self._next)) < self.source.count:
            try:
                self.one(row, self.source.read)
            except BaseException as error:  # noqa: BLE001 - it is raised where the threads are waited for
                self.errors.append((row, error))
                self._stop.set()
            self.done += 1  # for people: two threads at once may lose one

    def one(self, row: int, read: Callable[[int], Piece]) -> None:
        if self.writer.has(row):
            return
        piece = read(row)
        if piece.x is None:
            self.lost.append((row, piece.why.partition(":")[0]))  # the words may name the file
        else:
            self.writer.put(row, fitted(self.source.sized(piece.x, piece), self.writer.head)[0])

    def report(self) -> None:
        """Now and then: what is done is on the disk, and is told."""
        now = time.monotonic()
        if now - self._flushed < FLUSH_SECONDS or self.errors:
            return
        share = min(self.done / max(self.source.count, 1), 1.0)
        self.progress(share)
        self.writer.flush()
        self._flushed = time.monotonic()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            left = (now - self._began) * (1 - share) / max(share, 1e-6)
            log.info("Decoded rows: %d of %d are written, %.0f s to go", self.done, self.source.count, left)


def mender_of(
    source: Source, path: str, head: Head, digest: Callable[[int], bytes], digest_of: Callable[[bytes], bytes]
) -> Callable[[int], NDArray[np.generic]]:
    """What makes a row again. Raises DataRefused for one that is another by now."""

    def mend(row: int) -> NDArray[np.generic]:
        piece = source.row(row)
        why = piece.why
        if piece.x is not None:
            try:
                made: NDArray[np.generic] = fitted(source.sized(piece.x, piece), head)[0]
            except Mixed:
                why = "it is of another type"
            else:
                if digest_of(np.ascontiguousarray(made).tobytes()) == digest(row):
                    return made
                why = "it was changed"
        raise changed(path, source.what, why)

    return mend


def changed(path: str, of: str, why: str) -> DataRefused:
    """The refusal of a sample that is not what it was when the folder was opened. why: for the owner only."""
    what = f"{path}: one of the {of} could be read when the agent opened the folder, and can no longer be"
    return DataRefused(what, "Leave the data as they are while a run works with them", path=path, said=why)
