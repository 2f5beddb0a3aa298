"""One suite for every place of the witness's records."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import place

from tideline.archive.records import MemoryRecords, Records
from tideline_server.parts import open_parts


@pytest.fixture(params=["memory", "folder", "bucket"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Records:
    """The records of a chain, empty."""
    if request.param == "memory":
        return MemoryRecords()
    return open_parts(place(request.param, request, tmp_path), tmp_path / "home", cache=1.0).records("chain")


def test_records_stay(records: Records) -> None:
    """Each under its number; the same again is no other, and another is not written over it."""
    assert records.last() == 0 and records.read(1) is None
    assert records.write(1, b"one") and records.write(3, b"three") and records.write(1, b"one")
    assert not records.write(3, b"else")
    assert (records.last(), records.read(1), records.read(2), records.read(3)) == (3, b"one", None, b"three")


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_chains_do_not_meet(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Two databases that had one store after the other; and no record is a part."""
    parts = open_parts(place(kind, request, tmp_path), tmp_path / "home", cache=1.0)
    parts.records("one").write(1, b"one")
    assert parts.records("two").last() == 0
    assert tuple(parts.digests()) == () and not parts.inventory()
