"""The file of a cache: rows one after the other, a digest of each, and a sealed head at the end. Loads no torch.

    rows      n rows of `stride` bytes, from byte 0
    digests   n times DIGEST bytes: BLAKE3 of each row, cut; zeros for a row that is not written
    head      JSON, as `Head`
    foot      the head's length (8 bytes, little-endian), BLAKE3 of the head, cut

A file is whole if its foot fits its head, the head the digests, and its size all of them. Who ends while he writes leaves no foot
that says so. Nothing in a file names a sample: neither a file's name nor a class.
"""

from __future__ import annotations

import json
import math
import os
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

from blake3 import blake3

VERSION = 1
DIGEST = 16  # bytes of a digest: whoever turns a bit by chance does not meet 128 bits
FOOT = 8 + DIGEST
TYPES = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "float32": 4, "int64": 8}  # and the bytes of a number
MOST_HEAD = 1 << 28


@dataclass(frozen=True)
class Head:
    """What a file holds.

    domain   the place of the domain, a folder or a file, for its owner's commands
    files    a digest of the names, sizes and times of the domain's files
    reading  a digest of how they are read: the world's inputs, the owner's settings, the versions of what decodes
    count, shape, dtype   of the rows
    white    the value that means 1.0
    lost     numbers of rows that cannot be read, and the type of error of each; their bytes are zeros
    digests  the digest of the digests; empty while the file is written
    """

    domain: str
    files: str
    reading: str
    count: int
    shape: tuple[int, ...]
    dtype: str
    white: float
    lost: tuple[tuple[int, str], ...] = ()
    digests: str = ""
    version: int = VERSION

    @property
    def stride(self) -> int:
        return math.prod(self.shape) * TYPES[self.dtype]

    @property
    def data_bytes(self) -> int:
        return self.count * self.stride

    @property
    def end(self) -> int:
        """Where the digests end and the head begins."""
        return self.data_bytes + self.count * DIGEST


def digest_of(content: bytes | bytearray | memoryview) -> bytes:
    return blake3(content).digest(DIGEST)


def sealed(head: Head) -> bytes:
    """The head and its foot as they are written."""
    text = json.dumps(asdict(head), separators=(",", ":")).encode()
    return text + struct.pack("<Q", len(text)) + digest_of(text)


def read_head(descriptor: int) -> Head | None:
    """The head of an open file; None where there is none, or not as it was written."""
    try:
        size = os.fstat(descriptor).st_size
        if size < FOOT:
            return None
        foot = os.pread(descriptor, FOOT, size - FOOT)
        (length,) = struct.unpack("<Q", foot[:8])
        if not 0 < length <= min(size - FOOT, MOST_HEAD):
            return None
        text = os.pread(descriptor, length, size - FOOT - length)
        if digest_of(text) != foot[8:]:
            return None
        raw = json.loads(text)
        if raw["version"] != VERSION:
            return None
        shape, lost = tuple(map(int, raw["shape"])), tuple((int(row), str(why)) for row, why in raw["lost"])
        head = Head(**raw | {"shape": shape, "lost": lost})
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return None
    fits = head.dtype in TYPES and head.count >= 0 and head.end + length + FOOT == size
    return head if fits else None


def read_digests(descriptor: int, head: Head) -> bytes | None:
    """The digests of all rows; None where they are not as they were written, or the file is not finished."""
    try:
        found = os.pread(descriptor, head.count * DIGEST, head.data_bytes)
    except OSError:
        return None
    return found if head.digests and digest_of(found).hex() == head.digests else None


def head_at(path: Path) -> Head | None:
    """The head of a file by its place."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return read_head(descriptor)
    finally:
        os.close(descriptor)
