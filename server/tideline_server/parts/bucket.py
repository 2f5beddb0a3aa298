"""Parts as objects of a bucket, with a cache on this machine's disk."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tideline.archive.errors import DigestMismatch, PartMissing
from tideline.archive.parts import Buffer, StoredPart, missing
from tideline.core.errors import Stale
from tideline.core.run import Digest
from tideline_server.parts.aside import BucketAside, copied, laid, object_of
from tideline_server.parts.cache import Cache
from tideline_server.parts.s3 import LARGE, Bucket, Sending

NAME = re.compile(r"([0-9a-f]{2})/(\1[0-9a-f]{62})")
PIECE = 1 << 20  # bytes that are passed on at once
LOCKS = 64


class Damaged(DigestMismatch):
    """An object whose bytes are not those of its name. An agent, to which it is told, does not blame the line for it."""


class BucketParts:
    """Parts as objects `ab/abcd...`. The bucket is the truth; what this machine writes and reads lies in a cache as well."""

    def __init__(self, bucket: Bucket, cache: Cache) -> None:
        self.bucket, self.cache = bucket, cache
        self._bringing = [threading.Lock() for _ in range(LOCKS)]

    def begin(self) -> None:
        """See that the bucket can be used, and forget what a killed process left half done. Raises ConfigRefused."""
        self.bucket.check()
        self.cache.sweep()

    def has(self, digest: Digest) -> bool:
        # The cache does not know what another coordinator has dropped.
        return self._size(digest) is not None

    def size(self, digest: Digest) -> int:
        try:
            return self.cache.size(digest)
        except PartMissing:
            return len(self.bring(digest))

    def view(self, digest: Digest) -> memoryview:
        try:
            return self.cache.view(digest)
        except PartMissing:
            return self.bring(digest)

    def put(self, buffers: Sequence[Buffer]) -> Digest:
        with self.cache.relieved():
            digest = self.cache.put(buffers)
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        self.keep(digest, size, pieces(buffers))
        self.cache.grew(size)
        return digest

    def upload(self, digest: Digest, size: int, sender: str = "") -> BucketUpload:
        return BucketUpload(self, digest, size, sender)

    def sync(self, digests: Iterable[Digest]) -> None:
        return  # an object has its name as soon as it is there

    def arrived(self, digest: Digest, sender: str = "") -> int:
        return self.cache.arrived(digest, sender)

    def drop(self, digest: Digest) -> None:
        self.bucket.drop(object_of(digest))
        self.cache.drop(digest)

    def aside(self) -> BucketAside:
        return BucketAside(self.bucket, self.cache.drop)

    def recover(self, before: float) -> None:
        for digest, name, told in list(laid(self.bucket)):
            if told.written < before:
                if self.bucket.size(object_of(digest)) != told.size:
                    copied(self.bucket, name, object_of(digest))
                self.bucket.drop(name)

    def _size(self, digest: Digest) -> int | None:
        """Bytes of a part's object, which is brought back if it lies aside; None if there is none."""
        size = self.bucket.size(object_of(digest))
        if size is not None:
            return size
        for each, name, _ in laid(self.bucket):
            if each == digest and copied(self.bucket, name, object_of(digest)):
                break
        return self.bucket.size(object_of(digest))  # somebody else may have brought it back

    def digests(self) -> Iterable[Digest]:
        return tuple(Digest(found[2]) for name in self.bucket.names() if (found := NAME.fullmatch(name)))

    def inventory(self) -> Mapping[Digest, StoredPart]:
        return {Digest(found[2]): told for name, told in self.bucket.listed() if (found := NAME.fullmatch(name))}

    def lies_there(self, digest: Digest, size: int) -> bool:
        """Whether the bucket has the part, as far as its size tells."""
        return self.bucket.size(object_of(digest)) == size

    def keep(self, digest: Digest, size: int, content: Iterator[Buffer]) -> None:
        """Write the part's object, unless it is there."""
        if self.lies_there(digest, size):
            return
        if size < LARGE:
            self.bucket.put(object_of(digest), b"".join(content))
        else:
            self.send(digest, size, content).complete()

    def send(self, digest: Digest, size: int, content: Iterator[Buffer]) -> Sending:
        """Send the bytes of a large part; it is not there before `complete`."""
        sending = Sending(self.bucket, object_of(digest), size)
        try:
            for piece in content:
                sending.write(piece)
        except BaseException:
            sending.abort()
            raise
        return sending

    def bring(self, digest: Digest) -> memoryview:
        """Bring a part into the cache, once for all who wait for it, and map it. Raises PartMissing and DigestMismatch."""
        with self._bringing[int(digest[:2], 16) % LOCKS]:
            with suppress(PartMissing):
                return self.cache.view(digest)
            with suppress(DigestMismatch):
                return self.fetch(digest)
            return self.fetch(digest)  # the line may be to blame; if not, the object is

    def fetch(self, digest: Digest) -> memoryview:
        """Read a part's object into the cache. Raises PartMissing and DigestMismatch."""
        name, size = object_of(digest), self._size(digest)
        if size is None:
            raise missing(digest)
        try:
            with self.cache.relieved():
                return self.cache.receive(digest, self.bucket.read(name, size))
        except DigestMismatch:
            raise Damaged(f"The bytes of {self.bucket.address}/{name} are not those of its name", "Restore that object") from None


class BucketUpload:
    """An upload that is collected in the cache, so that it can go on, and gets to the bucket when all of it is here.

    A large part is sent when it is finished and appears when it is committed: others need not wait while it is sent.
    """

    def __init__(self, parts: BucketParts, digest: Digest, size: int, sender: str) -> None:
        self._parts, self._digest, self._size = parts, digest, size
        self._lock = threading.Lock()
        self._sending: Sending | None = None
        with parts.cache.relieved():
            self._local = parts.cache.upload(digest, size, sender)
        self._path = parts.cache.tmp(digest, sender)
        self.offset = self._local.offset

    def write(self, chunk: Buffer) -> None:
        with self._parts.cache.relieved():
            self._local.write(chunk)
        self.offset = self._local.offset

    def finish(self) -> None:
        with self._lock:
            self._finish()
            if self._sending is None and self._size >= LARGE and not self._parts.lies_there(self._digest, self._size):
                self._sending = self._parts.send(self._digest, self._size, blocks(self._path))

    def commit(self) -> Digest:
        with self._lock:
            self._finish()
            sending, self._sending = self._sending, None
            if sending is not None:
                sending.complete()
            else:  # it is small, or it was there; then it may have been dropped since
                self._parts.keep(self._digest, self._size, blocks(self._path))
            digest = self._local.commit()
        self._parts.cache.grew(self._size)
        return digest

    def close(self) -> None:
        with self._lock:
            self._abort()
            self._local.close()

    def discard(self) -> None:
        with self._lock:
            self._abort()
            self._local.discard()

    def _abort(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.abort()

    def _finish(self) -> None:
        with self._parts.cache.relieved():
            self._local.finish()


def pieces(buffers: Iterable[Buffer]) -> Iterator[Buffer]:
    """The bytes of buffers, a little at a time."""
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        for at in range(0, len(view), PIECE):
            yield view[at : at + PIECE]


def blocks(path: Path) -> Iterator[Buffer]:
    """The bytes of an upload's file, a little at a time. Raises Stale where the same sender has begun again, and committed."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise Stale("The upload has ended", "The next report tells where to go on") from None
    with file:
        while block := file.read(PIECE):
            yield block
