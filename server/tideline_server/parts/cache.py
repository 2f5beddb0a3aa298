"""Parts of this machine's own disk that also lie elsewhere, kept below a size."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tideline.archive.digests import Buffer, Hasher, agree
from tideline.archive.folder import FolderParts, mapped, room, write_all
from tideline.core.errors import StorageFull
from tideline.core.run import Digest

SLACK = 0.05  # of the limit: so much may come in before the oldest parts go
KEPT = 0.9  # of the limit: so much stays then, so that two processes over one folder stay below it


class Cache(FolderParts):
    """A folder of parts of which those go that were not looked at for longest. Several processes may use it.

    Bytes are synced before they are named, so that a power cut leaves no part that is not whole; names need not survive one.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        super().__init__(folder)
        self._limit, self._grown = limit, limit
        self._counting = threading.Lock()

    def view(self, digest: Digest) -> memoryview:
        view = super().view(digest)
        with suppress(OSError):
            os.utime(self.path(digest))
        return view

    def sync(self, digests: Iterable[Digest]) -> None:
        return

    def receive(self, digest: Digest, chunks: Iterable[Buffer]) -> memoryview:
        """Keep a part that comes from elsewhere, and map it. Raises DigestMismatch, and keeps nothing that is not whole."""
        temporary, made = self._tmp / str(uuid.uuid4()), Hasher()
        try:
            with room(temporary), temporary.open("wb", buffering=0) as file:
                for chunk in chunks:
                    made.update(chunk)
                    write_all(file.fileno(), [chunk])
                self.fsync(file.fileno())
            agree(digest, made.digest)
            view = mapped(temporary)
            self.name(temporary, digest)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self.grew(len(view))
        return view

    def grew(self, added: int) -> None:
        """Tell that a part came in. Now and then the oldest make room."""
        with self._counting:
            self._grown += added
            if self._grown < self._limit * SLACK:
                return
            self._grown = 0
        self.shrink(int(self._limit * KEPT))

    def shrink(self, left: int) -> None:
        """Forget the parts that were not looked at for longest, until so many bytes are left. Uploads go on."""
        for _, size, path in sorted(self.held(), reverse=True):
            left -= size
            if left < 0:
                path.unlink(missing_ok=True)

    def held(self) -> Iterator[tuple[float, int, Path]]:
        """When each part was last looked at, its bytes, and where it lies."""
        for path in self.folder.glob("??/*"):
            with suppress(FileNotFoundError):  # another process shrinks too
                about = path.stat()
                yield about.st_mtime, about.st_size, path

    @contextmanager
    def relieved(self) -> Iterator[None]:
        """Where the disk is full before the limit is reached, let go of everything: the next try finds room."""
        try:
            yield
        except StorageFull:
            self.shrink(0)
            raise
