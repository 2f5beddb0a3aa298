"""Quick sums: who has looked at bytes once knows them again without their digest, and no other bytes for them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tideline.archive import folder, sums
from tideline.archive.digests import Buffer, Hasher, digest_of
from tideline.archive.errors import PartDamaged
from tideline.archive.folder import FolderParts
from tideline.archive.sums import FRESH, LEAST_BYTES, SUMS, Sums
from tideline.core.run import Digest
from tideline.engine.process.pipe import Child

CONTENT = bytes(range(256)) * (LEAST_BYTES // 256) + b"and more"


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A store that counts the digests that it makes of files."""
    made: list[int] = []

    def counted(buffers: list[Buffer]) -> Digest:
        made.append(sum(map(len, buffers)))
        return digest_of(buffers)

    monkeypatch.setattr(folder, "digest_of", counted)
    return made


def other(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def test_what_was_looked_at_is_known_again(tmp_path: Path, digests: list[int]) -> None:
    """One digest when it is put; none when it is read, and one for who takes no sum for an answer."""
    parts = FolderParts(tmp_path, durable=False)
    digest = parts.put([CONTENT])
    assert digests == [len(CONTENT)] and parts.view(digest) == CONTENT and digests == [len(CONTENT)]
    SUMS.forget(digest)
    assert parts.view(digest) == CONTENT and digests == [len(CONTENT)] * 2
    assert parts.view(digest) == CONTENT and digests == [len(CONTENT)] * 2  # the digest was made again, and the sum with it


@pytest.mark.parametrize("sent", ["at once", "in chunks", "cut"])
def test_uploads_have_sums(tmp_path: Path, digests: list[int], sent: str) -> None:
    """Also where a cut one goes on behind what lies there."""
    parts, digest = FolderParts(tmp_path, durable=False), digest_of([CONTENT])
    SUMS.forget(digest)
    upload = parts.upload(digest, len(CONTENT))
    chunks = {"at once": len(CONTENT), "in chunks": 1 << 16, "cut": 1 << 19}[sent]
    upload.write(CONTENT[:chunks])
    if sent == "cut":
        upload.close()
        upload = parts.upload(digest, len(CONTENT))
    for at in range(upload.offset, len(CONTENT), chunks):
        upload.write(CONTENT[at : at + chunks])
    upload.commit()
    assert parts.view(digest) == CONTENT and digests == []


def test_small_parts_have_none(tmp_path: Path, digests: list[int]) -> None:
    """Their digest costs as little."""
    parts = FolderParts(tmp_path, durable=False)
    digest = parts.put([CONTENT[: LEAST_BYTES - 1]])
    parts.view(digest)
    assert digests == [LEAST_BYTES - 1] * 2


def test_a_wrong_sum_damages_nothing(tmp_path: Path) -> None:
    """It says nothing but that the digest is to be made."""
    parts = FolderParts(tmp_path, durable=False)
    digest = parts.put([CONTENT])
    SUMS.adopt(SUMS.seed, [(digest, 1)])
    assert parts.view(digest) == CONTENT and not parts.damaged()


def test_other_bytes_have_another_sum(tmp_path: Path) -> None:
    """Whatever lies there in place of the bytes that were looked at is found."""
    parts = FolderParts(tmp_path, durable=False)
    for wrong in (other(CONTENT), CONTENT[:-1], CONTENT + b"x", b"", CONTENT[256:] + CONTENT[:256]):
        digest = parts.put([CONTENT])
        parts.path(digest).write_bytes(wrong)
        with pytest.raises(PartDamaged):
            parts.view(digest)


def test_sums_of_two_seeds_do_not_meet() -> None:
    """Nobody who knows one process's sums can choose bytes for another's; one that began under another seed is not noted."""
    one, two = Sums(), Sums()
    begun, digest = one.begin(), digest_of([b"x"])
    begun.update(CONTENT)
    two.note(digest, begun)
    assert not two.same(digest, memoryview(CONTENT))
    one.note(digest, begun)
    assert one.same(digest, memoryview(CONTENT)) and not one.same(digest, memoryview(other(CONTENT)))
    two.adopt(one.seed, one.since(0)[0])
    assert two.same(digest, memoryview(CONTENT))


def test_sums_are_handed_on_once() -> None:
    """What was noted since the last time, the newest of them, and nothing of what was forgotten."""
    made = Sums()
    named = [Digest(f"b3-{i:064x}") for i in range(FRESH + 10)]
    made.adopt(made.seed, [(digest, i) for i, digest in enumerate(named)])
    handed, place = made.since(0)
    assert handed == tuple((digest, i) for i, digest in enumerate(named))[-FRESH:]
    assert made.since(place) == ((), place)
    made.adopt(made.seed, [(named[0], 0), (named[1], 7)])  # the first is known as it was
    made.forget(named[1])
    assert made.since(place) == ((), place + 1)


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go."""
    monkeypatch.setattr(sums, "KNOWN", 2)
    made = Sums()
    for i in range(3):
        made.adopt(made.seed, [(Digest(f"b3-{i:064x}"), i)])
    assert [at for _, at in made.since(0)[0]] == [1, 2]


def test_a_child_is_handed_what_its_parent_looked_at(tmp_path: Path) -> None:
    """The process behind a pipe knows the bytes that this one took in, and finds them changed."""
    program = (
        "from tideline.engine.process.pipe import serve\n"
        "from tideline.archive.sums import SUMS\n"
        "from pathlib import Path\n"
        "serve(lambda name, payload, tick: {'same': SUMS.same(payload['digest'], memoryview(Path(name).read_bytes()))})\n"
    )
    place, command = tmp_path / "content", [sys.executable, "-c", program]
    child = Child(command)

    def same(digest: str) -> Mapping[str, object]:
        return child.call(str(place), {"digest": digest})

    try:
        place.write_bytes(CONTENT)
        made = Hasher(len(CONTENT))
        made.update(CONTENT)
        digest = made.digest
        assert same(digest) == {"same": True}
        place.write_bytes(other(CONTENT))
        assert same(digest) == {"same": False}
        child.close()
        child = Child(command)  # a new process begins with all that is fresh
        place.write_bytes(CONTENT)
        assert same(digest) == {"same": True}
    finally:
        child.close()
