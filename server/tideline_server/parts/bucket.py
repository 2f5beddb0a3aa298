"""Parts as objects of a bucket, with a cache on this machine's disk. Objects are put aside before they are destroyed."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tideline.archive.digests import PATTERN, PREFIX, Buffer, digest_of, shard_of
from tideline.archive.errors import DigestMismatch, PartMissing
from tideline.archive.folder import ASIDE, DAMAGED
from tideline.archive.parts import StoredPart, damaged, missing
from tideline.archive.records import FOLDER, name_of
from tideline.archive.records import NAME as RECORD
from tideline.core.errors import Stale, Unreachable
from tideline.core.run import Digest
from tideline_server.parts.cache import Cache
from tideline_server.parts.s3 import LARGE, Bucket, Sending

T = TypeVar("T")
LAID = re.compile(rf"(?:{ASIDE}|{DAMAGED})/({PATTERN})\.[0-9a-f]{{32}}")
AT_ONCE = 8  # requests: a batch must be done before the database ends a transaction that says nothing
COPIED = 5 << 30  # bytes of the largest object that S3 copies


def object_of(digest: Digest) -> str:
    """The name of a part's object below the prefix. Raises BadName."""
    return f"{shard_of(digest)}/{digest}"


class BucketAside:
    """Objects put aside: copied to a name of their own, and then deleted at their place.

    Nobody but who took an object, or `recover` long after, deletes its copy: a deletion whose answer was lost may still come.
    """

    def __init__(self, bucket: Bucket, forget: Callable[[Digest], object]) -> None:
        self._bucket, self._forget, self._whose = bucket, forget, uuid.uuid4().hex
        self._taken: set[Digest] = set()
        self._unsure: set[Digest] = set()  # whose deletion was not answered

    def take(self, digests: Collection[Digest]) -> None:
        at_once(self._take, sorted(digests))

    def _take(self, digest: Digest) -> None:
        self._taken.add(digest)
        if copied(self._bucket, object_of(digest), self._path(digest)):
            self._unsure.add(digest)
            self._bucket.drop(object_of(digest))
            self._unsure.discard(digest)
        self._forget(digest)

    def back(self) -> None:
        at_once(self._back, sorted(self._taken))

    def _back(self, digest: Digest) -> None:
        copied(self._bucket, self._path(digest), object_of(digest))
        if digest not in self._unsure:
            self._bucket.drop(self._path(digest))
        self._taken.discard(digest)

    def destroy(self) -> None:
        at_once(self._destroy, sorted(self._taken))

    def _destroy(self, digest: Digest) -> None:
        self._bucket.drop(self._path(digest))
        self._taken.discard(digest)

    def _path(self, digest: Digest) -> str:
        return f"{ASIDE}/{digest}.{self._whose}"


def laid(bucket: Bucket, within: str = ASIDE) -> Iterator[tuple[Digest, str, StoredPart]]:
    """What lies aside: the part, its copy's name, and since when."""
    for name, entry in bucket.listed(within):
        if found := LAID.fullmatch(name):
            yield Digest(found[1]), name, entry


def copied(bucket: Bucket, name: str, to: str) -> bool:
    """Copy an object; False if it is not there, or is one that cannot be copied: that one stays where it is."""
    try:
        return bucket.copy(name, to)
    except Unreachable:
        if (bucket.size(name) or 0) <= COPIED:
            raise
        return False


def at_once(work: Callable[[T], object], each: Collection[T]) -> None:
    """Do it for each, several at a time. Raises what one raised, once those that were begun have ended."""
    if not each:
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(each)), thread_name_prefix="tideline-aside") as threads:
        under_way = [threads.submit(work, one) for one in each]
        try:
            for one in under_way:
                one.result()
        finally:
            for one in under_way:
                one.cancel()


NAME = re.compile(rf"([0-9a-f]{{2}})/({PREFIX}\1[0-9a-f]{{62}})")
PIECE = 1 << 20  # bytes that are passed on at once
LOCKS = 64


class BucketParts:
    """Parts as objects `ab/abcd...`. The bucket is the truth; what this machine writes and reads lies in a cache as well."""

    def __init__(self, bucket: Bucket, cache: Cache) -> None:
        self.bucket, self.cache = bucket, cache
        self._bringing = [threading.Lock() for _ in range(LOCKS)]

    def records(self, chain: str) -> BucketRecords:
        return BucketRecords(self.bucket, f"{FOLDER}/{chain}")

    def begin(self) -> None:
        """See that the bucket can be used, and forget what a killed process left half done. Raises ConfigRefused."""
        self.bucket.check()
        self.cache.sweep()

    @property
    def where(self) -> str:
        return str(self.bucket.address)

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

    def peek(self, digest: Digest) -> memoryview:
        return self.view(digest)  # at the end another copy would be looked at, which was brought in place of a damaged one

    def put(self, buffers: Sequence[Buffer]) -> Digest:
        with self.cache.relieved():
            digest = self.cache.put(buffers)
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        self.store(digest, size, pieces(buffers))
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
        for digest, name, entry in list(laid(self.bucket)):
            if entry.written < before:
                if self.bucket.size(object_of(digest)) != entry.size:
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

    def damaged(self) -> Sequence[Digest]:
        return (*(digest for digest, _, _ in laid(self.bucket, DAMAGED)), *self.cache.damaged())

    def clear_damaged(self, digest: Digest) -> None:
        for each, name, _ in tuple(laid(self.bucket, DAMAGED)):
            if each == digest:
                self.bucket.drop(name)
        self.cache.clear_damaged(digest)

    def digests(self) -> Iterable[Digest]:
        return tuple(self.inventory())

    def inventory(self) -> Mapping[Digest, StoredPart]:
        return {Digest(found[2]): entry for name, entry in self.bucket.listed() if (found := NAME.fullmatch(name))}

    def is_stored(self, digest: Digest, size: int) -> bool:
        """Whether the part's object is there, whole: it is read, since what is damaged must be written again."""
        return self.bucket.size(object_of(digest)) == size and self.sound(digest, object_of(digest), size)

    def sound(self, digest: Digest, name: str, size: int) -> bool:
        """Whether an object's bytes are those of a part."""
        return digest_of(self.bucket.read(name, size)) == digest

    def store(self, digest: Digest, size: int, content: Iterator[Buffer]) -> None:
        if self.is_stored(digest, size):
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
        """Bring a part into the cache, once for all who wait for it, and map it. Raises PartMissing and PartDamaged."""
        with self._bringing[int(shard_of(digest), 16) % LOCKS]:
            with suppress(PartMissing):
                return self.cache.view(digest)
            with suppress(DigestMismatch):
                return self.fetch(digest)
            with suppress(DigestMismatch):
                return self.fetch(digest)  # the line may be to blame; if not, the object is
            self.put_damaged_aside(digest)
            raise damaged(digest)

    def put_damaged_aside(self, digest: Digest) -> None:
        """Put an object aside whose bytes are not those of its name. One that is too large to be copied stays, until it is
        written over; and what somebody has written again meanwhile comes back.
        """
        name, aside = object_of(digest), f"{DAMAGED}/{digest}.{uuid.uuid4().hex}"
        if copied(self.bucket, name, aside):
            self.bucket.drop(name)
            if self.sound(digest, aside, self.bucket.size(aside) or 0):
                copied(self.bucket, aside, name)
                self.bucket.drop(aside)

    def fetch(self, digest: Digest) -> memoryview:
        """Read a part's object into the cache. Raises PartMissing and DigestMismatch."""
        name, size = object_of(digest), self._size(digest)
        if size is None:
            raise (damaged if any(each == digest for each, _, _ in laid(self.bucket, DAMAGED)) else missing)(digest)
        with self.cache.relieved():
            return self.cache.receive(digest, self.bucket.read(name, size))


class BucketRecords:
    """Records as objects. Who write one at once share a database, and so write the same."""

    def __init__(self, bucket: Bucket, folder: str) -> None:
        self._bucket, self._folder = bucket, folder

    def last(self) -> int:
        names = (name.rpartition("/")[2] for name, _ in self._bucket.listed(self._folder))
        return max((int(found[1]) for name in names if (found := RECORD.fullmatch(name))), default=0)

    def read(self, number: int) -> bytes | None:
        name = f"{self._folder}/{name_of(number)}"
        size = self._bucket.size(name)
        return None if size is None else b"".join(bytes(piece) for piece in self._bucket.read(name, size))

    def write(self, number: int, content: bytes) -> bool:
        before = self.read(number)
        if before is None:
            self._bucket.put(f"{self._folder}/{name_of(number)}", content)
        return before in (None, content)


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
            if self._sending is None and self._size >= LARGE and not self._parts.is_stored(self._digest, self._size):
                self._sending = self._parts.send(self._digest, self._size, blocks(self._path))

    def commit(self) -> Digest:
        with self._lock:
            self._finish()
            sending, self._sending = self._sending, None
            if sending is not None:
                sending.complete()
            else:  # it is small, or it was there; then it may have been dropped since
                self._parts.store(self._digest, self._size, blocks(self._path))
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
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        for at in range(0, len(view), PIECE):
            yield view[at : at + PIECE]


def blocks(path: Path) -> Iterator[Buffer]:
    """The bytes of an upload's file, a little at a time. Raises Stale where the same sender has begun again, and committed."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise Stale("The upload has ended", "The next report says where to continue") from None
    with file:
        while block := file.read(PIECE):
            yield block
