"""Runs are deleted by a person's word and by the rules of age; what others need stays."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.toys import stage, start, until
from tests.laws.stage import Stage
from tideline.core.errors import ChainBroken, ConfigRefused, Deleted, NotFound, Refused, Unreachable
from tideline.core.run import RunId
from tideline.engine.audit.archived import ARCHIVED, Span, chain_in, content_of
from tideline.engine.audit.log import AuditEvent, Entry, Tip, follow
from tideline.engine.coordinator.retention.archiving import Archiving
from tideline.engine.coordinator.retention.deleting import Deleting
from tideline.engine.coordinator.retention.keeping import DAY, PAUSE_SECONDS, Retention, Rules, outlook
from tideline.engine.model.access.projects import Project, Quota
from tideline.engine.model.deletion import Cutoffs, Tombstone
from tideline.engine.simulation.journal import MemoryJournal
from tideline_server.retention.archive import FolderArchive


class Thinning:
    """Events by their age, as a database has them."""

    def __init__(self, left: int = 0) -> None:
        self.left, self.asked = left, list[float]()

    def drop_events(self, before: Cutoffs, most: int) -> int:
        """Some of them."""
        self.asked.append(before.others)
        some = min(self.left, most)
        self.left -= some
        return some

    def old_events(self, before: Cutoffs) -> int:
        """All of them."""
        return self.left


def ended(on: Stage) -> RunId:
    """A run that was cancelled amid its rounds."""
    run = start(on)
    until(on, run, 1)
    on.run_service.cancel(run)
    return run


def keeper(on: Stage, days: float, gone: list[Tombstone] | None = None, thinning: Thinning | None = None) -> Retention:
    """The rules, with both ages the same."""
    told = gone.append if gone is not None else lambda of: None
    return Retention(Deleting(on.run_service), thinning or Thinning(), Rules(days, days), told)


def test_a_deleted_run_is_told_of(on: Stage) -> None:
    """Whoever asks for it hears when it was deleted and by whom; deleting it again changes nothing."""
    run = ended(on)
    made = Deleting(on.run_service).delete(run, "ann")
    with pytest.raises(Deleted, match=rf"Run {run} .* was deleted at .* UTC by ann") as caught:
        on.run_service.find(run)
    assert caught.value.context["by"] == "ann"
    on.clock.advance(5.0)
    assert Deleting(on.run_service).delete(run, "bob") == made
    with pytest.raises(Deleted):
        on.run_service.cancel(run)


def test_its_parts_go_with_it(on: Stage) -> None:
    """Nothing lies in the store after the next collection."""
    run = ended(on)
    Deleting(on.run_service).delete(run)
    on.part_store.collect()
    assert list(on.parts.digests()) == []


def test_an_open_run_stays(on: Stage) -> None:
    """With what to do instead."""
    run = start(on)
    with pytest.raises(Refused, match=f"{run} is waiting.*tideline run cancel {run}"):
        Deleting(on.run_service).delete(run)
    assert on.run_service.find(run)


def test_an_unknown_run_is_not_found() -> None:
    """It was never there, so nobody deleted it."""
    with pytest.raises(NotFound) as caught:
        Deleting(stage().run_service).delete(RunId("nobody"))
    assert not isinstance(caught.value, Deleted)


def test_a_rule_deletes_what_is_old_enough() -> None:
    """Not before; the tombstone names the rule."""
    on, gone = stage(), list[Tombstone]()
    run = ended(on)
    rules = keeper(on, 30.0, gone)
    rules.step()
    on.clock.advance(29.0 * DAY)
    rules.step()
    assert (gone, outlook(rules).runs) == ([], ())
    on.clock.advance(2.0 * DAY)
    assert [row.id for row in outlook(rules).runs] == [run]
    rules.step()
    assert [(of.run, of.rule, of.by) for of in gone] == [(run, "--retain-runs-days 30", "")]
    with pytest.raises(Deleted, match="by the rule --retain-runs-days 30"):
        on.run_service.find(run)


def test_without_rules_everything_stays() -> None:
    """However old it is."""
    on, thinning = stage(), Thinning(5)
    run = ended(on)
    on.clock.advance(1e5 * DAY)
    rules = keeper(on, 0.0, thinning=thinning)
    rules.step()
    assert on.run_service.find(run) and thinning.left == 5
    assert (outlook(rules).runs, outlook(rules).events) == ((), 0)


def test_events_go_in_small_transactions() -> None:
    """Until none is left; then nobody is asked before the next look."""
    on, thinning = stage(), Thinning(2500)
    rules = keeper(on, 1.0, thinning=thinning)
    assert outlook(rules).events == 2500
    rules.step()
    assert (thinning.left, len(thinning.asked)) == (0, 4)
    rules.step()
    assert len(thinning.asked) == 4
    on.clock.advance(PAUSE_SECONDS)
    rules.step()
    assert len(thinning.asked) == 5


def test_a_store_that_is_away_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was due is deleted at a later step."""
    on, gone = stage(), list[Tombstone]()
    run = ended(on)
    on.clock.advance(2.0 * DAY)
    rules, delete = keeper(on, 1.0, gone), on.journal.delete_runs

    def away(*args: object) -> tuple[Tombstone, ...]:
        raise Unreachable("The store is away")

    monkeypatch.setattr(on.journal, "delete_runs", away)
    rules.step()
    assert gone == []
    monkeypatch.setattr(on.journal, "delete_runs", delete)
    rules.step()
    assert [of.run for of in gone] == [run]


def test_who_comes_second_changes_nothing() -> None:
    """Two coordinators with the same rules delete a run once."""
    on, first, second = stage(), list[Tombstone](), list[Tombstone]()
    ended(on)
    on.clock.advance(2.0 * DAY)
    one, other = keeper(on, 1.0, first), keeper(on, 1.0, second)
    one.step()
    other.step()
    assert (len(first), second) == (1, [])
    assert [entry.kind for entry in on.journal.audit()].count("run_deleted") == 1


def test_a_project_has_rules_of_its_own() -> None:
    """In place of the coordinator's, either way; 0 keeps its runs for ever."""
    on, gone = stage(), list[Tombstone]()
    run = ended(on)
    rules = keeper(on, 30.0, gone)
    on.journal.limit_project("default", Quota(retain_runs_days=0.0, retain_events_days=90.0), 0.0)
    on.clock.advance(60.0 * DAY)
    rules.step()
    assert gone == [] and outlook(rules).runs == ()
    assert outlook(rules).rules.projects == {"default": Rules(0.0, 90.0)}
    on.journal.limit_project("default", Quota(retain_runs_days=50.0), 0.0)
    assert [row.id for row in outlook(rules).runs] == [run]
    on.clock.advance(PAUSE_SECONDS)
    rules.step()
    assert [(of.run, of.rule) for of in gone] == [(run, "--retain-runs-days 50 of the project default")]


def test_a_project_may_be_the_only_one_with_a_rule() -> None:
    """The coordinator has none, and others keep their runs."""
    on, gone = stage(), list[Tombstone]()
    ended(on)
    rules = keeper(on, 0.0, gone)
    on.journal.add_project(Project("cardio", quota=Quota(retain_runs_days=1.0)))
    on.clock.advance(5.0 * DAY)
    rules.step()
    assert gone == []
    on.journal.limit_project("default", Quota(retain_runs_days=1.0), 0.0)
    on.clock.advance(PAUSE_SECONDS)
    rules.step()
    assert len(gone) == 1


# Old entries of the audit log become files, and then leave the journal; whatever stops that in the middle, nothing is lost.
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
    assert len(scene.filed) == written + 1 and scene.whole()


def test_the_last_entry_stays(tmp_path: Path) -> None:
    """However old it is: the next one is chained to it."""
    scene = Scene(stage(), tmp_path, entries=5)
    scene.on.clock.advance(1000 * DAY)
    scene.step()
    assert [entry.kind for entry in scene.journal.audit()][-1] == ARCHIVED and len(scene.journal.audit()) == 2
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
    assert scene.filed[:2] == [Span(1, 4), Span(5, 14)] and scene.whole()


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
    assert scene.archive.spans()[:2] == (Span(1, 6), Span(1, 10)) and scene.journal.audit_base().seq >= 10
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
