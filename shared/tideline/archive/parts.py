"""Where files lie, named by the SHA-256 of their bytes: a folder, or a dictionary behind the same few functions."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from io import FileIO
from pathlib import Path
from typing import Protocol

from tideline.archive.errors import DigestMismatch, PartMismatch, PartMissing, TooLarge
from tideline.archive.layout import check_digest
from tideline.core.errors import Malformed, Stale, StorageFull
from tideline.core.run import Digest

Buffer = bytes | bytearray | memoryview
DIGEST_LENGTH = 64
LEFT_SECONDS = 86400.0  # how long a cut upload may wait for its sender to come back


class Upload(Protocol):
    """A part on its way in. `offset` is how much is already there; `commit` names it if the digest fits."""

    offset: int

    def write(self, chunk: Buffer) -> None:
        """Append a chunk. Raises TooLarge, StorageFull, and Stale once the same sender has begun again."""
        ...

    def commit(self) -> Digest:
        """Keep the part. Raises DigestMismatch or PartMismatch (not the announced size), and then forgets what was written."""
        ...

    def close(self) -> None:
        """Let go; what was written stays for a later upload of the same digest."""
        ...


class Parts(Protocol):
    """A store of parts."""

    def has(self, digest: Digest) -> bool:
        """Whether the part is here, whole."""
        ...

    def size(self, digest: Digest) -> int:
        """Bytes of a part. Raises PartMissing."""
        ...

    def view(self, digest: Digest) -> memoryview:
        """A part's bytes; writes to the view never reach the store. Raises PartMissing."""
        ...

    def put(self, buffers: Sequence[Buffer]) -> Digest:
        """Keep the joined buffers. A part that is already here is not written again. Raises StorageFull."""
        ...

    def upload(self, digest: Digest, size: int, sender: str = "") -> Upload:
        """Begin, or go on with, receiving a part. Two senders of one part do not meet until it is whole.

        A sender that begins again ends what it had under way: two writers would mix their bytes.
        """
        ...

    def arrived(self, digest: Digest, sender: str = "") -> int:
        """How many bytes of a part an earlier, cut upload left."""
        ...

    def drop(self, digest: Digest) -> None:
        """Forget a part, if it is here."""
        ...

    def digests(self) -> Iterable[Digest]:
        """The parts that are here."""
        ...


def digest_of(buffers: Iterable[Buffer]) -> Digest:
    """SHA-256 of the joined buffers."""
    sha = hashlib.sha256()
    for buffer in buffers:
        sha.update(buffer)
    return Digest(sha.hexdigest())


class MemoryParts:
    """Parts in a dictionary."""

    def __init__(self) -> None:
        self._held: dict[Digest, bytes] = {}
        self._arriving: dict[tuple[Digest, str], bytearray] = {}

    def has(self, digest: Digest) -> bool:
        return digest in self._held

    def size(self, digest: Digest) -> int:
        return len(self._get(digest))

    def view(self, digest: Digest) -> memoryview:
        # A copy, as a mapped file's private pages would be: a stray write must not reach the store.
        return memoryview(bytearray(self._get(digest)))

    def put(self, buffers: Sequence[Buffer]) -> Digest:
        digest = digest_of(buffers)
        if digest not in self._held:
            self._held[digest] = b"".join(buffers)
        return digest

    def upload(self, digest: Digest, size: int, sender: str = "") -> MemoryUpload:
        return MemoryUpload(self, digest, size, sender)

    def arrived(self, digest: Digest, sender: str = "") -> int:
        return len(self._arriving.get((digest, sender), b""))

    def drop(self, digest: Digest) -> None:
        self._held.pop(digest, None)

    def digests(self) -> Iterable[Digest]:
        return tuple(self._held)

    def _get(self, digest: Digest) -> bytes:
        try:
            return self._held[digest]
        except KeyError:
            raise missing(digest) from None


class MemoryUpload:
    """An upload into a dictionary."""

    def __init__(self, parts: MemoryParts, digest: Digest, size: int, sender: str) -> None:
        self._parts, self._digest, self._size, self._sender = parts, digest, size, sender
        self._bytes = parts._arriving.setdefault((digest, sender), bytearray())
        self.offset = len(self._bytes)

    def write(self, chunk: Buffer) -> None:
        self.offset = within(self.offset + len(chunk), self._size)
        self._bytes += chunk

    def commit(self) -> Digest:
        self._parts._arriving.pop((self._digest, self._sender), None)
        agree(self._digest, digest_of([self._bytes]))
        whole(self._digest, len(self._bytes), self._size)
        return self._parts.put([bytes(self._bytes)])

    def close(self) -> None:
        return


class FolderParts:
    """Parts as files of one folder, `ab/abcd...`. `durable`: a part that was kept survives a power cut (fsync)."""

    def __init__(self, folder: Path, durable: bool = True) -> None:
        self.folder = folder
        self.durable = durable
        self._tmp = folder / "tmp"
        self._arriving: dict[Path, FolderUpload] = {}
        self._lock = threading.Lock()
        with room(self._tmp / "parts"):
            self._tmp.mkdir(parents=True, exist_ok=True)

    def path(self, digest: Digest) -> Path:
        """Where a part lies, or would lie."""
        return self.folder / check_digest(digest)[:2] / digest

    def has(self, digest: Digest) -> bool:
        return self.path(digest).exists()

    def size(self, digest: Digest) -> int:
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            raise missing(digest) from None

    def view(self, digest: Digest) -> memoryview:
        try:
            with self.path(digest).open("rb") as file:
                # A file without bytes cannot be mapped.
                size = os.fstat(file.fileno()).st_size
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size else bytearray())
        except FileNotFoundError:
            raise missing(digest) from None

    def put(self, buffers: Sequence[Buffer]) -> Digest:
        digest = digest_of(buffers)
        if not self.has(digest):
            temporary = self._tmp / str(uuid.uuid4())
            with room(temporary), temporary.open("wb", buffering=0) as file:
                write_all(file.fileno(), buffers)
            self.adopt(temporary, digest)
        return digest

    def upload(self, digest: Digest, size: int, sender: str = "") -> FolderUpload:
        return FolderUpload(self, digest, size, self.tmp(digest, sender))

    def arrived(self, digest: Digest, sender: str = "") -> int:
        try:
            return self.tmp(digest, sender).stat().st_size
        except FileNotFoundError:
            return 0

    def tmp(self, digest: Digest, sender: str) -> Path:
        """Where a part of a sender arrives."""
        return self._tmp / f"{check_digest(digest)}{sender}"

    def instead(self, path: Path, upload: FolderUpload) -> FolderUpload | None:
        """Note the one upload that writes to a path; gives the one before."""
        with self._lock:
            before, self._arriving[path] = self._arriving.get(path), upload
            return before

    def over(self, path: Path, upload: FolderUpload) -> None:
        """Note that an upload writes no more."""
        with self._lock:
            if self._arriving.get(path) is upload:
                del self._arriving[path]

    def drop(self, digest: Digest) -> None:
        self.path(digest).unlink(missing_ok=True)

    def digests(self) -> Iterable[Digest]:
        return tuple(Digest(f.name) for f in self.folder.glob("??/*"))

    def sweep(self) -> None:
        """Forget the writes that a killed process left half done. Uploads can go on, for a day."""
        before = time.time() - LEFT_SECONDS
        for leftover in self._tmp.iterdir():
            if len(leftover.name) < DIGEST_LENGTH or modified(leftover) < before:
                leftover.unlink(missing_ok=True)

    def adopt(self, temporary: Path, digest: Digest) -> None:
        """Give a whole file its name: fsync the file, rename, fsync the folder, and the one above where the folder is new."""
        target = self.path(digest)
        new = not target.parent.exists()
        with room(temporary):
            target.parent.mkdir(exist_ok=True)
            if self.durable:
                sync(temporary)
        temporary.replace(target)
        if self.durable:
            sync(target.parent)
            if new:
                sync(self.folder)


class FolderUpload:
    """An upload into a folder: bytes append to `tmp/<digest>`, hashed as they come, so that a cut upload goes on.

    One lock for all that it does: a call whose line is cut is let go while its last write is still under way on a thread.
    """

    def __init__(self, parts: FolderParts, digest: Digest, size: int, path: Path) -> None:
        self._parts, self._digest, self._size, self._path = parts, digest, size, path
        self._lock = threading.Lock()
        self._sha = hashlib.sha256()
        self._file: FileIO | None = None
        with self._lock:
            before = parts.instead(path, self)
            if before is not None:
                before.close()
            try:
                self._begin()
            except BaseException:
                parts.over(path, self)
                raise

    def _begin(self) -> None:
        """Go on behind what is there."""
        self.offset = self._reread()
        with room(self._path):
            self._file = self._path.open("ab", buffering=0)

    def _reread(self) -> int:
        """Hash what an earlier, cut upload left."""
        if not self._path.exists():
            return 0
        with self._path.open("rb") as file:
            while block := file.read(1 << 20):
                self._sha.update(block)
            return file.tell()

    def write(self, chunk: Buffer) -> None:
        with self._lock:
            file = self._open()
            self.offset = within(self.offset + len(chunk), self._size)
            self._sha.update(chunk)
            with room(self._path):
                write_all(file.fileno(), [chunk])

    def commit(self) -> Digest:
        with self._lock:
            self._open()
            digest = Digest(self._sha.hexdigest())
            try:
                agree(self._digest, digest)
                whole(digest, self.offset, self._size)
                self._parts.adopt(self._path, digest)
            except Malformed:
                self._path.unlink(missing_ok=True)
                raise
            finally:
                self._end()
            return digest

    def close(self) -> None:
        with self._lock:
            self._end()

    def _open(self) -> FileIO:
        if self._file is None:
            raise Stale(f"The upload of part {self._digest[:12]} has ended", "The next report tells where to go on")
        return self._file

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
        self._parts.over(self._path, self)


class room:  # noqa: N801 - reads as a word in a with statement
    """Turns a full disk into StorageFull, and forgets the file that did not fit."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            self._path.unlink(missing_ok=True)
            raise StorageFull(
                f"No room for a part in {self._path.parent.parent}", "Free disk space; the transfer is tried again by itself"
            ) from error


def write_all(descriptor: int, buffers: Iterable[Buffer]) -> None:
    """Write whole buffers: one system call may take less than it is given (2 GiB at most)."""
    for buffer in buffers:
        rest = memoryview(buffer).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def modified(path: Path) -> float:
    """When a file was last written; never, if somebody has just taken it away."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def sync(path: Path) -> None:
    """fsync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def within(offset: int, size: int) -> int:
    """The offset, if no more was sent than announced."""
    if offset > size:
        raise TooLarge(f"A part of {size} bytes was announced and {offset} came", "Send the part that was announced")
    return offset


def agree(wanted: Digest, got: Digest) -> None:
    """Bytes fit their name."""
    if wanted != got:
        raise DigestMismatch(
            f"The bytes of part {wanted[:12]} have the digest {got[:12]}", "The transfer is tried again by itself"
        )


def whole(digest: Digest, came: int, size: int) -> None:
    """As many bytes came as were announced."""
    if came != size:
        raise PartMismatch(f"Part {digest[:12]} has {came} bytes; {size} were announced", "Announce the part's own size")


def missing(digest: Digest) -> PartMissing:
    """The error for a part that is not here."""
    return PartMissing(f"Part {digest[:12]} is not here", "Send it", digest=digest)
