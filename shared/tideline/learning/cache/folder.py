"""The folder of a site's caches: NAME.rows each, NAME.part while it is written, NAME.lock. Loads no torch.

A cache in use is locked (shared) by each process that reads it: it is not dropped meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tideline.core.errors import ConfigRefused
from tideline.learning.cache.layout import Head, head_at

ROWS = "rows"  # the folder in a home
SUFFIX, PART, LOCK = ".rows", ".part", ".lock"
RESERVE = 256 << 20  # bytes of the disk that a cache leaves to all else
UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
HALF = "half"


@dataclass(frozen=True)
class Stored:
    """A cache in the folder: its bytes, when it was used last, and its head; None for one that is damaged or half written."""

    path: Path
    size: int
    used: float
    head: Head | None


@dataclass(frozen=True)
class Folder:
    """limit: bytes that all caches may take together; None: half of what is free or theirs."""

    path: Path
    limit: int | None = None

    def prepare(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def most(self) -> int:
        """The bytes that caches may take now."""
        if self.limit is not None:
            return self.limit
        return (shutil.disk_usage(self.path).free + self.taken()) // 2

    def taken(self) -> int:
        return sum(each.size for each in self.stored())

    def stored(self) -> list[Stored]:
        """Every cache, those first that were not used for longest."""
        found = []
        with suppress(FileNotFoundError):
            for path in self.path.iterdir():
                if path.suffix in (SUFFIX, PART):
                    with suppress(OSError):
                        seen = path.stat()
                        found.append(Stored(path, seen.st_blocks * 512, seen.st_mtime, head_at(path)))
        return sorted(found, key=lambda each: each.used)

    def make_room(self, size: int, name: str) -> str:
        """Drop caches until one of this size and name fits; the reason where it cannot, and then none is dropped for it."""
        others = [each for each in self.stored() if each.path.stem != name]
        own = sum(each.size for each in self.stored() if each.path.stem == name)
        if size > (most := self.most()):
            return f"{size / 1e9:.1f} GB are more than the {most / 1e9:.1f} GB that caches may take (--rows-cache)"
        idle = [each for each in others if not in_use(each.path)]
        free = shutil.disk_usage(self.path).free - RESERVE + own
        if size > free + sum(each.size for each in idle):
            return f"{size / 1e9:.1f} GB are more than the disk has room for"
        taken = sum(each.size for each in others)
        if taken - sum(each.size for each in idle) + size > most:
            return f"{size / 1e9:.1f} GB do not fit beside the caches in use (--rows-cache)"
        for each in idle:
            if size <= free and taken + size <= most:
                break
            if drop(each.path):
                free, taken = free + each.size, taken - each.size
        return ""

    def drop_stale(self, current: Head | None = None) -> int:
        """Drop caches of data that are no longer there, or were changed since; the bytes that were freed.

        current: of what was just opened, which another of the same domain with other files is older than.
        """

        def stale(head: Head | None) -> bool:
            if head is None:
                return False  # half written: whoever writes it goes on, or it goes when room is wanted
            changed = current is not None and head.domain == current.domain and head.files != current.files
            return changed or not os.path.lexists(head.domain)

        return sum(each.size for each in self.stored() if stale(each.head) and drop(each.path))

    def forget(self) -> tuple[int, int]:
        """Drop all that are not in use: how many, and the bytes that were freed."""
        gone = [each.size for each in self.stored() if drop(each.path)]
        return len(gone), sum(gone)


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """The only one to hold a lock file, which is gone afterwards. waiting: called, and to pause, while another holds it.

    Where a file system has no locks there is none: then two who write the same file write the same bytes.
    """
    descriptor = lock_file(path)
    try:
        # Who held it before has unlinked it: then it is another file by now.
        while not (taken_alone(descriptor) and is_at(descriptor, path)):
            waiting()
            if not is_at(descriptor, path):
                os.close(descriptor)
                descriptor = lock_file(path)
        yield
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def lock_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at a place."""
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except OSError:
        return False


def taken_alone(descriptor: int) -> bool:
    """Whether the file is ours alone now. Where a file system has no locks it is: nobody there finds one that is not held."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def in_use(path: Path) -> bool:
    """Whether a process reads a cache, or writes it."""
    if path.suffix == PART:
        lock = path.with_suffix(LOCK)
        return lock.exists() and held(lock)
    return held(path)


def held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not taken_alone(descriptor)
    finally:
        os.close(descriptor)


def drop(path: Path) -> bool:
    """Delete a cache that is not in use; whether it is gone."""
    if in_use(path):
        return False
    with suppress(OSError):
        path.unlink(missing_ok=True)
        return True
    return False


def limit_in(text: str) -> int | None:
    """Bytes of a size such as 20GB; None for `half`. Raises ConfigRefused."""
    if text == HALF:
        return None
    number = text.rstrip("kMGTB").strip()
    unit = text[len(text.rstrip("kMGTB")) :]
    try:
        found = int(float(number) * UNITS[unit]) if 0 <= float(number) < 1e15 else None
    except (ValueError, KeyError, OverflowError):
        found = None
    if found is None:
        what = f"--rows-cache {text!r} is no size"
        raise ConfigRefused(
            what, "Write it like 20GB or 500MB; 0 for no cache, half for half of the free disk", path="rows_cache"
        )
    return found
