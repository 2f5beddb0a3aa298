"""Files of parts that were dropped, kept for a while to be written over.

Their pages lie in memory. To find and clear new ones costs the kernel as much as it costs to fill them; on a virtual machine that
gives free memory back to its host, ten times as much.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LEAST_BYTES, MOST_BYTES = 1 << 20, 2 << 30  # of a file that is kept, and of all of them
SPARE_SECONDS = 60.0  # that one waits
PREFIX, REACH = "spare-", ".at"
LONG = struct.Struct("<Q")


class Spares:
    """The spare files of a folder. Any number of processes may share it: a file belongs to whoever renames it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def retain(self, path: Path) -> None:
        """Do away with a file: spare where nobody else can see it, for it is open or mapped nowhere and has no other name."""
        spare = self._folder / f"{PREFIX}{uuid.uuid4().hex}"
        try:
            if path.stat().st_size < LEAST_BYTES or sum(size for size, _ in self._found()) > MOST_BYTES:
                path.unlink(missing_ok=True)
                return
            path.replace(spare)
            if not unseen(spare):
                spare.unlink(missing_ok=True)
        except FileNotFoundError:
            return

    def take(self, size: int, to: Path) -> bool:
        """Have a spare file at a path, the smallest that holds so many bytes by choice. False where there is none."""
        for _, spare in sorted(self._found(), key=lambda each: (each[0] < size, abs(each[0] - size))):
            with suppress(FileNotFoundError):
                spare.replace(to)
                return True
        return False

    def expire(self, seconds: float = SPARE_SECONDS) -> None:
        """Do away with those that nobody has taken for so long."""
        before = time.time() - seconds
        for _, spare in self._found():
            with suppress(FileNotFoundError):
                if spare.stat().st_ctime <= before:  # when it was renamed
                    spare.unlink()

    def _found(self) -> Iterator[tuple[int, Path]]:
        with suppress(FileNotFoundError):
            for each in list(os.scandir(self._folder)):
                if each.name.startswith(PREFIX):
                    with suppress(FileNotFoundError):
                        yield each.stat().st_size, Path(each.path)


def unseen(path: Path) -> bool:
    """Whether nobody else has a file open or mapped, under any name. Where the system cannot tell, somebody may have."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        if os.fstat(descriptor).st_nlink > 1:
            return False
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True
    except (OSError, AttributeError):  # the latter where the system has no leases
        return False
    finally:
        os.close(descriptor)


class Reach:
    """How far a spare file has been written over, in a small file beside it: its size does not tell."""

    def __init__(self, path: Path) -> None:
        self._path = reach_of(path)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)

    def note(self, offset: int) -> None:
        os.pwrite(self._descriptor, LONG.pack(offset), 0)

    def close(self) -> None:
        os.close(self._descriptor)


def reach_of(path: Path) -> Path:
    return path.with_name(path.name + REACH)


def arrived_at(path: Path) -> int:
    """Bytes of an upload that lie at a path. Raises FileNotFoundError."""
    size = path.stat().st_size
    try:
        noted = reach_of(path).read_bytes()
    except FileNotFoundError:
        return size
    return min(size, LONG.unpack(noted)[0]) if len(noted) == LONG.size else 0
