"""Bytes for which memory has no room: in files that nobody can name, read as if they were here."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.synthetic import NAMES, experiment, sites
from tideline.algorithms import METHODS
from tideline.archive.digests import digest_of
from tideline.archive.disk.spill import MAPPED_BYTES, Spill
from tideline.archive.parts import MemoryParts
from tideline.core.errors import StorageFull
from tideline.core.run import RunId
from tideline.engine.audit.log import Tip, follow
from tideline.engine.simulation import history
from tideline.engine.simulation.adapters import MOST_RUNG, QuietBell
from tideline.engine.simulation.federation import Federation
from tideline.engine.simulation.history import BLOCK, History
from tideline.engine.simulation.homes import Scratch
from tideline.engine.simulation.journal import MemoryJournal

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
SIZES = (1, 100, 5000, MAPPED_BYTES, MAPPED_BYTES + 1, 3 * MAPPED_BYTES, 70, 0)


def contents(sizes: Sequence[int] = SIZES) -> list[bytes]:
    return [os.urandom(size) for size in sizes]


@pytest.mark.parametrize("room", [0, 200, MAPPED_BYTES, 1 << 20])
@pytest.mark.parametrize("file_bytes", [1, 6000, 1 << 20])
def test_what_is_kept_is_read(tmp_path: Path, room: int, file_bytes: int) -> None:
    spill, given = Spill(tmp_path, room, file_bytes), contents()
    kept = [spill.store(each) for each in given]
    assert [blob.content() for blob in kept] == given and [bytes(blob.view()) for blob in kept] == given
    assert spill.in_memory <= room and spill.in_memory + spill.in_files == sum(SIZES) == sum(map(len, kept))


def test_what_a_reader_writes_stays_with_him(tmp_path: Path) -> None:
    spill, given = Spill(tmp_path, 0), contents()
    kept = [spill.store(each) for each in given]
    for blob in kept:
        blob.view()[:] = bytes(len(blob))
    assert [bytes(blob.view()) for blob in kept] == given


def test_the_oldest_go_first(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 1000)
    kept = [spill.store(bytes(400)) for _ in range(5)]
    assert (spill.in_memory, spill.in_files) == (800, 1200)
    del kept[:3]
    assert (spill.in_memory, spill.in_files) == (800, 0)


@pytest.mark.nightly(job="services")
def test_files_have_no_names_and_go_with_what_lies_in_them(tmp_path: Path) -> None:
    gc.collect()  # other tests may have left files to it
    spill, before = Spill(tmp_path, 0, 1000), descriptors()
    kept = [spill.store(bytes(1000)) for _ in range(5)]
    assert descriptors() == before + 5 and list(tmp_path.iterdir()) == []
    del kept[1:4]
    assert descriptors() == before + 2
    view = kept[0].view()
    del kept, spill
    gc.collect()
    assert descriptors() == before and bytes(view) == bytes(1000)


def test_there_are_never_many_files(tmp_path: Path) -> None:
    spill, before = Spill(tmp_path, 0, 100), descriptors()
    kept = [spill.store(bytes(100)) for _ in range(10_000)]
    assert descriptors() - before < 150 and spill.in_files == 100 * len(kept)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_stores_share_what_both_hold(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 500)
    one, two, content = MemoryParts(spill), MemoryParts(spill), bytes(400)
    digest = one.put([content])
    two.share([digest], one)
    assert spill.in_memory == 400
    other = two.put([b"x" * 400])
    assert (spill.in_memory, spill.in_files) == (400, 400)
    one.drop(digest)
    assert (two.size(digest), bytes(two.view(digest)), digest_of([two.view(other)])) == (400, content, other)
    two.aside().take([digest])
    assert two.has(digest) and spill.in_files == 400
    two.drop(digest)
    assert spill.in_files == 0


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that is full: a write beyond so many bytes of a file fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 5000)
    first = spill.store(b"1" * 4000)
    with files_of_at_most(1000), pytest.raises(StorageFull, match=f"written to {tmp_path}: there is no room") as told:
        spill.store(b"2" * 2000)
    assert told.value.todo == "Make room there"
    del told
    assert (spill.in_memory, spill.in_files, first.content()) == (4000, 0, b"1" * 4000)
    second = spill.store(b"2" * 2000)
    assert (spill.in_memory, spill.in_files, first.content(), second.content()) == (2000, 4000, b"1" * 4000, b"2" * 2000)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageFull, match="nowhere: No such file"):
        Spill(tmp_path / "nowhere", 0).store(b"content")


@pytest.mark.parametrize("method", ["fedavg", pytest.param("feddadil", marks=pytest.mark.nightly(job="services"))])
def test_a_simulation_without_room_ends_in_the_same_bytes(tmp_path: Path, method: str) -> None:
    results = []
    for spill in (Spill(), Spill(tmp_path, 0, 1)):
        with closing(Federation(METHODS, sites(), Scratch(spill=spill))) as federation:
            results.append(federation.run(federation.start(experiment(method, ROSTER))) | {"run": ""})
        assert (spill.in_memory == 0) == (spill.in_files > 0)
    assert results[0] == results[1]


# What a journal in memory remembers: how much of it stays as rows, and that it is read as it was written.


@pytest.mark.parametrize("number", [0, 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, 5 * BLOCK + 7])
def test_rows_are_read_from_any_place(number: int) -> None:
    rows: History[int] = History(Spill(), lambda row: row, lambda row: int(str(row)))
    for row in range(number):
        rows.append(row)
    assert len(rows) == number
    for first in {0, 1, BLOCK - 1, BLOCK, BLOCK + 1, number - 1, number, number + 1} - {-1}:
        assert list(rows.since(first)) == list(range(first, number))


def test_what_many_rows_take_is_little() -> None:
    """Packed, an event of a reply takes a tenth of what it takes as objects; but for the newest, all are packed."""
    spill, run = Spill(), RunId("run")
    journal = MemoryJournal(spill)
    for i in range(20 * BLOCK):
        journal.event(run, "answered", {"client": f"site-{i % 1000:05d}", "cursor": i // 1000, "metrics": {"loss": i / 7}}, 0.0)
    assert spill.in_memory < 40 * 20 * BLOCK
    assert [event.seq for event in journal.events(run)] == list(range(1, 20 * BLOCK + 1))
    assert journal.events(run, 3 * BLOCK, 2) == tuple(journal.events(run)[3 * BLOCK : 3 * BLOCK + 2])


def test_a_run_whose_history_is_packed_tells_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    for block in (BLOCK, 2):
        monkeypatch.setattr(history, "BLOCK", block)
        federation = Federation(METHODS, sites(), Scratch())
        run = federation.start(experiment("fedavg", dict.fromkeys(NAMES[:3], "source")))
        federation.run(run)
        follow(Tip(), federation.journal.audit())
        events = [(e.seq, e.at, e.kind, e.data) for e in federation.journal.events(run)]
        told.append((events, [(e.kind, e.client, e.details.get("cursor")) for e in federation.journal.audit()]))
    assert told[0] == told[1]


def test_a_bell_forgets_what_was_rung_long_ago() -> None:
    bell = QuietBell()
    for i in range(10 * MOST_RUNG):
        bell.ring(f"run:{i}")
    assert len(bell.rung) <= 2 * MOST_RUNG and bell.rung[-1] == f"run:{10 * MOST_RUNG - 1}"
