"""Writes the file of a cache, row after row in any order, so that one who is killed leaves what the next goes on with."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tideline.learning.cache.layout import DIGEST, Head, digest_of, read_head, sealed


class Writer:
    """One file under a temporary name, of its whole size from the start. Raises OSError where the disk has no room.

    Any number of threads, for rows of their own. What an earlier writer of the same head has left is taken over, row by row.
    """

    def __init__(self, path: Path, head: Head) -> None:
        self.path, self.head = path, head
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._digests = self._begin()
        except BaseException:
            self.close()
            self.discard()
            raise

    def _begin(self) -> bytearray:
        here = self._descriptor
        if read_head(here) == self.head:
            return bytearray(os.pread(here, self.head.count * DIGEST, self.head.data_bytes))
        foot = sealed(self.head)
        os.ftruncate(here, 0)
        os.posix_fallocate(here, 0, self.head.end + len(foot))
        os.pwrite(here, foot, self.head.end)
        return bytearray(self.head.count * DIGEST)

    def has(self, row: int) -> bool:
        """Whether the row lies there whole, from before."""
        said = self._digests[row * DIGEST : (row + 1) * DIGEST]
        if not any(said):
            return False
        return digest_of(os.pread(self._descriptor, self.head.stride, row * self.head.stride)) == said

    def put(self, row: int, x: NDArray[np.generic]) -> None:
        """Write a row, its digest in memory."""
        content = np.ascontiguousarray(x).data.cast("B")
        write_all(self._descriptor, content, row * self.head.stride)
        self._digests[row * DIGEST : (row + 1) * DIGEST] = digest_of(content)

    def flush(self) -> None:
        """Rows up to now, and their digests, are on the disk."""
        write_all(self._descriptor, memoryview(bytes(self._digests)), self.head.data_bytes)
        os.fdatasync(self._descriptor)

    def finish(self, path: Path, lost: tuple[tuple[int, str], ...]) -> None:
        """Seal the file and give it its name."""
        head, here = replace(self.head, lost=lost, digests=digest_of(bytes(self._digests)).hex()), self._descriptor
        write_all(here, memoryview(bytes(self._digests)), head.data_bytes)
        os.fsync(here)  # before there is a head that says that all is there
        foot = sealed(head)
        write_all(here, memoryview(foot), head.end)
        os.ftruncate(here, head.end + len(foot))
        os.fsync(here)
        self.path.replace(path)
        sync_folder(path.parent)

    def close(self) -> None:
        os.close(self._descriptor)

    def discard(self) -> None:
        with suppress(OSError):
            self.path.unlink()


def write_all(descriptor: int, content: memoryview, at: int) -> None:
    """Raises OSError where the disk is full."""
    while content:
        done = os.pwrite(descriptor, content, at)
        content, at = content[done:], at + done


def sync_folder(folder: Path) -> None:
    """A new name is on the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
