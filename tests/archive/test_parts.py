"""Stores of parts: what is kept under a digest has that digest, whole; a cut upload goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.archive.values import Flags
from tests.budgets import examples
from tideline.archive import errors, layout
from tideline.archive.digests import digest_of
from tideline.archive.folder import FolderParts
from tideline.archive.parts import MemoryParts, Parts
from tideline.archive.reader import decode
from tideline.core.run import Digest
from tideline_server.parts import open_parts

DATA = bytes(range(256)) * 40
NAME = digest_of([DATA])
STORES: dict[str, Callable[[Path], Parts]] = {
    "memory": lambda folder: MemoryParts(),
    "folder": lambda folder: FolderParts(folder, durable=False),
    "durable": FolderParts,
}


@pytest.fixture(params=[*STORES, "bucket"])
def parts(request: pytest.FixtureRequest, tmp_path: Path) -> Parts:
    """Every kind of store."""
    if request.param == "bucket":
        return open_parts(request.getfixturevalue("bucket"), tmp_path, cache=1.0)
    return STORES[request.param](tmp_path / "parts")


def test_a_part_is_kept_under_its_digest(parts: Parts) -> None:
    """The joined buffers come back; keeping them again, cut otherwise, is the same part."""
    assert not parts.has(NAME)
    assert parts.put([DATA[:100], memoryview(DATA)[100:], b"", bytearray()]) == NAME
    assert parts.put([DATA]) == NAME
    assert bytes(parts.view(NAME)) == DATA
    assert (parts.size(NAME), list(parts.digests())) == (len(DATA), [NAME])
    parts.drop(NAME)
    parts.drop(NAME)
    assert (parts.has(NAME), list(parts.digests())) == (False, [])


def test_a_part_that_is_not_here_is_named(parts: Parts) -> None:
    """Looking for it gives PartMissing with its digest, and a name that is no digest gives BadName."""
    for look in (parts.view, parts.size):
        with pytest.raises(errors.PartMissing) as seen:
            look(NAME)
        assert seen.value.context["digest"] == NAME


@pytest.mark.parametrize("name", ["", "..", "../../../etc/passwd", "/etc/passwd", NAME.upper(), NAME + "0", NAME[:-1] + "\n"])
def test_no_name_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    """Only a digest is a file's name."""
    parts = FolderParts(tmp_path)
    for use in (parts.has, parts.size, parts.view, parts.drop, lambda d: parts.upload(d, 1)):
        with pytest.raises(errors.BadName):
            use(Digest(name))


def test_a_stray_write_never_reaches_the_store(parts: Parts) -> None:
    """A view can be written to, and others still see the part."""
    parts.put([DATA])
    view = parts.view(NAME)
    view[0] = 255
    assert view[0] == 255
    assert bytes(parts.view(NAME)) == DATA


def test_a_part_without_bytes_is_malformed_and_no_crash(parts: Parts) -> None:
    """An empty file can be kept; as a message it is too short."""
    digest = parts.put([b""])
    assert bytes(parts.view(digest)) == b""
    with pytest.raises(errors.TooShort):
        decode(Flags, digest, parts)


@settings(max_examples=examples(30))
@given(st.lists(st.integers(0, len(DATA)), max_size=5), st.sets(st.integers(0, 5)))
@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_a_cut_upload_goes_on(kind: str, tmp_path_factory: pytest.TempPathFactory, cuts: list[int], breaks: set[int]) -> None:
    """Chunks of any size, and any number of broken connections, end in the same part."""
    parts = STORES[kind](tmp_path_factory.mktemp("parts"))
    upload = parts.upload(NAME, len(DATA))
    for i, cut in enumerate(sorted(cuts)):
        upload.write(DATA[upload.offset : cut])
        if i in breaks:
            upload.close()
            upload = parts.upload(NAME, len(DATA))
        assert upload.offset == cut
    upload.write(DATA[upload.offset :])
    assert not parts.has(NAME)
    assert upload.commit() == NAME
    assert bytes(parts.view(NAME)) == DATA


@pytest.mark.parametrize(
    ("sent", "announced", "kind"),
    [
        (DATA[::-1], len(DATA), errors.DigestMismatch),
        (DATA[:-1], len(DATA), errors.DigestMismatch),
        (DATA, len(DATA) + 1, errors.PartMismatch),
        (DATA, len(DATA) - 1, errors.TooLarge),
    ],
)
def test_a_lie_about_a_part_is_forgotten(parts: Parts, sent: bytes, announced: int, kind: type[Exception]) -> None:
    """Wrong bytes, too few or too many: refused, and an honest upload begins anew."""
    upload = parts.upload(NAME, announced)
    with pytest.raises(kind):
        upload.write(sent)
        upload.commit()
    upload.close()
    assert not parts.has(NAME)
    again = parts.upload(NAME, len(DATA))
    assert again.offset == 0
    again.write(DATA)
    assert again.commit() == NAME


def test_an_upload_of_nothing_is_no_part_of_one_byte(parts: Parts) -> None:
    """The digest of no bytes at all opens no door: the announced size must come."""
    upload = parts.upload(digest_of([b""]), 1)
    with pytest.raises(errors.PartMismatch):
        upload.commit()


def test_a_full_folder_is_swept(tmp_path: Path) -> None:
    """Writes that a killed process left half done are forgotten; uploads that can go on are kept."""
    parts = FolderParts(tmp_path)
    upload = parts.upload(NAME, len(DATA))
    upload.write(DATA[:10])
    upload.close()
    (tmp_path / "tmp" / "0b7e1f4c-half-written").write_bytes(b"half")
    FolderParts(tmp_path).sweep()
    assert [f.name for f in (tmp_path / "tmp").iterdir()] == [NAME]
    upload = parts.upload(NAME, len(DATA))
    upload.close()
    assert upload.offset == 10


def test_what_a_root_names_is_listed_without_torch() -> None:
    """A root that names one part twice lists it once, in the order of its structure; a size that is none counts as 0."""
    first, second, again = (["part", "b3-" + letter * 64, "U8", [1], size] for letter, size in (("a", 9), ("b", True), ("a", 8)))
    tree = json.dumps({"w": {"x": first, "t": [[second], again]}, "texts": ["part", "b", "c", "d", "e"], "n": 1})
    assert layout.Header({}, {layout.RECORD: tree}, 0).parts == (("b3-" + "a" * 64, 9), ("b3-" + "b" * 64, 0))
