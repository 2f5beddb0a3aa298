"""One suite for every store of parts, and what a folder adds: half-done writes, full disks, processes that die."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from stores import SHARED, store

from tideline import nets
from tideline.archive.digests import digest_of
from tideline.archive.errors import BadName, DigestMismatch, PartMismatch, PartMissing, TooLarge
from tideline.archive.folder import FolderParts, FolderUpload
from tideline.archive.parts import MemoryParts, Parts
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, Stale
from tideline.core.run import Digest
from tideline.engine.compute.initial_weights import check_initial_weights, read_initial_weights
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.model.experiment import UPLOADER
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.parts import open_parts

BYTES = bytes(range(256)) * 40


def name(content: bytes) -> Digest:
    """The digest of bytes."""
    return digest_of([content])


@pytest.fixture(params=["memory", "folder", "cache", "shared", "bucket"])
def parts(request: pytest.FixtureRequest, tmp_path: Path) -> Parts:
    """Each store, empty. The cache is a folder that need not survive a power cut."""
    if request.param == "memory":
        return MemoryParts()
    if request.param in ("folder", "cache"):
        return FolderParts(tmp_path / "parts", request.param == "folder")
    where = str(tmp_path / "parts") if request.param == "shared" else request.getfixturevalue("bucket")
    return open_parts(where, tmp_path / "home", cache=1.0)


def test_what_is_put_can_be_viewed(parts: Parts) -> None:
    """Joined buffers come back under the digest of their bytes, with their size."""
    digest = parts.put([BYTES[:100], bytearray(BYTES[100:200]), memoryview(BYTES)[200:]])
    assert digest == name(BYTES) and parts.has(digest) and parts.size(digest) == len(BYTES)
    assert bytes(parts.view(digest)) == BYTES


def test_a_part_without_bytes_is_a_part(parts: Parts) -> None:
    """Nothing has a digest too."""
    digest = parts.put([])
    assert digest == name(b"") and parts.size(digest) == 0 and bytes(parts.view(digest)) == b""


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_bytes_survive(chunks: list[bytes]) -> None:
    """However the bytes are cut, the part is the same."""
    parts = MemoryParts()
    assert parts.put(chunks) == parts.put([b"".join(chunks)])
    assert bytes(parts.view(parts.put(chunks))) == b"".join(chunks) and len(list(parts.digests())) == 1


def test_a_part_is_kept_once(parts: Parts) -> None:
    """Putting it again changes nothing."""
    digest = parts.put([BYTES])
    assert parts.put([BYTES]) == digest and list(parts.digests()) == [digest]


def test_writing_to_a_view_never_reaches_the_store(parts: Parts) -> None:
    """A view may be written to, by a stray in-place operation, and the next view is as it was."""
    digest = parts.put([BYTES])
    view = parts.view(digest)
    view[:5] = b"stray"
    assert bytes(view[:5]) == b"stray" and bytes(parts.view(digest)) == BYTES and parts.put([BYTES]) == digest


def test_a_dropped_part_is_gone(parts: Parts) -> None:
    """It is missing to every question; dropping it again is no error; others stay; a view of it stays readable."""
    digest, other = parts.put([BYTES]), parts.put([b"other"])
    view = parts.view(digest)
    parts.drop(digest)
    parts.drop(digest)
    assert not parts.has(digest) and list(parts.digests()) == [other] and bytes(view) == BYTES
    for ask in (parts.view, parts.size):
        with pytest.raises(PartMissing) as told:
            ask(digest)
        assert told.value.context["digest"] == digest


def test_what_lies_there_is_told(parts: Parts) -> None:
    """Every whole part with its bytes and the time at which it was written; an upload that is under way is none."""
    digest, other = parts.put([BYTES]), parts.put([b"other"])
    under_way = parts.upload(name(b"more"), 4)
    under_way.write(b"mo")
    inventory = parts.inventory()
    assert {each: told.size for each, told in inventory.items()} == {digest: len(BYTES), other: 5}
    assert all(0.0 <= told.written < 1e11 for told in inventory.values())
    parts.drop(other)
    assert set(parts.inventory()) == {digest}
    under_way.close()


def test_an_upload_becomes_a_part(parts: Parts) -> None:
    """Chunk by chunk; the part is here only when it is committed."""
    upload = parts.upload(name(BYTES), len(BYTES))
    assert upload.offset == 0
    for at in range(0, len(BYTES), 1000):
        upload.write(memoryview(BYTES)[at : at + 1000])
        assert upload.offset == min(at + 1000, len(BYTES)) and not parts.has(name(BYTES))
    assert upload.commit() == name(BYTES)
    upload.close()
    assert bytes(parts.view(name(BYTES))) == BYTES and list(parts.digests()) == [name(BYTES)]


def test_a_cut_upload_goes_on_where_it_was(parts: Parts) -> None:
    """The next upload of the digest begins at the bytes that came, as often as it is cut."""
    for at in range(0, 3000, 1000):
        cut = parts.upload(name(BYTES), len(BYTES))
        assert cut.offset == at
        cut.write(BYTES[at : at + 1000])
        cut.close()
    rest = parts.upload(name(BYTES), len(BYTES))
    rest.write(BYTES[rest.offset :])
    assert rest.commit() == name(BYTES) and bytes(parts.view(name(BYTES))) == BYTES


def test_two_senders_of_one_part_do_not_meet(parts: Parts) -> None:
    """Each goes on where itself was, and either makes the part whole."""
    one = parts.upload(name(BYTES), len(BYTES), "-run-ann")
    one.write(BYTES[:1000])
    two = parts.upload(name(BYTES), len(BYTES), "-run-bob")
    assert two.offset == 0
    two.write(BYTES)
    assert two.commit() == name(BYTES)
    one.write(BYTES[1000:])
    assert one.commit() == name(BYTES) and bytes(parts.view(name(BYTES))) == BYTES


def test_bytes_that_do_not_fit_their_digest_are_forgotten(parts: Parts) -> None:
    """The commit is refused, no part appears, and the next upload begins anew."""
    upload = parts.upload(name(BYTES), len(BYTES))
    upload.write(b"x" * len(BYTES))
    with pytest.raises(DigestMismatch):
        upload.commit()
    assert list(parts.digests()) == []
    again = parts.upload(name(BYTES), len(BYTES))
    assert again.offset == 0
    again.write(BYTES)
    assert again.commit() == name(BYTES)


def test_more_bytes_than_announced_are_refused(parts: Parts) -> None:
    """The chunk that goes beyond is not taken."""
    upload = parts.upload(name(BYTES), 10)
    upload.write(BYTES[:10])
    with pytest.raises(TooLarge):
        upload.write(BYTES[10:11])
    upload.close()
    assert list(parts.digests()) == []


def test_fewer_bytes_than_announced_are_refused(parts: Parts) -> None:
    """A size that was told wrong is found on commit, though the digest fits; nothing is kept."""
    upload = parts.upload(name(BYTES), len(BYTES) + 1)
    upload.write(BYTES)
    with pytest.raises(PartMismatch):
        upload.commit()
    assert list(parts.digests()) == []


# Folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where parts lie."""
    return tmp_path / "parts"


def leftovers(folder: Path) -> list[str]:
    """Every file beneath, by name."""
    return sorted(p.name for p in folder.rglob("*") if p.is_file())


def test_parts_are_there_for_the_next_process(folder: Path) -> None:
    """A second store over the folder has the same parts, and nothing else lies in it."""
    digest = FolderParts(folder).put([BYTES])
    assert list(FolderParts(folder).digests()) == [digest] and leftovers(folder) == [digest]


@pytest.mark.parametrize("bad", ["", "..", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65])
def test_what_is_no_digest_names_no_file(folder: Path, bad: str) -> None:
    """A name never leads out of the folder."""
    parts = FolderParts(folder)
    for ask in (parts.has, parts.size, parts.view, parts.drop, lambda digest: parts.upload(digest, 1)):
        with pytest.raises(BadName):
            ask(Digest(bad))
    assert leftovers(folder) == []


def test_a_sweep_forgets_half_written_files_only(folder: Path) -> None:
    """What a killed `put` left goes; parts stay, and a cut upload can still go on."""
    parts = FolderParts(folder)
    kept = parts.put([b"kept"])
    cut = parts.upload(name(BYTES), len(BYTES), "-run-ann")
    cut.write(BYTES[:1000])
    cut.close()
    (folder / "tmp" / "6f1c2d3e-0000-4000-8000-000000000000").write_bytes(b"half")
    parts.sweep()
    assert leftovers(folder) == sorted([kept, f"{name(BYTES)}-run-ann"])
    again = parts.upload(name(BYTES), len(BYTES), "-run-ann")
    assert again.offset == 1000
    again.close()


def test_a_process_that_starts_does_not_end_anothers_write(folder: Path) -> None:
    """Its sweep may take a file that another is writing, who then writes it once more."""

    class Swept(FolderParts):
        """A store beside which another process starts, in the middle of the first write."""

        sweeps = 0

        def fsync(self, descriptor: int) -> None:
            self.sweeps += 1
            if self.sweeps == 1:
                FolderParts(folder).sweep()
            super().fsync(descriptor)

    parts = Swept(folder)
    digest = parts.put([BYTES])
    assert parts.sweeps == 2 and bytes(parts.view(digest)) == BYTES and leftovers(folder) == [digest]


def halfway(folder: Path) -> FolderUpload:
    """An upload of a process that is frozen when the second half has come, and that part, finished by another process."""
    upload = FolderParts(folder).upload(name(BYTES), len(BYTES), "-run-ann")
    upload.write(BYTES[:5000])
    other = FolderParts(folder).upload(name(BYTES), len(BYTES), "-run-ann")
    assert other.offset == 5000
    other.write(BYTES[5000:])
    other.commit()
    return upload


def test_a_frozen_process_that_goes_on_writing_spoils_no_part(folder: Path) -> None:
    """What it writes is already there. It is told that its upload has ended."""
    frozen = halfway(folder)
    frozen.write(BYTES[5000:])
    with pytest.raises(Stale):
        frozen.commit()
    assert bytes(FolderParts(folder).view(name(BYTES))) == BYTES and leftovers(folder) == [name(BYTES)]


def test_a_frozen_process_names_nothing_that_is_not_whole(folder: Path) -> None:
    """Not even if the part was dropped meanwhile and is being sent once more."""
    frozen = halfway(folder)
    frozen.write(BYTES[5000:])
    parts = FolderParts(folder)
    parts.drop(name(BYTES))
    again = parts.upload(name(BYTES), len(BYTES), "-run-ann")
    again.write(BYTES[:100])
    with pytest.raises(Stale):
        frozen.commit()
    assert not parts.has(name(BYTES))
    again.write(BYTES[100:])
    assert again.commit() == name(BYTES)


FULL = """
import resource, signal, sys
from pathlib import Path
from tideline.archive.folder import FolderParts
from tideline.archive.digests import digest_of
from tideline.core.errors import StorageFull
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
parts, content = FolderParts(Path(sys.argv[1])), bytes(10000)
def put():
    parts.put([content])
def upload():
    arriving = parts.upload(digest_of([content]), len(content))
    try:
        for at in range(0, len(content), 1000):
            arriving.write(content[at : at + 1000])
    finally:
        arriving.close()
try:
    {"put": put, "upload": upload}[sys.argv[2]]()
except StorageFull as error:
    print(error)
parts.put([bytes(10)])
"""


@pytest.mark.processes
@pytest.mark.parametrize("way", ["put", "upload"])
def test_a_full_disk_leaves_nothing_behind(folder: Path, way: str) -> None:
    """A process that may write so much and no more is told so, forgets what it began, and can still keep what fits."""
    ended = subprocess.run([sys.executable, "-W", "error", "-c", FULL, str(folder), way], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "") and "No room" in ended.stdout
    assert leftovers(folder) == [name(bytes(10))]


KILLED = """
import os, signal, sys
from pathlib import Path
from tideline.archive.folder import FolderParts
parts = FolderParts(Path(sys.argv[1]))
def buffers():
    yield bytes(1000)
    os.kill(os.getpid(), signal.SIGKILL)
class Dying(list):
    looked = 0
    def __iter__(self):
        self.looked += 1
        return iter([bytes(1000), bytes(1000)]) if self.looked <= 3 else buffers()
parts.put(Dying())
"""


@pytest.mark.processes
def test_a_kill_in_the_middle_of_a_write_leaves_no_part(folder: Path) -> None:
    """The half-written file has no digest's name, and a sweep forgets it."""
    ended = subprocess.run([sys.executable, "-c", KILLED, str(folder)], capture_output=True)
    assert ended.returncode == -9
    parts = FolderParts(folder)
    assert list(parts.digests()) == [] and len(leftovers(folder)) == 1
    parts.sweep()
    assert leftovers(folder) == [] and bytes(parts.view(parts.put([bytes(2000)]))) == bytes(2000)


@pytest.mark.parametrize("at", [0, 100, len(BYTES)])
def test_of_a_discarded_upload_nothing_stays(parts: Parts, at: int) -> None:
    """However far it came, and also if it is finished but has no name yet; the same part may come again."""
    upload = parts.upload(name(BYTES), len(BYTES), "-a")
    upload.write(BYTES[:at])
    if at == len(BYTES):
        upload.finish()
    upload.discard()
    assert parts.arrived(name(BYTES), "-a") == 0 and not parts.has(name(BYTES))
    again = parts.upload(name(BYTES), len(BYTES), "-a")
    assert again.offset == 0
    again.write(BYTES)
    again.commit()
    again.discard()
    assert bytes(parts.view(name(BYTES))) == BYTES


# Weights that one process uploads are read by another: over a shared folder, and over a bucket of which it has no copy.
WORLD = World(inputs=(1, 64, 64), classes=40, model="mlp")  # of about a megabyte, as a large object is


@pytest.mark.parametrize("kind", SHARED)
def test_weights_are_read_where_they_were_not_uploaded(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """As a numeric worker reads them: checked, then copied; what is cut, or gone, is refused at its place."""
    here, there = (store(kind, request, tmp_path / name) for name in ("one", "two"))
    weights = nets.weights_of(nets.build(WORLD))
    content = save(weights)
    digest = digest_of([content])
    room = PartStore(here, MemoryJournal(), ManualClock())
    upload = room.upload_initial_weights(digest, len(content))
    with pytest.raises(ConfigRefused, match="There are no weights"):
        check_initial_weights(there, WORLD, digest)
    upload.write(content)
    room.commit([upload], *UPLOADER)
    assert check_initial_weights(there, WORLD, digest) == len(content)
    read = read_initial_weights(there, WORLD, digest)
    assert list(read) == list(weights) and all(torch.equal(read[name], w) for name, w in weights.items())
    there.drop(digest)
    with pytest.raises(ConfigRefused, match="There are no weights") as refusal:
        check_initial_weights(store(kind, request, tmp_path / "three"), WORLD, digest)
    assert refusal.value.context["path"] == "weights"
