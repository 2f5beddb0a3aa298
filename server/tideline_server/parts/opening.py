"""From what `--parts` says to a store of parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from tideline.archive.parts import Parts
from tideline.core.errors import ConfigRefused
from tideline_server.parts.address import Address, read_address
from tideline_server.parts.directory import DirectoryParts, refused

GIGABYTE = 10**9


class Opened(Parts, Protocol):
    """A store of parts, as a coordinator opens it."""

    def begin(self) -> None:
        """See that parts can be kept here, and forget what a killed process left half done. Raises ConfigRefused."""
        ...


def open_parts(where: str, home: Path, cache: float) -> Opened:
    """The store in a directory or, where a URL is given, in a bucket, of which `cache` GB are kept in the home.

    Nobody is asked yet: whether the store can be used, `begin` finds out. Raises ConfigRefused.
    """
    address = read_address(where)
    if isinstance(address, Address):
        return open_bucket(address, home, int(cache * GIGABYTE))
    try:
        return DirectoryParts(address, home)
    except OSError as cause:
        raise refused(address, cause) from None


def open_bucket(address: Address, home: Path, cache_bytes: int) -> Opened:
    """The store in a bucket. Raises ConfigRefused where the package that speaks S3 is not installed."""
    try:
        from tideline_server.parts.bucket import BucketParts
        from tideline_server.parts.cache import Cache
        from tideline_server.parts.s3 import Bucket
    except ModuleNotFoundError as cause:
        if cause.name != "obstore":
            raise
        what = f"--parts is {address}, and the package that speaks S3 is not installed"
        raise ConfigRefused(what, "pip install 'tideline[s3]'", path="parts") from None
    bucket = Bucket(address, os.environ)
    try:
        return BucketParts(bucket, Cache(home / "cache", cache_bytes))
    except OSError as cause:
        raise refused(home / "cache", cause) from None
