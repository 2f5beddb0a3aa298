"""Where files lie, named by the digest of their bytes. Here: what a store of parts is, and one in a dictionary."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from tideline.archive.digests import BLOCK, Buffer, agree, digest_of
from tideline.archive.disk.spill import Blob, Spill
from tideline.archive.errors import DataTruncated, PartDamaged, PartMismatch, PartMissing, TooLarge
from tideline.archive.watching import note
from tideline.core.errors import Malformed
from tideline.core.run import Digest

MAX_PART_BYTES = 1 << 40
SMALL_BYTES = 1 << 16  # of a file that is read at once, so that whoever keeps its bytes keeps no file open
MIN_CHUNK, MAX_CHUNK = 1 << 16, 1 << 20
STREAMS = 8  # at once, where their number is not known
EASY_SECONDS, HARD_SECONDS = 0.1, 0.5  # a chunk that took less may be followed by a larger one, and after more by a smaller
CHUNKS = 4  # of a message, times the streams at once: each holds a few of them in memory, and all together about one message


@dataclass(frozen=True)
class StoredPart:
    """A part as it lies in its store: when it was written (seconds since the epoch), and its bytes."""

    written: float
    size: int


class Upload(Protocol):
    """A part on its way in. `offset` is how much is already there; `commit` names it if the digest fits."""

    offset: int

    def write(self, chunk: Buffer) -> None:
        """Append a chunk. Raises TooLarge, StorageFull, and Stale once the same sender has begun again."""

    def finish(self) -> None:
        """Check the bytes and see them safe, all but their name. Raises as `commit` does."""

    def commit(self) -> Digest:
        """Finish, and give the part its name (safe from a power cut after `Parts.sync`).

        Raises DigestMismatch or PartMismatch (not the announced size), and then forgets what was written.
        """

    def close(self) -> None:
        """Let go; what was written stays for a later upload of the same digest."""

    def discard(self) -> None:
        """Let go, and forget what was written and not committed."""


class Aside(Protocol):
    """Parts that are put aside before they are destroyed: as long as `destroy` has not been called, none is lost.

    What asks for one of them brings it back, at any time and in any process: bytes of one name are always the same. What a
    process leaves aside that dies, `Parts.recover` finds.
    """

    def take(self, digests: Collection[Digest]) -> None:
        """Put these parts aside too, those that are here. If it raises, some may lie aside: call `back`."""

    def back(self) -> None:
        """Bring back what was taken."""

    def destroy(self) -> None:
        """Destroy what was taken, but for what somebody has brought back."""


class Parts(Protocol):
    """A store of parts. A part that lies aside is here: `has`, `size` and `view` bring it back.

    A part whose bytes turn out to be others than those of its name is damaged: it is set aside under a name of its own, which
    nobody but the store's owner destroys, and is not here any more, so that it can be written again.
    """

    @property
    def where(self) -> str:
        """The place, as its owner knows it: a folder, or a bucket's address."""

    def has(self, digest: Digest) -> bool:
        """Whether the part is here. Its bytes are not looked at."""

    def size(self, digest: Digest) -> int:
        """Bytes of a part as they lie here. Raises PartMissing."""

    def view(self, digest: Digest) -> memoryview:
        """A part's bytes, which were held to its name just now; writes to the view never reach the store.

        Raises PartMissing, and PartDamaged for one that was found to be damaged and has not been written again.
        """

    def peek(self, digest: Digest) -> memoryview:
        """A part's bytes as they lie here, for who holds them to their name before they count. Raises as `view` does."""

    def put(self, buffers: Sequence[Buffer]) -> Digest:
        """Keep the joined buffers, and see them safe. A part that is here, and not damaged, is not written again.

        Raises StorageFull.
        """

    def damaged(self) -> Sequence[Digest]:
        """The damaged parts that were set aside and that nobody has cleared away, once for each time."""

    def clear_damaged(self, digest: Digest) -> None:
        """Destroy what lies of a damaged part; its bytes are not those of its name, and nobody can use them."""

    def upload(self, digest: Digest, size: int, sender: str = "") -> Upload:
        """Begin, or go on with, receiving a part. Two senders of one part do not meet until it is whole.

        A sender that begins again ends what it had under way: two writers would mix their bytes.
        """

    def sync(self, digests: Iterable[Digest]) -> None:
        """Make the names of committed parts survive a power cut: once for all parts of a message."""

    def arrived(self, digest: Digest, sender: str = "") -> int:
        """How many bytes of a part an earlier, cut upload left."""

    def drop(self, digest: Digest) -> None:
        """Forget a part at once, if it is here: for parts that nobody else may begin to need."""

    def aside(self) -> Aside:
        """Begin to put parts aside; nothing is taken yet."""

    def recover(self, before: float) -> None:
        """Bring back what was put aside before this time (seconds since the epoch): who did so has died since."""

    def digests(self) -> Iterable[Digest]:
        """The parts that are here."""

    def inventory(self) -> Mapping[Digest, StoredPart]:
        """The parts that are here, with what is known of each."""


class MemoryParts:
    """Parts in a dictionary. spill: what keeps their bytes, for many such stores; without one all are in memory.

    What lies in a spill's file is held to its name wherever it is read; memory is trusted.
    """

    def __init__(self, spill: Spill | None = None) -> None:
        self._spill = spill
        self._held: dict[Digest, bytes | Blob] = {}
        self._arriving: dict[tuple[Digest, str], bytearray] = {}
        self._aside: list[MemoryAside] = []
        self._damaged: list[Digest] = []

    def has(self, digest: Digest) -> bool:
        return digest in self._held or self._recovered(digest)

    @property
    def where(self) -> str:
        return "memory"

    def size(self, digest: Digest) -> int:
        return len(self._get(digest))

    def view(self, digest: Digest) -> memoryview:
        held = self._get(digest)
        # A copy, as a mapped file's private pages would be: a stray write must not reach the store.
        if isinstance(held, bytes):
            return memoryview(bytearray(held))
        view, on_disk = held.view(), held.on_disk
        if on_disk and digest_of([view]) != digest:
            self._damaged.append(digest)
            del self._held[digest]
            raise damaged(digest)
        return note(self, digest, view) if on_disk else view

    def peek(self, digest: Digest) -> memoryview:
        return self.view(digest)

    def put(self, buffers: Sequence[Buffer]) -> Digest:
        digest = digest_of(buffers)
        if digest not in self._held:
            self.hold(digest, b"".join(buffers))
        return digest

    def hold(self, digest: Digest, content: bytes) -> None:
        """Keep bytes that are known to have this digest. Raises StorageFull."""
        self._held[digest] = content if self._spill is None else self._spill.store(content)

    def share(self, digests: Iterable[Digest], other: MemoryParts) -> None:
        """Take parts of another such store: bytes never change, so that both may hold the same. Raises PartMissing."""
        self._held.update({digest: other._get(digest) for digest in digests})

    def upload(self, digest: Digest, size: int, sender: str = "") -> MemoryUpload:
        return MemoryUpload(self, digest, size, sender)

    def sync(self, digests: Iterable[Digest]) -> None:
        return

    def arrived(self, digest: Digest, sender: str = "") -> int:
        return len(self._arriving.get((digest, sender), b""))

    def drop(self, digest: Digest) -> None:
        self._held.pop(digest, None)

    def aside(self) -> MemoryAside:
        return MemoryAside(self)

    def recover(self, before: float) -> None:
        for batch in tuple(self._aside):
            batch.back()

    def damaged(self) -> Sequence[Digest]:
        return tuple(self._damaged)

    def clear_damaged(self, digest: Digest) -> None:
        self._damaged = [each for each in self._damaged if each != digest]

    def digests(self) -> Iterable[Digest]:
        return tuple(self._held)

    def inventory(self) -> Mapping[Digest, StoredPart]:
        return {digest: StoredPart(0.0, len(content)) for digest, content in self._held.items()}

    def _get(self, digest: Digest) -> bytes | Blob:
        if not self.has(digest):
            raise missing(digest)
        return self._held[digest]

    def _recovered(self, digest: Digest) -> bool:
        for batch in tuple(self._aside):
            if digest in batch.taken:
                self._held[digest] = batch.taken.pop(digest)
        return digest in self._held


class MemoryAside:
    """Parts put aside, in a dictionary. No time stands with them: all are old."""

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self.taken: dict[Digest, bytes | Blob] = {}

    def take(self, digests: Collection[Digest]) -> None:
        self._parts._aside = [*(batch for batch in self._parts._aside if batch is not self), self]
        self.taken |= {digest: self._parts._held.pop(digest) for digest in digests if digest in self._parts._held}

    def back(self) -> None:
        self._parts._held |= self.taken
        self.destroy()

    def destroy(self) -> None:
        self.taken = {}
        self._parts._aside = [batch for batch in self._parts._aside if batch is not self]


class MemoryUpload:
    """An upload into a dictionary."""

    def __init__(self, parts: MemoryParts, digest: Digest, size: int, sender: str) -> None:
        self._parts, self._digest, self._size, self._sender = parts, digest, size, sender
        self._bytes = parts._arriving.setdefault((digest, sender), bytearray())
        self.offset = len(self._bytes)

    def write(self, chunk: Buffer) -> None:
        self.offset = within(self.offset + len(chunk), self._size)
        self._bytes += chunk

    def finish(self) -> None:
        try:
            agree(self._digest, digest_of([self._bytes]))
            whole(self._digest, len(self._bytes), self._size)
        except Malformed:
            self.discard()
            raise

    def commit(self) -> Digest:
        self.finish()
        self.discard()
        if not self._parts.has(self._digest):
            self._parts.hold(self._digest, bytes(self._bytes))
        return self._digest

    def close(self) -> None:
        return

    def discard(self) -> None:
        self._parts._arriving.pop((self._digest, self._sender), None)


def bytes_of(held: bytes | Blob) -> bytes:
    return held if isinstance(held, bytes) else held.content()


def within(offset: int, size: int) -> int:
    if offset > size:
        raise TooLarge(f"A part of {size} bytes was announced and {offset} came", "Send the part that was announced")
    return offset


def whole(digest: Digest, came: int, size: int) -> None:
    if came != size:
        raise PartMismatch(f"Part {digest[:12]} has {came} bytes; {size} were announced", "Announce the part's own size")


def missing(digest: Digest) -> PartMissing:
    return PartMissing(f"Part {digest[:12]} is not here", "Send it", digest=digest)


def damaged(digest: Digest) -> PartDamaged:
    """The error for a part whose bytes were set aside. Of where it lies the store's owner is told: others may read this."""
    what = f"Part {digest[:12]} is damaged: the bytes that lay there were not those of its name"
    return PartDamaged(what, "Bring a good copy of it back", digest=digest)


class Intake(AbstractContextManager["Intake"]):
    """Opens each part when its first byte is due and finishes it with its last; `full` is called with each that is whole.

    What came of a part that is not whole stays, as with any upload, so that a cut stream can go on. With `later`, a part is
    synced to disk on one of its threads while the next one comes in, and `end`, not `full`, tells that all of them are.
    """

    def __init__(
        self,
        files: Iterable[tuple[Digest, int]],
        begin: Callable[[Digest, int], Upload],
        full: Callable[[Upload], object] = lambda upload: None,
        later: Executor | None = None,
    ) -> None:
        self.came = 0
        self.whole: list[Upload] = []
        self._files: Iterator[tuple[Digest, int]] = iter(files)
        self._begin, self._full, self._later = begin, full, later
        self._finishing: list[Future[None]] = []
        self._upload: Upload | None = None
        self._size = 0

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def room(self) -> int:
        """Bytes that the part at hand still takes; 0 where one is to be opened first, which reads what came of it before."""
        return 0 if self._upload is None else self._size - self._upload.offset

    def open(self) -> None:
        """Open the part that comes first, ahead of its bytes. Raises as `write` does."""
        self._due()

    def write(self, chunk: Buffer) -> None:
        """Take in the next bytes. Raises TooLarge beyond the last part, and what uploads raise."""
        rest = memoryview(chunk)
        self.came += len(rest)
        while rest:
            upload = self._due()
            if upload is None:
                raise TooLarge(f"{len(rest)} bytes follow the last part that was announced", "Send the parts that were announced")
            take = min(len(rest), self._size - upload.offset)
            upload.write(rest[:take])
            rest = rest[take:]

    def end(self) -> None:
        """No more bytes come. Raises DataTruncated if a part is not whole."""
        upload = self._due()
        for finishing in self._finishing:
            finishing.result()
        if upload is not None:
            what = f"The stream ended {self._size - upload.offset} bytes before the end of a part"
            raise DataTruncated(what, "It is sent again from there")

    def close(self) -> None:
        for upload in (*self.whole, *([self._upload] if self._upload else ())):
            upload.close()

    def _due(self) -> Upload | None:
        """The part that the next byte belongs to; whole ones are finished on the way. None after the last."""
        while True:
            if self._upload is None:
                if (following := next(self._files, None)) is None:
                    return None
                self._size = following[1]
                self._upload = self._begin(*following)
            if self._upload.offset < self._size:
                return self._upload
            done, self._upload = self._upload, None
            self.whole.append(done)
            if self._later is not None:
                self._finishing.append(self._later.submit(done.finish))
            else:
                done.finish()
                self._full(done)


def blocks(receive: Callable[[memoryview], int], nbytes: int, size: int = BLOCK) -> Iterator[memoryview]:
    """Bytes that come over a line, many at a time: TLS hands out 16 KiB at once, and to hash and write so few costs too much.

    receive: fills a buffer and gives how many bytes came, 0 at the end of the line. Ends early where the line does, and raises
    what `receive` raises, each after what had come.
    """
    room = memoryview(bytearray(min(nbytes, size)))
    while nbytes > 0:
        block, filled, cut = room[:nbytes], 0, None
        try:
            while filled < len(block) and (came := receive(block[filled:])):
                filled += came
        except OSError as error:
            cut = error
        yield block[:filled]
        if cut is not None:
            raise cut
        if filled < len(block):
            return
        nbytes -= filled


def commit(upload: Upload) -> None:
    """For a store that keeps each part as soon as it is whole."""
    upload.commit()


class Readable(Protocol):
    """What has parts to read."""

    def peek(self, digest: Digest) -> memoryview:
        """As `Parts.peek`."""


def chunks(
    parts: Readable, wanted: Iterable[tuple[Digest, int]], most: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[memoryview]:
    """The bytes of parts from offsets on as they lie, up to `most` at once, one part mapped at a time. Raises PartMissing.

    Nothing is held to its name here: the other end does so with all that comes.

    Chunks are small at first, and as long as each of them takes the line long: one that is cut in its middle is sent again, and
    a line that is cut more often than it passes a chunk would never get on.
    """
    size = min(MIN_CHUNK, most)
    for digest, offset in wanted:
        view = parts.peek(digest)
        while offset < len(view):
            began, at = clock(), offset
            offset += size
            yield view[at:offset]
            size = fitting(size, clock() - began, most)


def fitting(size: int, seconds: float, most: int) -> int:
    """The next chunk's size, from the seconds that one of a size took."""
    if seconds < EASY_SECONDS:
        return min(2 * size, most)
    return max(size // 2, min(MIN_CHUNK, most)) if seconds > HARD_SECONDS else size


def chunk_size(total: int, streams: int = STREAMS) -> int:
    """Bytes of a chunk for so many bytes in all, in so many streams at once."""
    return max(MIN_CHUNK, min(total // (CHUNKS * max(streams, 1)), MAX_CHUNK))
