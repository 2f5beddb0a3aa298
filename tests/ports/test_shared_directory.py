"""A directory of parts that several coordinators share: parts are common, what is under way is each one's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tideline.archive.digests import digest_of
from tideline.core.errors import ConfigRefused
from tideline_server.parts import Opened, open_parts

BYTES = bytes(range(256)) * 40
NAME = digest_of([BYTES])


def opened(home: Path) -> Opened:
    """A coordinator's store in the directory that lies beside its home."""
    made = open_parts(str(home.parent / "shared"), home, cache=1.0)
    made.begin()
    return made


def files(folder: Path) -> set[str]:
    """Every file beneath, by its path."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_home_of_its_own_is_as_it_was(tmp_path: Path) -> None:
    """Where nothing else is said, uploads lie where earlier versions left them."""
    parts = open_parts(str(tmp_path / "parts"), tmp_path, cache=1.0)
    upload = parts.upload(NAME, len(BYTES))
    upload.write(BYTES[:1000])
    upload.close()
    assert files(tmp_path) == {f"parts/tmp/{NAME}"}


def test_two_coordinators_share_their_parts(tmp_path: Path) -> None:
    """What one keeps the other has, and what one drops is gone."""
    one, two = opened(tmp_path / "one"), opened(tmp_path / "two")
    digest = one.put([BYTES])
    assert two.has(digest) and bytes(two.view(digest)) == BYTES
    two.drop(digest)
    assert (one.has(digest), list(one.digests())) == (False, [])


def test_two_coordinators_take_in_one_part_apart(tmp_path: Path) -> None:
    """A sender whose line to one is cut begins anew at the other: what the first still writes does not spoil its bytes."""
    one, two = opened(tmp_path / "one"), opened(tmp_path / "two")
    first = one.upload(NAME, len(BYTES), "-run-ann")
    first.write(BYTES[:1000])
    second = two.upload(NAME, len(BYTES), "-run-ann")
    assert second.offset == 0
    second.write(BYTES[:5000])
    first.write(BYTES[1000:3000])
    second.write(BYTES[5000:])
    assert second.commit() == NAME
    first.close()
    assert bytes(one.view(NAME)) == BYTES
    assert opened(tmp_path / "one").arrived(NAME, "-run-ann") == 3000, "and goes on where it was if it comes back to the first"


def test_one_that_starts_sweeps_what_is_its_own(tmp_path: Path) -> None:
    """Half-written files of a running coordinator stay; those of one that has not been seen for a day go."""
    one = opened(tmp_path / "one")
    (mine,) = (tmp_path / "shared").glob("tmp-*")
    opened(tmp_path / "two")
    (theirs,) = set((tmp_path / "shared").glob("tmp-*")) - {mine}
    for half in (mine / "half", theirs / "half", theirs / "old"):
        half.write_bytes(b"half")
    os.utime(theirs / "old", (0.0, 0.0))
    one.begin()
    assert files(tmp_path / "shared") == {f"{theirs.name}/half"}


@pytest.mark.parametrize("where", ["file/parts", "file"])
def test_what_is_no_directory_is_refused(tmp_path: Path, where: str) -> None:
    """The path and the reason are told."""
    (tmp_path / "file").write_text("a file")
    with pytest.raises(ConfigRefused, match=f"Parts cannot be stored in {tmp_path / where}: Not a directory") as told:
        open_parts(str(tmp_path / where), tmp_path, cache=1.0)
    assert "Give --parts a directory" in told.value.todo


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """At the start, and not in the middle of a run."""
    parts = opened(tmp_path / "one")
    (own,) = (tmp_path / "shared").glob("tmp-*")
    own.rmdir()
    with pytest.raises(ConfigRefused, match="Parts cannot be stored in"):
        parts.begin()
