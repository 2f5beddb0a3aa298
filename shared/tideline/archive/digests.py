"""What parts are named by: the BLAKE3 of their bytes. The only module that makes such names, checks them and reads them.

A digest is `b3-` and 64 hexadecimal digits in lower case: it says by which function it was made, and is a file's name and a step
of a URL as it stands. Standard library, blake3 and xxhash only: the agent, which never loads torch, hashes what it takes in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import FileIO

from blake3 import blake3

from tideline.archive.errors import BadName, DigestMismatch
from tideline.archive.sums import LEAST_BYTES, SUMS
from tideline.core.run import Digest
from tideline.core.settings import Plain

Buffer = bytes | bytearray | memoryview
PREFIX = "b3-"
PATTERN = PREFIX + "[0-9a-f]{64}"  # as a regular expression
LENGTH = len(PREFIX) + 64
BLOCK = 1 << 19  # bytes that are read and hashed at once: they stay in a core's cache
HEXADECIMAL = frozenset("0123456789abcdef")


class Hasher:
    """Makes the digest of bytes that come one after the other. size: how many they will be; of many, the sum is made as well."""

    def __init__(self, size: int = 0) -> None:
        self._made = blake3()
        self._sum = SUMS.begin() if size >= LEAST_BYTES else None

    def update(self, buffer: Buffer) -> None:
        if self._sum is None:
            self._made.update(buffer)
            return
        whole = memoryview(buffer).cast("B")
        for at in range(0, len(whole), BLOCK):
            self._made.update(whole[at : at + BLOCK])
            self._sum.update(whole[at : at + BLOCK])

    def read(self, file: FileIO, most: int) -> int:
        """Take in the next bytes of a file, so many if it has them; how many that were."""
        size, room = 0, memoryview(bytearray(BLOCK))
        while size < most and (came := file.readinto(room[: most - size])) > 0:
            self.update(room[:came])
            size += came
        return size

    @property
    def digest(self) -> Digest:
        """Of what has come so far."""
        made = Digest(PREFIX + self._made.hexdigest())
        if self._sum is not None:
            SUMS.note(made, self._sum)
        return made


def digest_of(buffers: Iterable[Buffer]) -> Digest:
    """The digest of joined buffers."""
    made = Hasher(sum(memoryview(buffer).nbytes for buffer in buffers) if isinstance(buffers, Sequence) else 0)
    for buffer in buffers:
        made.update(buffer)
    return made.digest


def check_digest(text: Plain) -> str:
    """A digest as it is written. Raises BadName for any other text, so that none is ever a path."""
    if not isinstance(text, str) or len(text) != LENGTH or not text.startswith(PREFIX) or set(text[len(PREFIX) :]) - HEXADECIMAL:
        raise BadName(f"{str(text)[:80]!r} is not a digest")
    return text


def shard_of(digest: Digest) -> str:
    """The folder in which a part's file lies: two hexadecimal digits. Raises BadName."""
    return check_digest(digest)[len(PREFIX) : len(PREFIX) + 2]


def agree(wanted: Digest, got: Digest) -> None:
    """Hold bytes that came over a line to their name. Raises DigestMismatch."""
    if wanted != got:
        what = f"The bytes of part {wanted[:12]} have the digest {got[:12]}"
        raise DigestMismatch(what, "The transfer is tried again by itself", wanted=wanted, got=got)
