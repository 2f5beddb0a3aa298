"""Where files lie, named by the SHA-256 of their bytes. Here: what a store of parts is, and one in a dictionary."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tideline.archive.errors import DigestMismatch, PartMismatch, PartMissing, TooLarge
from tideline.core.errors import Malformed
from tideline.core.run import Digest

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Lying:
    """A part as it lies in its store: when it was written (seconds since the epoch), and its bytes."""

    written: float
    size: int


class Upload(Protocol):
    """A part on its way in. `offset` is how much is already there; `commit` names it if the digest fits."""

    offset: int

    def write(self, chunk: Buffer) -> None:
        """Append a chunk. Raises TooLarge, StorageFull, and Stale once the same sender has begun again."""
        ...

    def finish(self) -> None:
        """Check the bytes and see them safe, all but their name. Raises as `commit` does."""
        ...

    def commit(self) -> Digest:
        """Finish, and give the part its name (safe from a power cut after `Parts.sync`).

        Raises DigestMismatch or PartMismatch (not the announced size), and then forgets what was written.
        """
        ...

    def close(self) -> None:
        """Let go; what was written stays for a later upload of the same digest."""
        ...

    def discard(self) -> None:
        """Let go, and forget what was written and not committed."""
        ...


class Aside(Protocol):
    """Parts that are put aside before they are destroyed: as long as `destroy` has not been called, none is lost.

    What asks for one of them brings it back, at any time and in any process: bytes of one name are always the same. What a
    process leaves aside that dies, `Parts.recover` finds.
    """

    def take(self, digests: Collection[Digest]) -> None:
        """Put these parts aside too, those that are here. If it raises, some may lie aside: call `back`."""
        ...

    def back(self) -> None:
        """Bring back what was taken."""
        ...

    def destroy(self) -> None:
        """Destroy what was taken, but for what somebody has brought back."""
        ...


class Parts(Protocol):
    """A store of parts. A part that lies aside is here: `has`, `size` and `view` bring it back."""

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
        """Keep the joined buffers, and see them safe. A part that is already here is not written again. Raises StorageFull."""
        ...

    def upload(self, digest: Digest, size: int, sender: str = "") -> Upload:
        """Begin, or go on with, receiving a part. Two senders of one part do not meet until it is whole.

        A sender that begins again ends what it had under way: two writers would mix their bytes.
        """
        ...

    def sync(self, digests: Iterable[Digest]) -> None:
        """Make the names of committed parts survive a power cut: once for all parts of a message."""
        ...

    def arrived(self, digest: Digest, sender: str = "") -> int:
        """How many bytes of a part an earlier, cut upload left."""
        ...

    def drop(self, digest: Digest) -> None:
        """Forget a part at once, if it is here: for parts that nobody else may begin to need."""
        ...

    def aside(self) -> Aside:
        """Begin to put parts aside; nothing is taken yet."""
        ...

    def recover(self, before: float) -> None:
        """Bring back what was put aside before this time (seconds since the epoch): who did so has died since."""
        ...

    def digests(self) -> Iterable[Digest]:
        """The parts that are here."""
        ...

    def lying(self) -> Mapping[Digest, Lying]:
        """The parts that are here, with what is known of each."""
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
        self._aside: list[MemoryAside] = []

    def has(self, digest: Digest) -> bool:
        return digest in self._held or self._recovered(digest)

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

    def digests(self) -> Iterable[Digest]:
        return tuple(self._held)

    def lying(self) -> Mapping[Digest, Lying]:
        return {digest: Lying(0.0, len(content)) for digest, content in self._held.items()}

    def _get(self, digest: Digest) -> bytes:
        if not self.has(digest):
            raise missing(digest)
        return self._held[digest]

    def _recovered(self, digest: Digest) -> bool:
        """Whether the part lay aside; it is back."""
        for batch in tuple(self._aside):
            if digest in batch.taken:
                self._held[digest] = batch.taken.pop(digest)
        return digest in self._held


class MemoryAside:
    """Parts put aside, in a dictionary. No time stands with them: all are old."""

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self.taken: dict[Digest, bytes] = {}

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
            self._parts._arriving.pop((self._digest, self._sender), None)
            raise

    def commit(self) -> Digest:
        self.finish()
        self._parts._arriving.pop((self._digest, self._sender), None)
        return self._parts.put([bytes(self._bytes)])

    def close(self) -> None:
        return

    def discard(self) -> None:
        self._parts._arriving.pop((self._digest, self._sender), None)


def within(offset: int, size: int) -> int:
    """The offset, if no more was sent than announced."""
    if offset > size:
        raise TooLarge(f"A part of {size} bytes was announced and {offset} came", "Send the part that was announced")
    return offset


def agree(wanted: Digest, got: Digest) -> None:
    """Bytes fit their name."""
    if wanted != got:
        raise DigestMismatch(
            f"The bytes of part {wanted[:12]} have the digest {got[:12]}",
            "The transfer is tried again by itself",
            wanted=wanted,
            got=got,
        )


def whole(digest: Digest, came: int, size: int) -> None:
    """As many bytes came as were announced."""
    if came != size:
        raise PartMismatch(f"Part {digest[:12]} has {came} bytes; {size} were announced", "Announce the part's own size")


def missing(digest: Digest) -> PartMissing:
    """The error for a part that is not here."""
    return PartMissing(f"Part {digest[:12]} is not here", "Send it", digest=digest)
