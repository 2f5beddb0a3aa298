"""Several parts in one stream: cut anywhere, in chunks of any size, synced here or elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.archive.values import Flags
from tests.budgets import examples
from tideline.archive import errors, layout
from tideline.archive.digests import digest_of
from tideline.archive.errors import DataTruncated, DigestMismatch, PartMissing, TooLarge
from tideline.archive.folder import FolderParts
from tideline.archive.parts import MAX_CHUNK, MIN_CHUNK, Intake, MemoryParts, Parts, blocks, chunk_size, chunks, commit
from tideline.archive.reader import decode
from tideline.core.run import Digest
from tideline_server.parts import open_parts

CONTENTS = tuple(bytes([i]) * (i * 700 + 1) for i in range(1, 5))
FILES = tuple((digest_of([each]), len(each)) for each in CONTENTS)
WHOLE = b"".join(CONTENTS)


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, len(WHOLE)), max_size=8), st.lists(st.integers(0, len(WHOLE)), max_size=3))
def test_chunks_and_cuts_anywhere(breaks: list[int], cuts: list[int]) -> None:
    """Wherever chunks end and however often the stream is cut, the parts are those that were sent."""
    parts, at = MemoryParts(), 0
    for end in [*sorted(cuts), len(WHOLE)]:
        lacking = [(digest, size) for digest, size in FILES if not parts.has(digest)]
        with Intake(lacking, parts.upload, commit) as intake:
            places = sorted({at, end, *(b for b in breaks if at < b < end)})
            for begin, until in pairwise(places):
                intake.write(WHOLE[begin:until])
            if end == len(WHOLE):
                intake.end()
        assert intake.came == end - at
        at = end
    assert [bytes(parts.view(digest)) for digest, _ in FILES] == list(CONTENTS)


def test_parts_are_synced_while_more_come_in(tmp_path: Path) -> None:
    """With threads for it, the end waits for all of them, and every part can be committed."""
    parts = FolderParts(tmp_path)
    with ThreadPoolExecutor(2) as threads, Intake(FILES, parts.upload, later=threads) as intake:
        intake.write(WHOLE)
        intake.end()
        assert [upload.commit() for upload in intake.whole] == [digest for digest, _ in FILES]
    parts.sync(parts.digests())
    assert [bytes(parts.view(digest)) for digest, _ in FILES] == list(CONTENTS)


@pytest.mark.parametrize("threaded", [False, True])
def test_a_spoilt_part_is_told_and_forgotten(tmp_path: Path, threaded: bool) -> None:
    """A part whose bytes do not fit its name ends the stream; what came before it is still there."""
    parts = FolderParts(tmp_path)
    spoilt = CONTENTS[0] + b"?" * len(CONTENTS[1])
    with ThreadPoolExecutor(2) as threads:
        intake = Intake(FILES, parts.upload, later=threads if threaded else None)
        with pytest.raises(DigestMismatch), intake:
            intake.write(spoilt)
            intake.end()
    assert (parts.arrived(FILES[0][0]), parts.arrived(FILES[1][0])) == (len(CONTENTS[0]), 0)


def test_too_much_and_too_little() -> None:
    """Bytes after the last part and an end before it are refused; a stream of nothing is whole."""
    parts = MemoryParts()
    with Intake(FILES, parts.upload) as intake, pytest.raises(TooLarge, match="1 bytes follow"):
        intake.write(WHOLE + b"1")
    with Intake(FILES[:1], MemoryParts().upload) as intake, pytest.raises(DataTruncated, match="701 bytes before the end"):
        intake.end()
    with Intake([], parts.upload) as intake:
        intake.end()


def test_a_part_that_came_whole_before_a_cut_needs_no_byte() -> None:
    """A cut between the last byte and the commit: the next stream brings nothing of that part, and it is kept."""
    parts = MemoryParts()
    with Intake(FILES[:1], parts.upload) as intake:
        intake.write(CONTENTS[0])
    assert not parts.has(FILES[0][0])
    with Intake(FILES[:1], parts.upload, commit) as intake:
        intake.end()
    assert parts.has(FILES[0][0])


def test_chunks_of_parts_from_offsets() -> None:
    """Each from its own place; a part that is not here is missing when its turn comes."""
    parts = MemoryParts()
    for content in CONTENTS:
        parts.put([content])
    wanted = [(digest, offset) for (digest, _), offset in zip(FILES, (0, 5, len(CONTENTS[2]), 1), strict=True)]
    sent = b"".join(bytes(chunk) for chunk in chunks(parts, wanted, 7))
    assert sent == CONTENTS[0] + CONTENTS[1][5:] + CONTENTS[3][1:]
    with pytest.raises(PartMissing):
        list(chunks(parts, [(Digest("b3-" + "0" * 64), 0)], 1))


def test_chunks_fit_the_line() -> None:
    """Small at first, larger while the line is quick, small again while it is slow, never above the most; nothing is lost."""
    parts, now = MemoryParts(), [0.0]
    whole = bytes(range(256)) * 40_000
    sizes, sent = [], b""
    for chunk in chunks(parts, [(parts.put([whole]), 0)], MAX_CHUNK, lambda: now[0]):
        sizes.append(len(chunk))
        sent += bytes(chunk)
        now[0] += 0.01 if len(sizes) < 8 else 0.2 if len(sizes) < 10 else 2.0
    assert sent == whole
    grown = [MIN_CHUNK << i for i in range(4)] + [MAX_CHUNK] * 6
    assert sizes[:14] == [*grown, MAX_CHUNK >> 1, MAX_CHUNK >> 2, MAX_CHUNK >> 3, MIN_CHUNK]
    assert set(sizes[14:-1]) == {MIN_CHUNK}


@pytest.mark.parametrize(("total", "size"), [(-5, MIN_CHUNK), (10_000_000, 312_500), (10**9, MAX_CHUNK)])
def test_small_messages_pass_in_small_chunks(total: int, size: int) -> None:
    """So that what is buffered for each of many senders stays small beside the message."""
    assert chunk_size(total) == size


def test_many_streams_pass_in_small_chunks() -> None:
    """All of them together hold about as much as few."""
    sizes = [chunk_size(10_000_000, streams) for streams in (0, 1, 2, 16, 1000)]
    assert sizes == [MAX_CHUNK, MAX_CHUNK, MAX_CHUNK, 156_250, MIN_CHUNK]


@settings(max_examples=examples(50))
@given(st.lists(st.integers(1, 40), max_size=12), st.integers(0, 200), st.integers(1, 64), st.booleans())
def test_bytes_of_a_line_come_in_blocks(sizes: list[int], nbytes: int, size: int, cut: bool) -> None:
    """However few come at once: all blocks but the last are full, nothing is lost before a cut, and nothing is taken beyond."""
    sent, left, came = bytes(range(256)) * 2, list(sizes), 0

    def receive(room: memoryview) -> int:
        nonlocal came
        if not left and cut:
            raise ConnectionResetError
        take = min(left.pop(0), len(room)) if left else 0
        room[:take] = sent[came : came + take]
        came += take
        return take

    got = []
    try:
        got.extend(bytes(block) for block in blocks(receive, nbytes, size))
    except ConnectionResetError:
        assert cut and came < nbytes
    assert b"".join(got) == sent[:came] and came <= nbytes
    assert all(len(block) == size for block in got[:-1]) and (came == nbytes or not left)


# Stores of parts: what is kept under a digest has that digest, whole; a cut upload goes on.
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
    assert not parts.has(NAME) and parts.put([DATA[:100], memoryview(DATA)[100:], b"", bytearray()]) == NAME
    assert parts.put([DATA]) == NAME and bytes(parts.view(NAME)) == DATA
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
    assert view[0] == 255 and bytes(parts.view(NAME)) == DATA


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
    assert not parts.has(NAME) and upload.commit() == NAME and bytes(parts.view(NAME)) == DATA


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
