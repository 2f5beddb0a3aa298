"""The cache beside a bucket: it may lose everything, stays below its size, and no part is held in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bucket_values import BIG, SMALL, cached, name, opened, under_way

from tests.s3 import Server
from tideline.core.errors import StorageFull
from tideline.core.run import Digest
from tideline_server.parts.bucket import BucketParts


@pytest.fixture
def parts(bucket: str, tmp_path: Path) -> BucketParts:
    """A store in an empty bucket."""
    return opened(bucket, tmp_path / "home")


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
    assert digests[1] not in cached(parts)
    assert [bytes(parts.view(d)) for d in digests] == contents
    assert set(parts.digests()) == set(digests)


def test_a_mapped_part_outlives_its_eviction(bucket: str, tmp_path: Path) -> None:
    """A cache too small for anything serves all the same; an upload under way is not touched."""
    parts = opened(bucket, tmp_path / "home", cache=1e-9)
    upload = parts.upload(name(BIG), len(BIG))
    upload.write(BIG[:1000])
    digest = parts.put([SMALL])
    view = parts.view(digest)
    parts.put([b"another"])
    assert cached(parts) == set()
    assert bytes(view) == SMALL
    assert parts.size(digest) == len(SMALL)
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
    assert cached(two) == set()
    assert bytes(view) == bytes(two.view(digest)) == SMALL


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
