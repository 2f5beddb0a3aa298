"""Rows of a cache: read from the file when they are asked for, each held to its digest, each time.

Read with `pread`, not through mapped pages: what was checked is what is used, a bad sector is an error and no signal that ends
the process, and rows take no memory of it. The kernel holds the file's pages as long as it has room.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from tideline.core.rows import Rows
from tideline.learning.cache.folder import is_at
from tideline.learning.cache.layout import DIGEST, Head, digest_of, read_digests, read_head
from tideline.learning.formats.transforms import Transform, finished
from tideline.learning.rows.scratch import NUMPY

GROUP = 1 << 18  # numbers that become floats together: they stay in a processor's own memory
Mender = Callable[[int], NDArray[np.generic]]
log = logging.getLogger(__name__)
# What makes a damaged row again knows its file, and so may know its class: it is found by a number, which rows hold in its place.
_menders: dict[int, Mender] = {}
_numbers = itertools.count(1)


class RowsFile:
    """An open cache, in use until nothing holds it. Any number of threads."""

    def __init__(self, descriptor: int, head: Head, digests: bytes, mender: Mender) -> None:
        # Without the place of the domain: rows lead to numbers alone.
        self.descriptor, self.head, self.digests = descriptor, replace(head, domain=""), digests
        self.number = next(_numbers)
        _menders[self.number] = mender
        weakref.finalize(self, release, descriptor, self.number)

    def read(self, row: int, into: memoryview) -> None:
        """A row's bytes. A damaged one is made again from its source, and put right. Raises DataRefused if it cannot be."""
        try:
            whole = os.preadv(self.descriptor, [into], row * self.head.stride) == len(into)
        except OSError:
            whole = False
        if not whole or digest_of(into) != self.digests[row * DIGEST : (row + 1) * DIGEST]:
            self.mend(row, into)

    def mend(self, row: int, into: memoryview) -> None:
        """Make a row again. A source that has changed since raises DataRefused, as if there were no cache."""
        made = np.ascontiguousarray(_menders[self.number](row))
        log.warning("A row of a cache of decoded rows was damaged: row %d is read from its source again, and put right", row)
        into[:] = made.data.cast("B")
        with suppress(OSError):  # a disk that takes nothing more still gives the row
            os.pwrite(self.descriptor, into, row * self.head.stride)


def release(descriptor: int, number: int) -> None:
    _menders.pop(number, None)
    os.close(descriptor)


def opened(path: Path, fits: Callable[[Head], bool], mender_of: Callable[[Head, bytes], Mender]) -> RowsFile | None:
    """The cache at a place, in use from here on; None where there is none, or none that is whole and fits."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    head = read_head(descriptor)
    digests = read_digests(descriptor, head) if head is not None else None
    if head is None or digests is None or not fits(head) or not is_at(descriptor, path):
        os.close(descriptor)
        return None
    with suppress(OSError):
        os.utime(descriptor)
        # Rows are asked for in any order; reading ahead of each would read the file several times over.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    return RowsFile(descriptor, head, digests, mender_of(head, digests))


@dataclass(frozen=True, eq=False)
class CachedRows(Rows):
    """Some rows of a cache, by number (n,) int64: floats as `transform` has them, or token ids."""

    file: RowsFile
    numbers: Tensor
    transform: Transform

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.file.head.shape

    @property
    def dtype(self) -> torch.dtype:
        return torch.int64 if self.file.head.dtype == "int64" else torch.float32

    @property
    def plain(self) -> bool:
        return True

    def batch(self, indices: Tensor, rng: Generator | None = None) -> Tensor:
        head = self.file.head
        wanted = self.numbers[indices].tolist()
        # Of NumPy, which asks for large pages: they come in half the time.
        out = torch.from_numpy(np.empty((len(indices), *head.shape), NUMPY[self.dtype]))
        size = max(1, min(len(wanted), GROUP // max(prod(head.shape), 1)))
        raw = np.empty((size, *head.shape), head.dtype)
        places = [each.data.cast("B") for each in raw]
        for start in range(0, len(wanted), size):
            group = wanted[start : start + size]
            for i, row in enumerate(group):
                self.file.read(row, places[i])
            finished(torch.from_numpy(raw[: len(group)]), out[start : start + len(group)], head.white, self.transform)
        return out

    def at(self, indices: Tensor) -> Rows:
        return CachedRows(self.file, self.numbers[indices], self.transform)
