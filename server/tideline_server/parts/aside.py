"""Objects that are put aside before they are destroyed."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tideline.archive.folder import ASIDE
from tideline.archive.layout import check_digest
from tideline.archive.parts import StoredPart
from tideline.core.errors import Unreachable
from tideline.core.run import Digest
from tideline_server.parts.s3 import Bucket

T = TypeVar("T")
LAID = re.compile(rf"{ASIDE}/([0-9a-f]{{64}})\.[0-9a-f]{{32}}")
AT_ONCE = 8  # requests: a batch must be done before the database ends a transaction that says nothing
COPIED = 5 << 30  # bytes of the largest object that S3 copies


def object_of(digest: Digest) -> str:
    """The name of a part's object below the prefix. Raises BadName."""
    return f"{check_digest(digest)[:2]}/{digest}"


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


def laid(bucket: Bucket) -> Iterator[tuple[Digest, str, StoredPart]]:
    """What lies aside: the part, its copy's name, and since when."""
    for name, told in bucket.listed(ASIDE):
        if found := LAID.fullmatch(name):
            yield Digest(found[1]), name, told


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
