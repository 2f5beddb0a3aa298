"""Parts in a bucket: the bucket is the truth, and a store that is away costs time and no part."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bucket_values import BIG, LARGER, SIZES, SMALL, bucket_of, cached, name, object_of, objects, opened, under_way

from tests.s3 import EVERYBODY, NOBODY, SECRET, Server
from tideline.archive.digests import shard_of
from tideline.archive.errors import BadName, PartDamaged, PartMissing
from tideline.core.errors import Stale, StorageFull, Unreachable
from tideline.core.run import Digest
from tideline_server.parts.bucket import BucketParts


@pytest.fixture
def parts(bucket: str, tmp_path: Path) -> BucketParts:
    """A store in an empty bucket."""
    return opened(bucket, tmp_path / "home")


@pytest.fixture
def other(bucket: str, tmp_path: Path) -> BucketParts:
    """Another coordinator's store in the same bucket, with a cache of its own."""
    return opened(bucket, tmp_path / "other")


@pytest.fixture
def away(s3: Server) -> Iterator[Server]:
    """A server that has gone away; it is back at the end at the latest."""
    s3.stop()
    yield s3
    if not s3.running:
        s3.start()


@SIZES
def test_a_part_is_an_object_named_by_its_digest(s3: Server, bucket: str, parts: BucketParts, content: bytes) -> None:
    """Put or uploaded, below the prefix and nowhere else, whole."""
    upload = parts.upload(name(content), len(content))
    upload.write(content)
    upload.finish()
    assert objects(s3, bucket) == {}, "it has no name before the commit"
    upload.commit()
    assert objects(s3, bucket) == {object_of(content): len(content)}
    assert s3.send("GET", f"{bucket_of(bucket)}/{object_of(content)}") == content
    parts.drop(name(content))
    assert objects(s3, bucket) == {} and parts.put([content[:100], memoryview(content)[100:]]) == name(content)
    assert s3.send("GET", f"{bucket_of(bucket)}/{object_of(content)}") == content
    assert s3.unfinished(bucket_of(bucket)) == 0


@SIZES
def test_what_is_there_is_not_written_again(
    s3: Server, bucket: str, parts: BucketParts, other: BucketParts, content: bytes
) -> None:
    """Neither by this coordinator nor by another; what another has dropped is written."""
    parts.put([content])
    s3.asked.clear()
    for store in (parts, other):
        store.put([content])
        upload = store.upload(name(content), len(content))
        upload.write(content)
        upload.commit()
    assert not [asked for asked in s3.asked if asked.startswith(("PUT", "POST"))]
    other.drop(name(content))
    parts.put([content])
    assert objects(s3, bucket) == {object_of(content): len(content)}


def test_two_coordinators_share_their_parts(parts: BucketParts, other: BucketParts) -> None:
    """What one keeps the other has; what one drops the other has no longer, and what it has mapped it can read on."""
    digest = parts.put([SMALL])
    assert other.has(digest) and list(other.digests()) == [digest]
    assert (other.size(digest), bytes(other.view(digest))) == (len(SMALL), SMALL)
    view = other.view(digest)
    parts.drop(digest)
    assert not other.has(digest) and list(other.digests()) == [] and bytes(view) == SMALL
    other.drop(digest)  # which is no error, though there is no such object
    with pytest.raises(PartMissing):
        other.view(digest)


def test_only_parts_are_listed(s3: Server, bucket: str, parts: BucketParts) -> None:
    """What others have put below the prefix, or beside it, is none."""
    digest = parts.put([SMALL])
    for stray in (
        "tide/parts/notes.txt",
        f"tide/parts/00/{digest}",
        f"tide/{shard_of(digest)}/{digest}",
        f"tide/partsother/{digest}",
    ):
        s3.send("PUT", f"{bucket_of(bucket)}/{stray}", b"x")
    assert list(parts.digests()) == [digest]


@pytest.mark.parametrize("bad", ["", "..", "../../secret", "A" * 64, "0" * 63])
def test_what_is_no_digest_names_no_object(s3: Server, parts: BucketParts, bad: str) -> None:
    """It is refused before anybody is asked."""
    s3.asked.clear()
    for ask in (parts.has, parts.size, parts.view, parts.drop, lambda digest: parts.upload(digest, 1)):
        with pytest.raises(BadName):
            ask(Digest(bad))
    assert s3.asked == []


# A store that is away, refuses or is full


@SIZES
def test_a_store_that_goes_in_mid_upload_and_comes_back(
    s3: Server, bucket: str, parts: BucketParts, away: Server, content: bytes
) -> None:
    """The bytes are taken in all the same; the commit says that nobody answers, and goes on from there when somebody does."""
    upload = parts.upload(name(content), len(content), "-run-ann")
    upload.write(content)
    with pytest.raises(Unreachable, match=f"There is no answer for {bucket}. See that the store runs"):
        upload.commit()
    upload.close()
    assert parts.arrived(name(content), "-run-ann") == len(content)
    away.start()
    again = parts.upload(name(content), len(content), "-run-ann")
    assert again.offset == len(content)
    again.finish()
    assert again.commit() == name(content) and objects(s3, bucket) == {object_of(content): len(content)}
    assert under_way(parts) == []


@pytest.mark.parametrize("at", [r"POST .*\?uploads", "PUT .*partNumber=2", "PUT .*partNumber", "POST .*uploadId", "HEAD"])
def test_a_store_that_fails_while_a_large_part_is_sent(s3: Server, bucket: str, parts: BucketParts, at: str) -> None:
    """Wherever it fails: no object, nothing half done that costs money, and the next try succeeds."""
    s3.instead = lambda asked: "500 Internal Server Error" if re.match(at, asked) else None
    upload = parts.upload(name(LARGER), len(LARGER))
    upload.write(LARGER)
    with pytest.raises(Unreachable, match=r"The store failed to answer for s3://.* \(500\)"):
        upload.commit()
    with pytest.raises(Unreachable):
        parts.put([LARGER])
    s3.instead = lambda asked: None
    assert objects(s3, bucket) == {} and s3.unfinished(bucket_of(bucket)) == 0
    assert upload.commit() == name(LARGER) and objects(s3, bucket) == {object_of(LARGER): len(LARGER)}


@pytest.mark.nightly(job="services")
def test_nothing_can_be_asked_of_a_store_that_is_away(parts: BucketParts, away: Server) -> None:
    """Every question says so, in one way; what lies in the cache can be read."""
    away.start()
    digest, gone = parts.put([SMALL]), parts.put([b"gone"])
    parts.cache.drop(gone)
    away.stop()
    for ask in (parts.has, parts.drop, lambda _: parts.digests(), lambda _: parts.put([b"new"]), lambda _: parts.view(gone)):
        with pytest.raises(Unreachable, match="There is no answer"):
            ask(digest)
    assert (bytes(parts.view(digest)), parts.size(digest)) == (SMALL, len(SMALL))


def test_a_store_without_room(s3: Server, parts: BucketParts) -> None:
    """A full disk there is told as a full disk here is: there is no room, and it may be tried again."""
    s3.instead = lambda asked: "507 Insufficient Storage" if asked.startswith("PUT") else None
    parts.begin()  # which is no reason not to: a coordinator that runs makes room
    with pytest.raises(StorageFull, match="No room for a part in s3://"):
        parts.put([SMALL])
    s3.instead = lambda asked: None
    assert parts.has(parts.put([SMALL]))


def test_credentials_that_expire(s3: Server, parts: BucketParts) -> None:
    """The run is held up, not ended; nothing that is told holds a secret."""
    digest = parts.put([SMALL])
    s3.admits(NOBODY)
    try:
        with pytest.raises(Unreachable, match="The credentials are refused for") as told:
            parts.has(digest)
    finally:
        s3.admits(EVERYBODY)
    assert SECRET not in str(told.value) and parts.has(digest)


# Damage


@pytest.mark.parametrize("damaged", [b"x" * len(SMALL), SMALL[:-1], SMALL + b"x", b""], ids=["other", "short", "long", "empty"])
def test_a_damaged_object_is_set_aside(s3: Server, bucket: str, other: BucketParts, parts: BucketParts, damaged: bytes) -> None:
    """It lies under a name of its own then, is not there, and what is written again is good."""
    digest = parts.put([SMALL])
    where = f"{bucket_of(bucket)}/{object_of(SMALL)}"
    s3.send("PUT", where, damaged)
    for ask in (other.view, other.size):
        with pytest.raises(PartDamaged, match=digest[:12]):
            ask(digest)
    assert (cached(other), under_way(other), other.has(digest), other.damaged()) == (set(), [], False, (digest,))
    [kept] = [name for name in objects(s3, bucket) if name.startswith("tide/parts/damaged/")]
    assert objects(s3, bucket)[kept] == len(damaged)
    s3.send("PUT", where, SMALL)
    assert bytes(other.view(digest)) == SMALL


def test_damaged_bytes_are_never_there_already(s3: Server, bucket: str, parts: BucketParts) -> None:
    """An object of the right size is read before it counts as there: one that is damaged is written again."""
    digest = parts.put([SMALL])
    s3.send("PUT", f"{bucket_of(bucket)}/{object_of(SMALL)}", b"x" * len(SMALL))
    assert parts.put([SMALL]) == digest
    parts.cache.drop(digest)
    assert bytes(parts.view(digest)) == SMALL


def test_a_damaged_copy_in_the_cache_is_brought_again(bucket: str, parts: BucketParts) -> None:
    """The bucket has the good one."""
    digest = parts.put([SMALL])
    parts.cache.path(digest).write_bytes(b"x" * len(SMALL))
    assert bytes(parts.view(digest)) == SMALL == parts.cache.path(digest).read_bytes()
    assert parts.damaged() == (digest,)


def test_a_short_object_is_written_again(s3: Server, bucket: str, parts: BucketParts) -> None:
    """An object of another size than the part's is not the part."""
    parts.put([SMALL])
    s3.send("PUT", f"{bucket_of(bucket)}/{object_of(SMALL)}", SMALL[:-1])
    parts.put([SMALL])
    assert objects(s3, bucket) == {object_of(SMALL): len(SMALL)}


# Uploads


def test_an_upload_that_is_let_go_leaves_nothing_in_the_bucket(s3: Server, bucket: str, parts: BucketParts) -> None:
    """A large part that was sent and not committed is taken back; its bytes stay here, so that the upload can go on."""
    upload = parts.upload(name(BIG), len(BIG))
    upload.write(BIG)
    upload.finish()
    assert s3.unfinished(bucket_of(bucket)) == 1
    upload.close()
    assert (objects(s3, bucket), s3.unfinished(bucket_of(bucket))) == ({}, 0)
    assert parts.arrived(name(BIG)) == len(BIG)


def test_a_part_that_is_dropped_between_finish_and_commit(
    s3: Server, bucket: str, parts: BucketParts, other: BucketParts
) -> None:
    """It was there and needed no sending; the commit sees that it went, and sends it."""
    other.put([BIG])
    upload = parts.upload(name(BIG), len(BIG))
    upload.write(BIG)
    upload.finish()
    other.drop(name(BIG))
    assert upload.commit() == name(BIG) and objects(s3, bucket) == {object_of(BIG): len(BIG)}


@SIZES
def test_a_sender_that_begins_again_ends_what_it_had_under_way(parts: BucketParts, content: bytes) -> None:
    """The first upload writes and commits nothing more."""
    first = parts.upload(name(content), len(content), "-run-ann")
    first.write(content[:1000])
    second = parts.upload(name(content), len(content), "-run-ann")
    assert second.offset == 1000
    for late in (lambda: first.write(content[1000:]), first.commit):
        with pytest.raises(Stale):
            late()
    second.write(content[1000:])
    assert second.commit() == name(content)
    first.close()
    assert bytes(parts.view(name(content))) == content


# The cache beside a bucket: it may lose everything, stays below its size, and no part is held in memory.


def test_the_cache_is_bounded(s3: Server, bucket: str, tmp_path: Path) -> None:
    """The parts that were not looked at for longest go, from the cache alone; those that were stay; all can be read."""
    size = 100_000
    parts = opened(bucket, tmp_path / "home", cache=5.5 * size / 1e9)
    contents = [bytes([i]) * size for i in range(12)]
    digests = []
    s3.asked.clear()
    for i, content in enumerate(contents):
        digests.append(parts.put([content]))
        os.utime(parts.cache.path(digests[-1]), (i, i))  # tests do not wait for the clock
        parts.view(digests[0])
        assert sum(parts.cache.size(Digest(d)) for d in cached(parts)) <= 5.5 * size
    assert not [asked for asked in s3.asked if asked.startswith("GET")], "the first one was looked at all the time, and stayed"
    assert digests[1] not in cached(parts) and [bytes(parts.view(d)) for d in digests] == contents
    assert set(parts.digests()) == set(digests)


def test_a_mapped_part_outlives_its_eviction(bucket: str, tmp_path: Path) -> None:
    """A cache too small for anything serves all the same; an upload under way is not touched."""
    parts = opened(bucket, tmp_path / "home", cache=1e-9)
    upload = parts.upload(name(BIG), len(BIG))
    upload.write(BIG[:1000])
    digest = parts.put([SMALL])
    view = parts.view(digest)
    parts.put([b"another"])
    assert cached(parts) == set() and bytes(view) == SMALL and parts.size(digest) == len(SMALL)
    upload.write(BIG[1000:])
    assert bytes(parts.view(upload.commit())) == BIG


def test_half_written_files_are_swept(parts: BucketParts) -> None:
    """What a killed process left in the cache goes when the coordinator starts; an upload can go on."""
    upload = parts.upload(name(SMALL), len(SMALL))
    upload.write(SMALL[:1000])
    upload.close()
    (parts.cache.folder / "tmp" / "6f1c2d3e-0000-4000-8000-000000000000").write_bytes(b"half")
    parts.begin()
    assert under_way(parts) == [name(SMALL)]


def test_a_part_is_brought_once_for_all_who_wait_for_it(s3: Server, bucket: str, parts: BucketParts) -> None:
    """Eight agents that ask for one part at once cost one transfer."""
    digest = parts.put([SMALL])
    parts.cache.drop(digest)
    s3.asked.clear()
    together = threading.Barrier(8)

    def ask(_: int) -> bytes:
        together.wait()
        return bytes(parts.view(digest))

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == {SMALL}
    assert len([asked for asked in s3.asked if asked.startswith("GET")]) == 1


def test_two_processes_use_one_cache(bucket: str, tmp_path: Path) -> None:
    """The coordinator and its numeric worker: what one has kept the other maps, and brings again if it was let go."""
    one, two = opened(bucket, tmp_path), opened(bucket, tmp_path)
    digest = one.put([SMALL])
    assert cached(two) == {digest}
    view = two.view(digest)
    one.cache.shrink(0)
    assert cached(two) == set() and bytes(view) == bytes(two.view(digest)) == SMALL


def test_a_disk_that_is_smaller_than_the_cache(bucket: str, tmp_path: Path) -> None:
    """It fills up; the cache lets go, the caller is told that there was no room, and finds some when it tries again."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can mount a small disk to fill")
    folder = tmp_path / "home"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"NOT TESTED: no small disk can be mounted here: {made.stderr.strip()}")
    try:
        parts, contents = opened(bucket, folder), [bytes([i]) * 600_000 for i in range(3)]
        digests = [kept_at_last(parts, content) for content in contents]
        assert bytes(parts.view(digests[2])) == contents[2]
        with pytest.raises(StorageFull, match="No room for a part in"):
            parts.view(digests[0])
        assert bytes(parts.view(digests[0])) == contents[0]
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def kept_at_last(parts: BucketParts, content: bytes) -> Digest:
    """Put a part, twice if there is no room at first."""
    try:
        return parts.put([content])
    except StorageFull:
        return parts.put([content])


# Memory

HEAVY = """
import json, os, sys
from pathlib import Path
from tideline.archive.digests import digest_of
from tideline.core.run import Digest
from tideline_server.parts import open_parts
block, times = os.urandom(1 << 20), 64
digest = digest_of([block * times])
parts = open_parts(sys.argv[1], Path(sys.argv[2]), 1.0)
parts.begin()

def kilobytes(what):
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what)]
    return int(line.split()[1])

def grown(call):
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = kilobytes("VmRSS")
    call()
    return (kilobytes("VmHWM") - before) / 1024

def up():
    upload = parts.upload(digest, times << 20)
    for _ in range(times):
        upload.write(block)
    upload.commit()

def down():
    parts.cache.drop(digest)
    assert parts.size(digest) == times << 20

def put():
    parts.drop(digest)
    assert parts.put([block] * times) == digest

print(json.dumps([grown(up), grown(down), grown(put)]))
"""


@pytest.mark.nightly(job="services")
@pytest.mark.processes
def test_a_large_part_needs_little_memory(bucket: str, tmp_path: Path) -> None:
    """64 MB up, down and up again by another way, in a process that never holds half of it."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("NOT TESTED: this system does not tell the peak of a process")
    ended = subprocess.run([sys.executable, "-W", "error", "-c", HEAVY, bucket, tmp_path], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    grown = json.loads(ended.stdout)
    assert max(grown) < 32, grown
