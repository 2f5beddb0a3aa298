"""Parts as the files of one folder."""

from __future__ import annotations

import errno
import mmap
import os
import re
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from tideline.archive.digests import LENGTH, PATTERN, Buffer, Hasher, agree, check_digest, digest_of, shard_of
from tideline.archive.disk.spares import LEAST_BYTES, Reach, Spares, arrived_at, reach_of
from tideline.archive.errors import PartMissing
from tideline.archive.parts import SMALL_BYTES, StoredPart, damaged, missing, whole, within
from tideline.archive.sums import SUMS
from tideline.archive.watching import note
from tideline.core.errors import Malformed, Stale, StorageFull
from tideline.core.run import Digest

ASIDE, DAMAGED = "aside", "damaged"  # where lies what was put aside, and what was found to be damaged
NAME = re.compile(PATTERN)  # of a part; what else lies in its folder is not ours
LAID = re.compile(rf"({PATTERN})\.[0-9a-f]{{32}}")  # a part's name in either: its own, and whose batch or which time it is
LEFT_SECONDS = 86400.0  # how long a cut upload may wait for its sender to come back


class FolderParts:
    """Parts as files of one folder, `ab/abcd...`. `durable`: a part that was kept survives a power cut (fsync).

    `tmp` names the folder beneath for what is under way: two processes that take in uploads need one each.
    """

    def __init__(self, folder: Path, durable: bool = True, tmp: str = "tmp") -> None:
        self.folder = folder
        self.durable = durable
        self._tmp = folder / tmp
        self._arriving: dict[Path, FolderUpload] = {}
        self._lock = threading.Lock()
        self._synced: set[Path] = set()
        self.spares = Spares(self._tmp)
        with room(self._tmp / "parts"):
            self._tmp.mkdir(parents=True, exist_ok=True)

    @property
    def where(self) -> str:
        return str(self.folder)

    def path(self, digest: Digest) -> Path:
        return self.folder / shard_of(digest) / digest

    def has(self, digest: Digest) -> bool:
        return self.path(digest).exists() or self._recovered(digest)

    def size(self, digest: Digest) -> int:
        while self.has(digest):
            with suppress(FileNotFoundError):  # put aside a moment ago: once more
                return self.path(digest).stat().st_size
        raise self._absent(digest)

    def view(self, digest: Digest) -> memoryview:
        while True:
            if (view := self._whole(digest)) is not None:
                return note(self, digest, view)
            if not self._recovered(digest):
                raise self._absent(digest)

    def peek(self, digest: Digest) -> memoryview:
        with suppress(FileNotFoundError), self.path(digest).open("rb") as file:
            if os.fstat(file.fileno()).st_size > SMALL_BYTES:  # what is read at once, nobody reads again at the end
                return note(self, digest, mapped_of(file), partial(self._is_file, digest, os.fstat(file.fileno()).st_ino))
        return self.view(digest)

    def _is_file(self, digest: Digest, inode: int) -> bool:
        """Whether a part's file is the one with this number, or gone: then nobody has written another."""
        try:
            return self.path(digest).stat().st_ino == inode
        except FileNotFoundError:
            return True

    def put(self, buffers: Sequence[Buffer]) -> Digest:
        digest = digest_of(buffers)
        while not self._safe(digest):
            temporary = self._tmp / str(uuid.uuid4())
            self._write(temporary, buffers)
            with suppress(FileNotFoundError):  # another process has just started, and swept it away: once more
                self.name(temporary, digest)
                self.sync([digest])
                return digest
        return digest

    def _write(self, path: Path, buffers: Sequence[Buffer]) -> None:
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        if size >= LEAST_BYTES:
            self.spares.take(size, path)
        with room(path), FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+") as file:
            write_all(file.fileno(), buffers)
            file.truncate(size)
            self.fsync(file.fileno())

    def upload(self, digest: Digest, size: int, sender: str = "") -> FolderUpload:
        return FolderUpload(self, digest, size, self.tmp(digest, sender))

    def arrived(self, digest: Digest, sender: str = "") -> int:
        try:
            return arrived_at(self.tmp(digest, sender))
        except FileNotFoundError:
            return 0

    def tmp(self, digest: Digest, sender: str) -> Path:
        return self._tmp / f"{check_digest(digest)}{sender}"

    def instead(self, path: Path, upload: FolderUpload) -> FolderUpload | None:
        """Note the one upload that writes to a path; gives the one before."""
        with self._lock:
            before, self._arriving[path] = self._arriving.get(path), upload
            return before

    def over(self, path: Path, upload: FolderUpload) -> None:
        with self._lock:
            if self._arriving.get(path) is upload:
                del self._arriving[path]

    def drop(self, digest: Digest) -> None:
        self.spares.retain(self.path(digest))

    def aside(self) -> FolderAside:
        return FolderAside(self)

    def recover(self, before: float) -> None:
        for path in self._laid():
            if modified(path) < before:
                move(path, self.path(Digest(path.stem)))

    def damaged(self) -> Sequence[Digest]:
        return tuple(Digest(path.name.partition(".")[0]) for path in self._laid(within=DAMAGED))

    def clear_damaged(self, digest: Digest) -> None:
        for path in self._laid(digest, DAMAGED):
            path.unlink(missing_ok=True)

    def digests(self) -> Iterable[Digest]:
        return tuple(Digest(f.name) for f in self.folder.glob("??/*") if NAME.fullmatch(f.name))

    def inventory(self) -> Mapping[Digest, StoredPart]:
        found = {}
        for file in self.folder.glob("??/*"):
            with suppress(FileNotFoundError):  # dropped a moment ago
                status = file.stat()
                found[Digest(file.name)] = StoredPart(status.st_mtime, status.st_size)
        return found

    def sweep(self) -> None:
        """Forget the writes that a killed process left half done. Uploads can go on, for a day."""
        before = time.time() - LEFT_SECONDS
        for leftover in self._tmp.iterdir():
            if len(leftover.name) < LENGTH or modified(leftover) < before:
                leftover.unlink(missing_ok=True)

    def name(self, temporary: Path, digest: Digest) -> None:
        target = self.path(digest)
        with room(temporary):
            target.parent.mkdir(exist_ok=True)
            temporary.replace(target)

    def _safe(self, digest: Digest) -> bool:
        """Whether the part is in its place, whole. Who wrote it may have died before all of it was synced: that is done now."""
        with suppress(FileNotFoundError):
            if self._whole(digest) is None:
                return False
            if self.durable:
                sync(self.path(digest))
            self.sync([digest])
            return self.path(digest).exists()
        return False

    def _recovered(self, digest: Digest) -> bool:
        """Whether the part lay aside, or somebody was faster to bring it back; it is in its place."""
        for path in self._laid(digest):
            move(path, self.path(digest))
        return self.path(digest).exists()

    def _absent(self, digest: Digest) -> PartMissing:
        return damaged(digest) if digest in self.damaged() else missing(digest)

    def _whole(self, digest: Digest) -> memoryview | None:
        """A part's bytes, if it is in its place and they are those of its name. Else it is put aside, and looked at once more
        where nobody else finds it: one that somebody has written again meanwhile goes back.
        """
        with suppress(FileNotFoundError):
            view = mapped(self.path(digest))
            if SUMS.same(digest, view) or digest_of([view]) == digest:
                return view
            self._put_damaged_aside(digest)
        return None

    def _put_damaged_aside(self, digest: Digest) -> None:
        aside = self.folder / DAMAGED / f"{digest}.{uuid.uuid4().hex}"
        move(self.path(digest), aside)
        with suppress(FileNotFoundError):
            if digest_of([mapped(aside)]) == digest:
                move(aside, self.path(digest))

    def _laid(self, digest: str = "", within: str = ASIDE) -> list[Path]:
        try:
            every = list((self.folder / within).iterdir())
        except FileNotFoundError:  # nothing ever did
            return []
        return [path for path in every if path.name.startswith(digest) and LAID.fullmatch(path.name)]

    def fsync(self, descriptor: int) -> None:
        if self.durable:
            os.fsync(descriptor)

    def sync(self, digests: Iterable[Digest]) -> None:
        if not self.durable:
            return
        folders = {self.path(digest).parent for digest in digests}
        for folder in sorted(folders):
            sync(folder)
        if folders - self._synced:  # what has a name that is safe keeps it: nobody takes these folders away
            sync(self.folder)
            self._synced |= folders


class FolderAside:
    """Files put aside, under names that nobody else destroys. Nothing is synced: wherever a power cut leaves one, it is found."""

    def __init__(self, parts: FolderParts) -> None:
        self._parts, self._whose = parts, uuid.uuid4().hex
        self._taken: list[Digest] = []

    def take(self, digests: Collection[Digest]) -> None:
        for digest in digests:
            self._taken.append(digest)
            path = self._parts.path(digest)
            with suppress(OSError):  # since when it lies aside helps `recover` to leave the living alone, and no more
                os.utime(path)
            move(path, self._path(digest))

    def back(self) -> None:
        while self._taken:
            move(self._path(self._taken[-1]), self._parts.path(self._taken[-1]))
            self._taken.pop()

    def destroy(self) -> None:
        while self._taken:
            self._parts.spares.retain(self._path(self._taken[-1]))
            self._taken.pop()
        self._parts.spares.expire()

    def _path(self, digest: Digest) -> Path:
        return self._parts.folder / ASIDE / f"{digest}.{self._whose}"


def move(path: Path, to: Path) -> None:
    to.parent.mkdir(exist_ok=True)
    with suppress(FileNotFoundError):
        path.replace(to)


class FolderUpload:
    """An upload into a folder: bytes append to `tmp/<digest>`, hashed as they come, so that a cut upload goes on.

    One lock for all that it does: a call whose line is cut is let go while its last write is still under way on a thread.
    """

    def __init__(self, parts: FolderParts, digest: Digest, size: int, path: Path) -> None:
        self._parts, self._digest, self._size, self._path = parts, digest, size, path
        self._lock = threading.RLock()
        self._file: FileIO | None = None
        self._reach: Reach | None = None
        self._finished = False
        with self._lock:
            before = parts.instead(path, self)
            if before is not None:
                before.close()
            try:
                with room(path):
                    self._begin(size)
                    self._file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
                # Go on behind what is there. Not by appending: another process may write the same bytes to the same file.
                self._made = Hasher(size)
                self.offset = self._made.read(self._file, arrived_at(path))
                self._inode = os.fstat(self._file.fileno()).st_ino
            except BaseException:
                self.close()
                raise

    def _begin(self, size: int) -> None:
        """Have a spare file to write over where nothing has come yet. Before it has its name stands that nothing has."""
        if not self._path.exists():
            reach_of(self._path).unlink(missing_ok=True)
            if size >= LEAST_BYTES:
                self._reach = Reach(self._path)
                self._reach.note(0)
                if not self._parts.spares.take(size, self._path):
                    self._let_go_of_reach()
        elif reach_of(self._path).exists():
            self._reach = Reach(self._path)

    def _let_go_of_reach(self) -> None:
        """The file's size tells again how much has come."""
        reach_of(self._path).unlink(missing_ok=True)
        if self._reach is not None:
            self._reach.close()
            self._reach = None

    def write(self, chunk: Buffer) -> None:
        with self._lock:
            file = self._open()
            offset = within(self.offset + len(chunk), self._size)
            self._made.update(chunk)
            with room(self._path):
                write_all(file.fileno(), [chunk])
            self.offset = offset
            if self._reach is not None:
                self._reach.note(offset)

    def finish(self) -> None:
        """Check, and fsync. Done once; a message of a thousand parts holds no thousand files open."""
        with self._lock:
            if self._finished:
                return
            file = self._open()
            try:
                agree(self._digest, self._made.digest)
                whole(self._digest, self.offset, self._size)
                if self._reach is not None:
                    file.truncate(self._size)
                    self._let_go_of_reach()
                with room(self._path):
                    self._parts.fsync(file.fileno())
            except BaseException as error:
                self.discard() if isinstance(error, Malformed) else self.close()
                raise
            file.close()
            self._file, self._finished = None, True

    def commit(self) -> Digest:
        with self._lock:
            self.finish()
            try:
                self._agree()
                self._parts.name(self._path, self._digest)
            finally:
                self.close()
            return self._digest

    def _agree(self) -> None:
        """The file is still ours, and not named by another process meanwhile or begun anew."""
        try:
            there = self._path.stat()
        except FileNotFoundError:
            raise ended(self._digest) from None
        if (there.st_ino, there.st_size) != (self._inode, self._size):
            raise ended(self._digest)

    def close(self) -> None:
        with self._lock:
            file, self._file, self._finished = self._file, None, False
            if file is not None:
                file.close()
            if self._reach is not None:
                self._reach.close()
                self._reach = None
            self._parts.over(self._path, self)

    def discard(self) -> None:
        with self._lock:
            self.close()
            self._path.unlink(missing_ok=True)
            reach_of(self._path).unlink(missing_ok=True)

    def _open(self) -> FileIO:
        if self._file is None:
            raise ended(self._digest)
        return self._file


def ended(digest: Digest) -> Stale:
    return Stale(f"The upload of part {digest[:12]} has ended", "The next report tells where to go on")


@contextmanager
def room(path: Path) -> Iterator[None]:
    """Turns a full disk into StorageFull, and drops the file that did not fit."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        path.unlink(missing_ok=True)
        Spares(path.parent).expire(0.0)
        what = f"No room for a part in {path.parent.parent}"
        raise StorageFull(what, "Free disk space; the transfer is tried again by itself") from error


def mapped(path: Path) -> memoryview:
    """A file's bytes, mapped privately, or read if it is small: they stay readable when the file is taken away."""
    with path.open("rb") as file:
        return mapped_of(file)


def mapped_of(file: BinaryIO) -> memoryview:
    """As `mapped`, of an open file."""
    if os.fstat(file.fileno()).st_size > SMALL_BYTES:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    return memoryview(bytearray(file.read()))


def write_all(descriptor: int, buffers: Iterable[Buffer]) -> None:
    """Write whole buffers: one system call may take less than it is given (2 GiB at most)."""
    for buffer in buffers:
        rest = memoryview(buffer).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
