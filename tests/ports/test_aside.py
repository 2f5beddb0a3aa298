"""One suite for every store of parts: what is put aside is neither in the way nor lost."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from bucket_values import bucket_of, opened
from stores import laid, store

from tests.s3 import Server
from tideline.archive.digests import shard_of
from tideline.archive.errors import BadName
from tideline.archive.folder import FolderParts
from tideline.archive.parts import MemoryParts, Parts
from tideline.core.errors import Unreachable
from tideline.core.run import Digest
from tideline_server.parts import bucket as bucket_aside
from tideline_server.parts.bucket import BucketParts

BYTES = bytes(range(256)) * 40
ALWAYS, NEVER = 1e12, 0.0  # times before which everything, or nothing, was put aside


@pytest.fixture(params=["memory", "folder", "bucket"])
def parts(request: pytest.FixtureRequest, tmp_path: Path) -> Parts:
    """Each store, empty."""
    return store(request.param, request, tmp_path / "home")


ASKS: dict[str, Callable[[Parts, Digest], object]] = {
    "has": lambda parts, digest: parts.has(digest),
    "size": lambda parts, digest: parts.size(digest) == len(BYTES),
    "view": lambda parts, digest: bytes(parts.view(digest)) == BYTES,
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_what_lies_aside_is_found(parts: Parts, ask: Callable[[Parts, Digest], object]) -> None:
    """Whoever asks for it brings it back, and then it is not destroyed."""
    digest, other = parts.put([BYTES]), parts.put([b"other"])
    batch = parts.aside()
    batch.take([digest, other, Digest("b3-" + "0" * 64)])
    assert (list(parts.digests()), dict(parts.inventory()), laid(parts)) == ([], {}, 2) and ask(parts, digest)
    assert list(parts.digests()) == [digest]
    batch.destroy()
    assert ask(parts, digest) and (parts.has(other), laid(parts)) == (False, 0)


def test_what_is_brought_back_is_as_it_was(parts: Parts) -> None:
    """All of it; destroying comes too late."""
    digests = {parts.put([bytes([at]) * 100]) for at in range(8)}
    batch = parts.aside()
    batch.take(sorted(digests))
    batch.back()
    batch.destroy()
    assert (set(parts.digests()), laid(parts)) == (digests, 0)


def test_what_is_destroyed_is_gone(parts: Parts) -> None:
    """Nothing of it lies about; a batch may be used again."""
    batch = parts.aside()
    for content in (b"one", b"two"):
        digest = parts.put([content])
        batch.take([digest])
        batch.destroy()
        batch.back()
        assert not parts.has(digest)
    assert (list(parts.digests()), laid(parts)) == ([], 0)


def test_nobody_destroys_what_another_has_put_aside(parts: Parts) -> None:
    """One who was frozen for long, while his part was brought back and put aside once more."""
    digest = parts.put([BYTES])
    frozen, other = parts.aside(), parts.aside()
    frozen.take([digest])
    assert parts.has(digest)
    other.take([digest])
    frozen.destroy()
    assert parts.has(digest)


def test_what_is_written_anew_is_not_destroyed(parts: Parts) -> None:
    """Whoever needs a part that lies aside may also send it again."""
    digest = parts.put([BYTES])
    put, sent = parts.aside(), parts.aside()
    put.take([digest])
    assert parts.put([BYTES]) == digest
    put.destroy()
    sent.take([digest])
    upload = parts.upload(digest, len(BYTES))
    upload.write(BYTES)
    upload.commit()
    sent.destroy()
    assert bytes(parts.view(digest)) == BYTES


def test_what_the_dead_left_aside_is_recovered(parts: Parts) -> None:
    """Once it has lain there for long; also where the part is in its place as well."""
    old, twice = parts.put([BYTES]), parts.put([b"twice"])
    parts.aside().take([old, twice])
    parts.put([b"twice"])
    if not isinstance(parts, MemoryParts):
        parts.recover(NEVER)
        assert (set(parts.digests()), laid(parts)) == ({twice}, 2)
    parts.recover(ALWAYS)
    assert (set(parts.digests()), laid(parts)) == ({old, twice}, 0)
    assert (bytes(parts.view(old)), bytes(parts.view(twice))) == (BYTES, b"twice")


def test_what_is_no_digest_is_not_put_aside(parts: Parts) -> None:
    """A name never leads out of the store."""
    if not isinstance(parts, MemoryParts):
        with pytest.raises(BadName):
            parts.aside().take([Digest("../../etc/passwd")])


def test_strangers_among_what_lies_aside_are_left_alone(tmp_path: Path) -> None:
    """A sweep does not stumble over files of others."""
    parts = FolderParts(tmp_path / "parts")
    parts.aside().take([parts.put([BYTES])])
    (tmp_path / "parts" / "aside" / "notes.txt").write_text("mine")
    parts.recover(ALWAYS)
    assert [path.name for path in (tmp_path / "parts" / "aside").iterdir()] == ["notes.txt"]


# Buckets


@pytest.fixture
def stored(bucket: str, tmp_path: Path) -> BucketParts:
    """A store in an empty bucket."""
    return opened(bucket, tmp_path / "home")


def test_several_objects_are_moved_at_once(s3: Server, stored: BucketParts) -> None:
    """Copies meet, then deletions: the transaction that waits for them must not wait long."""
    digests = [stored.put([bytes([at])]) for at in range(8)]
    meeting = threading.Barrier(2)

    def meet(asked: str) -> None:
        if asked.startswith(("PUT", "DELETE")):
            meeting.wait(120.0)

    s3.instead = meet
    batch = stored.aside()
    batch.take(digests)
    batch.destroy()
    assert not meeting.broken
    s3.instead = lambda asked: None
    assert (list(stored.digests()), laid(stored)) == ([], 0)


@pytest.mark.parametrize("at", ["PUT .*aside", "DELETE"], ids=["copy", "delete"])
def test_a_store_that_fails_while_parts_are_put_aside(s3: Server, stored: BucketParts, at: str) -> None:
    """Wherever it fails, all of them are found again; a deletion that comes after its time deletes nothing that is needed."""
    digests = sorted(stored.put([bytes([at])]) for at in range(10))
    failing = digests[7]
    s3.instead = lambda asked: "500 Internal Server Error" if re.match(at, asked) and failing in asked else None
    batch = stored.aside()
    with pytest.raises(Unreachable):
        batch.take(digests)
    s3.instead = lambda asked: None
    batch.back()
    assert set(stored.digests()) == set(digests)
    late = f"{bucket_of(str(stored.bucket.address))}/tide/parts/{shard_of(failing)}/{failing}"
    if at == "DELETE":
        s3.send("DELETE", late)
    assert all(stored.has(digest) for digest in digests)
    stored.recover(ALWAYS)
    assert laid(stored) == 0 and all(stored.has(digest) for digest in digests)


def test_what_is_too_large_to_be_copied_stays(s3: Server, stored: BucketParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others go all the same. A smaller one that cannot be copied is the store's trouble."""
    large, small = stored.put([BYTES]), stored.put([b"small"])
    s3.instead = lambda asked: "400 Bad Request" if asked.startswith("PUT") and large in asked else None
    with pytest.raises(Unreachable):
        stored.aside().take([large])
    monkeypatch.setattr(bucket_aside, "COPIED", 1000)
    batch = stored.aside()
    batch.take([large, small])
    batch.destroy()
    assert list(stored.digests()) == [large]


def test_a_part_that_another_brings_back_meanwhile_is_found(s3: Server, stored: BucketParts, bucket: str, tmp_path: Path) -> None:
    """Between one's look at its place and one's look at what lies aside."""
    digest = stored.put([BYTES])
    batch = opened(bucket, tmp_path / "other").aside()
    batch.take([digest])

    def back(asked: str) -> None:
        if "list-type" in asked:
            s3.instead = lambda asked: None
            batch.back()

    s3.instead = back
    stored.cache.drop(digest)
    assert bytes(stored.view(digest)) == BYTES
