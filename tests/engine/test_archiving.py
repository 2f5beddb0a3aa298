"""Old entries of the audit log become files, and then leave the journal; whatever stops that in the middle, nothing is lost."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.toys import stage
from tests.laws.stage import Stage
from tideline.core.errors import ChainBroken, ConfigRefused, Unreachable
from tideline.engine.audit.archived import ARCHIVED, Span, chain_in, content_of
from tideline.engine.audit.log import AuditEvent, Entry, Tip, follow
from tideline.engine.coordinator.retention.archiving import Archiving
from tideline.engine.coordinator.retention.keeping import DAY, PAUSE_SECONDS
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.retention.archive import FolderArchive

MOST = 10  # entries of a file


class Scene:
    """A journal with one entry a day, its archive, and the rule."""

    def __init__(self, on: Stage, folder: Path, days: float = 30.0, entries: int = 0) -> None:
        self.on, self.journal, self.archive = on, on.journal, FolderArchive(folder)
        self.filed, self.said = list[Span](), list[str]()
        self.rule = self.again(days)
        for _ in range(entries):
            on.clock.advance(DAY)
            self.note()

    def again(self, days: float = 30.0) -> Archiving:
        """Another coordinator with the rule."""
        return Archiving(self.journal, self.archive, self.on.clock, days, self.filed.append, self.said.append, MOST)

    def note(self) -> None:
        """One more entry."""
        self.journal.record([AuditEvent("test", self.on.clock.now())])

    def step(self) -> None:
        """The next look."""
        self.on.clock.advance(PAUSE_SECONDS)
        self.rule.step()

    def whole(self) -> list[Entry]:
        """Every entry, of the archive and of the journal: one chain to the tip."""
        base = self.journal.audit_base()
        found = [*chain_in(self.archive.spans(), self.archive.read, base.seq), *self.journal.audit()]
        assert follow(Tip(), found) == self.journal.audit_tip()
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """60 entries of 60 days, and a rule of 30."""
    return Scene(stage(), tmp_path / "archive", entries=60)


def test_what_is_old_goes_into_files_and_then_out_of_the_journal(scene: Scene) -> None:
    """In files of so many; the newest stay, with an entry for each file."""
    before = scene.whole()
    assert scene.rule.due(scene.on.clock.now()) == MOST
    scene.step()
    scene.step()
    assert [span.last - span.first + 1 for span in scene.filed][:3] == [MOST] * 3
    assert scene.archive.spans() == tuple(scene.filed)
    base = scene.journal.audit_base()
    assert base.seq == scene.filed[-1].last and scene.journal.audit()[0].seq == base.seq + 1
    assert scene.whole()[: len(before)] == before
    told = [entry for entry in scene.journal.audit() if entry.kind == ARCHIVED]
    assert [entry.details["file"] for entry in told] == [span.name for span in scene.filed]
    assert (told[-1].details["last"], told[-1].details["hash"]) == (base.seq, base.hash)
    assert scene.journal.audit()[0].at < scene.on.clock.now() - 30 * DAY or len(scene.journal.audit()) > 30


def test_a_file_that_is_not_full_is_written_once_a_day(tmp_path: Path) -> None:
    """Not for each entry that comes of age."""
    scene = Scene(stage(), tmp_path, days=30.0, entries=31)
    scene.step()
    written = len(scene.filed)
    scene.step()
    scene.step()
    assert len(scene.filed) == written <= 1
    scene.on.clock.advance(2 * DAY)
    scene.step()
    assert len(scene.filed) == written + 1
    assert scene.whole()


def test_the_last_entry_stays(tmp_path: Path) -> None:
    """However old it is: the next one is chained to it."""
    scene = Scene(stage(), tmp_path, entries=5)
    scene.on.clock.advance(1000 * DAY)
    scene.step()
    assert [entry.kind for entry in scene.journal.audit()][-1] == ARCHIVED
    assert len(scene.journal.audit()) == 2
    scene.on.clock.advance(1000 * DAY)
    scene.step()
    assert scene.whole()


def test_what_is_young_stays(tmp_path: Path) -> None:
    """Nothing is written."""
    scene = Scene(stage(), tmp_path, entries=20)
    scene.step()
    assert (scene.archive.spans(), scene.journal.audit_base()) == ((), Tip())


def test_what_a_kill_left_is_taken_up(scene: Scene) -> None:
    """A file was written and its entries were not taken out: it is the file that counts, whatever more is due by now."""
    found = scene.journal.audit(limit=4)
    scene.archive.write(Span(1, 4), content_of(found))
    scene.step()
    assert scene.filed[:2] == [Span(1, 4), Span(5, 14)]
    assert scene.whole()


def test_two_coordinators_write_at_once(scene: Scene) -> None:
    """One of them wrote a shorter file meanwhile and was first; the longer one stays, and nobody minds that they overlap."""
    trim = scene.journal.trim_audit

    def second(base: Tip, last: Tip, event: AuditEvent) -> bool:
        scene.journal.trim_audit = trim  # type: ignore[method-assign]
        entries = scene.journal.audit(base.seq, 6)
        scene.archive.write(Span(1, 6), content_of(entries))
        assert trim(base, Tip(entries[-1].seq, entries[-1].hash), event)
        return trim(base, last, event)

    scene.journal.trim_audit = second  # type: ignore[method-assign]
    scene.step()
    assert scene.archive.spans()[:2] == (Span(1, 6), Span(1, 10))
    assert scene.journal.audit_base().seq >= 10
    assert scene.whole()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may have more than 100 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_keeps_the_entries_where_they_are(scene: Scene) -> None:
    """It is told once; no half file is left; and once there is room, it goes on."""
    before = scene.journal.audit()
    with full_disk():
        scene.step()
        scene.step()
    assert scene.journal.audit() == before and list(scene.archive.folder.iterdir()) == []
    assert len(scene.said) == 1 and "No room for the audit log's archive" in scene.said[0] and scene.rule.trouble
    scene.step()
    assert scene.said[1:] == [""] and not scene.rule.trouble and scene.filed


def test_a_damaged_file_takes_nothing_out(scene: Scene) -> None:
    """One that somebody left is read again before its entries go."""
    good = content_of(scene.journal.audit(limit=4))
    scene.archive.write(Span(1, 4), good.replace(b'"by":""', b'"by":"mallory"', 1))
    scene.step()
    assert "The archive's file audit-000000000001-000000000004.jsonl is damaged. Entry " in scene.said[0]
    scene.archive.write(Span(1, 4), good[:-200])
    scene.step()
    assert "is damaged" in scene.said[-1] and scene.journal.audit_base() == Tip()
    scene.archive.write(Span(1, 4), good)
    scene.step()
    assert scene.said[-1] == "" and scene.whole()


def test_a_log_that_was_changed_stays_as_it_is(scene: Scene) -> None:
    """It is the evidence."""
    assert isinstance(scene.journal, MemoryJournal)
    log = scene.journal._chain()
    log[2] = replace(log[2], by="mallory")
    scene.step()
    assert "Entry 3 is not as it was written" in scene.said[0]
    assert scene.archive.spans() == () and scene.journal.audit_base() == Tip()


def test_an_archive_of_another_database_is_told(scene: Scene, tmp_path: Path) -> None:
    """One that is ahead of a restored database, say: nothing goes before somebody has looked."""
    other = Scene(stage(), tmp_path / "other", entries=60)
    other.on.clock.advance(7.0)
    scene.archive.write(Span(1, 4), content_of(other.journal.audit(limit=4)))
    scene.step()
    assert "has other entries than the database" in scene.said[0] and scene.journal.audit_base() == Tip()


def test_a_database_that_is_away_is_no_matter(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told elsewhere, and the next look does it."""
    trim = scene.journal.trim_audit

    def away(*args: object) -> bool:
        raise Unreachable("The store is away")

    monkeypatch.setattr(scene.journal, "trim_audit", away)
    scene.step()
    assert scene.said == [] and scene.journal.audit_base() == Tip()
    monkeypatch.setattr(scene.journal, "trim_audit", trim)
    scene.step()
    assert scene.filed and scene.whole()


def test_a_file_that_is_missing_is_named(scene: Scene) -> None:
    """With the entries that it had."""
    scene.step()
    first, second, *_ = scene.filed
    (scene.archive.folder / second.name).unlink()
    with pytest.raises(ChainBroken, match=f"lacks the entries {second.first} to {second.last}: there is no {second.name}"):
        scene.whole()
    (scene.archive.folder / first.name).unlink()
    with pytest.raises(ChainBroken, match="lacks the entries 1 to 20"):
        scene.whole()


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    """At the start, with the option's name."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigRefused, match=r"--audit-archive .*file cannot be written to"):
        FolderArchive(tmp_path / "file")
