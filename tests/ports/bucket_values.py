"""Parts of two sizes, and looks at a bucket and a cache from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3 import Server
from tideline.archive.digests import digest_of, shard_of
from tideline.core.run import Digest
from tideline_server.parts import open_parts
from tideline_server.parts.bucket import BucketParts
from tideline_server.parts.s3 import LARGE

SMALL = bytes(range(256)) * 40
BIG = bytes(range(256)) * (2 * LARGE // 256) + b"and a few bytes more"
LARGER = BIG + BIG  # more pieces than are under way at once
SIZES = pytest.mark.parametrize("content", [SMALL, BIG], ids=["small", "large"])
GIGABYTES = 1.0


def name(content: bytes) -> Digest:
    """The digest of bytes."""
    return digest_of([content])


def opened(where: str, home: Path, cache: float = GIGABYTES) -> BucketParts:
    """A store in a bucket, with the cache of a home."""
    parts = open_parts(where, home, cache)
    assert isinstance(parts, BucketParts)
    return parts


def objects(server: Server, where: str) -> dict[str, int]:
    """The objects of the bucket that a URL names."""
    return server.objects(bucket_of(where))


def bucket_of(where: str) -> str:
    """The bucket of a URL."""
    return where.removeprefix("s3://").partition("/")[0]


def object_of(content: bytes) -> str:
    """The name of a part's object in the bucket."""
    return f"tide/parts/{shard_of(name(content))}/{name(content)}"


def cached(parts: BucketParts) -> set[str]:
    """The parts whose bytes lie on this machine."""
    return set(parts.cache.digests())


def under_way(parts: BucketParts) -> list[str]:
    """What has been begun in the cache and is no part."""
    return [path.name for path in (parts.cache.folder / "tmp").iterdir()]
