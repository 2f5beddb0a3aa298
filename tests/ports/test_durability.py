"""What is acknowledged is on the disk: bytes are synced before they get their name, names before anybody hears of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tideline.archive.digests import digest_of
from tideline.archive.folder import FolderParts
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.ports.site import Head
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.journal import MemoryJournal
from tideline_agent.vault import FolderVault
from tideline_server.store import SqlJournal

CONTENTS = [bytes([at]) * 1000 for at in range(5)]
RUN, ANN = RunId("run"), ClientId("ann")


class Log:
    """What reached the system, in order: ("sync", path), ("name", path, new path), ("told", "")."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, ...]] = []
        self._real_sync = os.fsync
        monkeypatch.setattr(os, "fsync", self._sync)
        for name in ("replace", "rename"):
            monkeypatch.setattr(os, name, self._naming(getattr(os, name)))

    def _sync(self, descriptor: int) -> None:
        self.seen.append(("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        self._real_sync(descriptor)

    def _naming(self, real: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def name(path: Any, to: Any) -> None:
            self.seen.append(("name", os.fspath(path), os.fspath(to)))
            real(path, to)

        return name

    def safe(self, path: Path) -> bool:
        """Whether a file's bytes were synced, then its name, then those of its folder and of that one's folder, then told."""
        names = [(at, each[1]) for at, each in enumerate(self.seen) if each[0] == "name" and each[2] == str(path)]
        at, bytes_of = names[-1] if names else (len(self.seen), str(path))
        told = self.seen.index(("told",)) if ("told",) in self.seen else len(self.seen)
        folders = [("sync", str(path.parent)), ("sync", str(path.parent.parent))]
        after = self.seen[at if names else 0 : told]
        return ("sync", bytes_of) in self.seen[:at] and all(folder in after for folder in folders)


class Telling(MemoryJournal):
    """A journal that logs when a client may hear that its parts are kept."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def add_parts(self, digests: Sequence[Digest], run: RunId, client: ClientId, now: float) -> None:
        self._log.seen.append(("told",))
        super().add_parts(digests, run, client, now)


def put(parts: FolderParts, log: Log) -> None:
    """As the coordinator's numbers keep parts."""
    for content in CONTENTS:
        parts.put([content])


def send(parts: FolderParts, log: Log) -> None:
    """As a client's parts are kept."""
    room = PartStore(parts, Telling(log), ManualClock())
    uploads = [room.upload(digest_of([content]), len(content), RUN, ANN) for content in CONTENTS]
    for upload, content in zip(uploads, CONTENTS, strict=True):
        upload.write(content)
    room.commit(uploads, RUN, ANN)


WAYS = pytest.mark.parametrize("way", [put, send])


@WAYS
@pytest.mark.parametrize("there", [False, True], ids=["new", "there already"])
def test_what_is_acknowledged_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[FolderParts, Log], None], there: bool
) -> None:
    """Also what lay there already: who wrote it may have been killed before it was synced."""
    parts = FolderParts(tmp_path / "parts")
    if there:
        for content in CONTENTS:
            FolderParts(tmp_path / "parts", durable=False).put([content])
    log = Log(monkeypatch)
    way(parts, log)
    assert [log.safe(parts.path(digest_of([content]))) for content in CONTENTS] == [True] * len(CONTENTS)


@WAYS
def test_the_test_above_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[FolderParts, Log], None]
) -> None:
    """Of parts that need not survive a power cut nothing is synced, and that is seen."""
    log, parts = Log(monkeypatch), FolderParts(tmp_path / "parts", durable=False)
    way(parts, log)
    assert not any(log.safe(parts.path(digest_of([content]))) for content in CONTENTS)


def head_of(vault: FolderVault, *contents: bytes) -> Head:
    """The record of an order whose step kept these files as its memory."""
    memory = tuple((vault.parts(RUN).put([content]), len(content)) for content in contents)
    return Head(OrderId("order"), 0, memory, (), {}, {})


def test_a_sites_memory_was_synced_before_its_record_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the memory, then the record, then its name; what the last record named is on the disk already."""
    vault = FolderVault(tmp_path)
    first, log = head_of(vault, CONTENTS[0]), Log(monkeypatch)
    vault.commit(RUN, first)
    kept, record = vault.parts(RUN).path(first.memory[0][0]), vault.path(RUN) / "head.json"
    named = log.seen.index(("name", str(record.with_suffix(".tmp")), str(record)))
    synced = [("sync", str(path)) for path in (kept, kept.parent, record.with_suffix(".tmp"))]
    assert [step for step in log.seen[:named] if step in synced] == synced
    assert ("sync", str(record.parent)) in log.seen[named:]
    log.seen.clear()
    vault.commit(RUN, head_of(vault, *CONTENTS[:2]))
    assert synced[0] not in log.seen and vault.head(RUN) == head_of(vault, *CONTENTS[:2])


def test_a_commit_to_sqlite_is_on_the_disk(tmp_path: Path) -> None:
    """synchronous=FULL (2) on every connection, whatever it is used for."""
    with closing(SqlJournal(tmp_path / "journal.db")) as journal:
        asked = "PRAGMA synchronous"
        assert journal._store.write(lambda connection: connection.exec_driver_sql(asked).scalar()) == 2
        with journal._store.reading() as one, journal._store.reading() as two:
            assert [connection.exec_driver_sql(asked).scalar() for connection in (one, two)] == [2, 2]
