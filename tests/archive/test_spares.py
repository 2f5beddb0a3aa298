"""Files of dropped parts are written over: by nobody while somebody sees them, and no old byte is taken for what came."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tideline.archive.digests import digest_of
from tideline.archive.disk.spares import LEAST_BYTES, reach_of
from tideline.archive.folder import FolderParts
from tideline.core.run import Digest

OLD, NEW = b"o" * (2 * LEAST_BYTES), b"n" * (LEAST_BYTES + 5)


@pytest.fixture
def parts(tmp_path: Path) -> FolderParts:
    """A store in a folder."""
    return FolderParts(tmp_path / "parts", durable=False)


def spares(parts: FolderParts) -> list[Path]:
    return list(parts.folder.glob("tmp/spare-*"))


def dropped(parts: FolderParts, content: bytes = OLD) -> int:
    """Put a part and drop it; its file's number."""
    digest = parts.put([content])
    number = parts.path(digest).stat().st_ino
    parts.drop(digest)
    assert not parts.has(digest)
    return number


@pytest.mark.parametrize("way", ["put", "upload"])
def test_a_dropped_file_is_written_over(parts: FolderParts, way: str) -> None:
    """The next part of any size has its file, and its own bytes alone."""
    number = dropped(parts)
    digest = parts.put([NEW]) if way == "put" else uploaded(parts, NEW)
    assert parts.path(digest).stat().st_ino == number and spares(parts) == []
    assert bytes(parts.view(digest)) == NEW and not reach_of(parts.tmp(digest, "")).exists()


def uploaded(parts: FolderParts, content: bytes) -> Digest:
    upload = parts.upload(digest_of([content]), len(content))
    upload.write(content[:1000])
    upload.write(content[1000:])
    return upload.commit()


def test_what_somebody_sees_is_not_written_over(parts: FolderParts, tmp_path: Path) -> None:
    """A file that is mapped, open, or has another name goes as ever."""
    digest = parts.put([OLD])
    view = parts.view(digest)
    parts.drop(digest)
    assert spares(parts) == []
    parts.put([NEW])
    assert bytes(view) == OLD
    del view
    digest = parts.put([OLD])
    with parts.path(digest).open("rb"):
        parts.drop(digest)
    assert spares(parts) == []
    digest = parts.put([OLD])
    os.link(parts.path(digest), tmp_path / "backup")
    parts.drop(digest)
    parts.put([NEW])
    assert spares(parts) == [] and (tmp_path / "backup").read_bytes() == OLD


def test_small_files_go(parts: FolderParts) -> None:
    """They have few pages."""
    dropped(parts, b"small")
    assert spares(parts) == []


@pytest.mark.parametrize("came", [0, 1000, LEAST_BYTES])
def test_a_cut_upload_goes_on_where_it_stopped(tmp_path: Path, came: int) -> None:
    """The spare file is longer than what came, and its old bytes are none of that; as after a kill, nothing was closed."""
    parts, digest = FolderParts(tmp_path, durable=False), digest_of([NEW])
    dropped(parts)
    cut = parts.upload(digest, len(NEW))
    cut.write(NEW[:came])
    again = FolderParts(tmp_path, durable=False)
    assert parts.arrived(digest) == again.arrived(digest) == came
    upload = again.upload(digest, len(NEW))
    assert upload.offset == came
    upload.write(NEW[came:])
    assert upload.commit() == digest and bytes(again.view(digest)) == NEW
    cut.close()


def test_an_upload_that_is_forgotten_leaves_nothing(parts: FolderParts) -> None:
    """Neither the file nor how far it had come."""
    dropped(parts)
    upload = parts.upload(digest_of([NEW]), len(NEW))
    upload.write(NEW[:10])
    upload.discard()
    assert [*parts.folder.glob("tmp/*")] == [] and parts.arrived(digest_of([NEW])) == 0


def test_a_spare_file_does_not_wait_for_ever(parts: FolderParts) -> None:
    """A sweep, a full disk or some time do away with it."""
    dropped(parts)
    parts.spares.expire(3600.0)
    assert len(spares(parts)) == 1
    parts.spares.expire(0.0)
    assert spares(parts) == []
    dropped(parts)
    parts.sweep()
    assert spares(parts) == []
