"""Bytes for which memory has no room: the oldest lie in files without names, which end with the process, however it ends."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import threading
import weakref
from pathlib import Path

from tideline.core.errors import StorageFull

ROOM = 1 << 26  # bytes that stay in memory
FILE_BYTES = 1 << 24  # a file that has so many gets no more, so that it can go when nothing in it is held any more
MOST_FILES = 16  # but for those that are pinned by little
MAPPED_BYTES = 1 << 16  # what is larger is mapped where it is read, and begins at a page
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Spill:
    """Keeps what it is given for as long as somebody holds it: the newest `room` bytes in memory, the rest in files.

    folder: where the files lie, the system's folder for temporary files unless said. in_memory, in_files: bytes that are held
    there now. Any number of threads.
    """

    def __init__(self, folder: Path | None = None, room: int = ROOM, file_bytes: int = FILE_BYTES) -> None:
        self.in_memory = self.in_files = 0
        self._folder, self._room, self._file_bytes = folder, room, file_bytes
        self._lock = threading.RLock()  # a blob may go while another is written
        self._inside: dict[int, tuple[weakref.ref[Blob], int]] = {}  # those in memory and their bytes, the oldest first
        self._next = 0
        self._file: SpillFile | None = None

    def store(self, content: bytes) -> Blob:
        """Hold bytes; some that were given before may go to a file. Raises StorageFull, and holds nothing more then."""
        with self._lock:
            self._next += 1
            blob = Blob(self, self._next, content)
            self._inside[self._next] = weakref.ref(blob), blob.size
            self.in_memory += blob.size
            while self.in_memory > self._room:
                self._put_out(next(iter(self._inside)))
        return blob

    def let_go(self, number: int, size: int) -> None:
        """Nobody holds a blob any more."""
        with self._lock:
            if self._inside.pop(number, None) is None:
                self.in_files -= size
            else:
                self.in_memory -= size

    def _put_out(self, number: int) -> None:
        held, size = self._inside[number]
        blob = held()
        if blob is not None:  # else another thread is about to let it go
            blob.move(self._open())
        del self._inside[number]
        self.in_memory -= size
        self.in_files += size

    def _open(self) -> SpillFile:
        """The file at hand. The more there is, the larger the files, so that there are never many."""
        if self._file is None or self._file.end >= max(self._file_bytes, self.in_files // MOST_FILES):
            self._file = SpillFile(self._folder)
        return self._file


class Blob:
    """Bytes that a spill keeps: here, or in a file."""

    __slots__ = ("__weakref__", "_at", "_content", "_file", "_number", "_spill", "size")

    def __init__(self, spill: Spill, number: int, content: bytes) -> None:
        self._spill, self._number, self._content, self.size = spill, number, content, len(content)
        self._file: SpillFile | None = None
        self._at = 0

    def __len__(self) -> int:
        return self.size

    def __del__(self) -> None:
        self._spill.let_go(self._number, self.size)

    @property
    def on_disk(self) -> bool:
        """Whether they lie in a file."""
        return self._file is not None

    def view(self) -> memoryview:
        """The reader's own copy, or a private mapping of the file."""
        content, file = self._content, self._file
        return memoryview(bytearray(content)) if file is None else file.view(self._at, self.size)

    def content(self) -> bytes:
        """The bytes themselves."""
        content, file = self._content, self._file
        return content if file is None else bytes(file.view(self._at, self.size))

    def move(self, file: SpillFile) -> None:
        """To a file. Whoever reads meanwhile has taken the content before he looked for a file."""
        self._at = file.append(self._content)
        self._file = file
        self._content = b""


class SpillFile:
    """A file without a name, to which blobs are appended. It is closed, and gone, when no blob lies in it any more."""

    def __init__(self, folder: Path | None) -> None:
        self._where = str(folder or tempfile.gettempdir())
        self._todo = "Make room there" if folder else "Make room there, or name a folder that has room by the variable TMPDIR"
        try:
            file = tempfile.TemporaryFile(prefix="tideline-", dir=folder, buffering=0)  # noqa: SIM115 - closed with the last blob
        except OSError as error:
            raise self._full(error) from error
        self._descriptor = file.fileno()
        weakref.finalize(self, file.close)
        self.end = 0

    def append(self, content: bytes) -> int:
        """Write at the end, at a page's beginning if it is large; where. Raises StorageFull."""
        at = -(-self.end // mmap.PAGESIZE) * mmap.PAGESIZE if len(content) > MAPPED_BYTES else self.end
        rest, to = memoryview(content), at
        while rest:
            try:
                wrote = os.pwrite(self._descriptor, rest, to)
            except OSError as error:
                raise self._full(error) from error
            rest, to = rest[wrote:], to + wrote
        self.end = to
        return at

    def view(self, at: int, size: int) -> memoryview:
        if size > MAPPED_BYTES:
            return memoryview(mmap.mmap(self._descriptor, size, access=mmap.ACCESS_COPY, offset=at))
        buffer = bytearray(size)
        rest = memoryview(buffer)
        while rest:
            read = os.preadv(self._descriptor, [rest], at + size - len(rest))
            if not read:
                raise OSError(errno.EIO, f"A temporary file in {self._where} has lost its end")
            rest = rest[read:]
        return memoryview(buffer)

    def _full(self, error: OSError) -> StorageFull:
        why = "there is no room" if error.errno in FULL else error.strerror
        return StorageFull(f"Memory has no room for what is kept, and it cannot be written to {self._where}: {why}", self._todo)
