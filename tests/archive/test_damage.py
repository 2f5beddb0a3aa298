"""Bits that flip in files that lie: what is read is what was written, or it is said to be damaged."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tideline.archive.disk.spill import Spill
from tideline.archive.errors import PartDamaged, PartMissing
from tideline.archive.folder import FolderParts
from tideline.archive.parts import SMALL_BYTES, MemoryParts
from tideline.archive.sums import LEAST_BYTES
from tideline.core.run import Digest

CONTENTS = (b"a", bytes(range(256)), b"large" * SMALL_BYTES, b"summed" * LEAST_BYTES)  # two are mapped, one has a quick sum


@pytest.fixture
def parts(tmp_path: Path) -> FolderParts:
    """A store in a folder."""
    return FolderParts(tmp_path / "parts", durable=False)


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 1 << bit
    path.write_bytes(content)


@settings(max_examples=examples(100))
@given(st.sampled_from(CONTENTS), st.integers(0, 1 << 30), st.integers(0, 7))
def test_no_flipped_bit_is_read(tmp_path_factory: pytest.TempPathFactory, content: bytes, at: int, bit: int) -> None:
    """Whichever bit of whichever file: the part is damaged, is not there, and lies where its owner finds it."""
    parts = FolderParts(tmp_path_factory.mktemp("parts"), durable=False)
    digest = parts.put([content])
    assert bytes(parts.view(digest)) == content
    flip(parts.path(digest), at, bit)
    with pytest.raises(PartDamaged):
        parts.view(digest)
    assert (parts.has(digest), parts.damaged(), list(parts.digests())) == (False, (digest,), [])
    [kept] = parts.folder.glob("damaged/*")
    assert len(kept.read_bytes()) == len(content) and kept.read_bytes() != content


@pytest.mark.parametrize("again", ["put", "upload"])
def test_what_is_damaged_is_written_again(parts: FolderParts, again: str) -> None:
    """That it was there already keeps no damaged bytes, known as such or not."""
    for content in CONTENTS:
        digest = parts.put([content])
        flip(parts.path(digest), 0)
        if again == "put":
            assert parts.put([content]) == digest
        else:
            upload = parts.upload(digest, len(content))
            upload.write(content)
            upload.commit()
        assert bytes(parts.view(digest)) == content


def test_a_part_that_is_cut_or_longer_is_damaged(parts: FolderParts) -> None:
    """Not its bits alone count."""
    for content in CONTENTS:
        for spoilt in (content[:-1], content + b"\0", b""):
            digest = parts.put([content])
            parts.path(digest).write_bytes(spoilt)
            with pytest.raises(PartDamaged):
                parts.view(digest)


def test_it_stays_known_to_be_damaged(parts: FolderParts) -> None:
    """Whoever asks later reads the same, until the part is here again or its owner has cleared it away."""
    digest = parts.put([b"one"])
    flip(parts.path(digest), 0)
    for ask in (parts.view, parts.view, parts.size):
        with pytest.raises(PartDamaged):
            ask(digest)
    for kept in parts.folder.glob("damaged/*"):
        kept.unlink()
    with pytest.raises(PartMissing) as seen:
        parts.view(digest)
    assert type(seen.value) is PartMissing


def test_a_good_copy_that_lies_aside_is_taken_instead(parts: FolderParts) -> None:
    """A collection that was cut short had put one aside, and the part was written again since."""
    digest = parts.put([b"one"])
    parts.aside().take([digest])
    parts.put([b"one"])
    flip(parts.path(digest), 0)
    assert bytes(parts.view(digest)) == b"one" and parts.damaged() == (digest,)


class Rewritten(FolderParts):
    """A store whose part another process writes again between its being read and its being put aside."""

    def _put_damaged_aside(self, digest: Digest) -> None:
        self.path(digest).write_bytes(b"one")
        super()._put_damaged_aside(digest)


def test_what_another_has_written_again_goes_back(tmp_path: Path) -> None:
    """Nobody loses a good part to somebody's late discovery."""
    parts = Rewritten(tmp_path, durable=False)
    digest = parts.put([b"one"])
    flip(parts.path(digest), 0)
    with contextlib.suppress(PartMissing):
        parts.view(digest)
    assert (bytes(parts.view(digest)), parts.damaged()) == (b"one", ())


def test_what_lies_in_a_spill_is_held_to_its_name(tmp_path: Path) -> None:
    """Memory had no room for it; its file has no name, and is no safer for that."""
    spill = Spill(tmp_path, room=0)
    parts = MemoryParts(spill)
    digest, other = parts.put([b"one"]), parts.put([b"other"])
    assert bytes(parts.view(digest)) == b"one" and spill._file is not None
    os.pwrite(spill._file._descriptor, b"x", 0)
    with pytest.raises(PartDamaged):
        parts.view(digest)
    assert (parts.has(digest), parts.damaged(), bytes(parts.view(other))) == (False, (digest,), b"other")
