"""Runs that are deleted at the coordinator, by hand or by rules of age: what agents do about it; and no kill loses anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.conftest import WORLD, write_blobs
from tests.acceptance.harness import COORDINATOR, Net, net
from tests.aging import parts_on_disk, store_of, write_run
from tests.postgres import own_schema, run
from tideline.core.run import RunId
from tideline.engine.audit.archived import chain_in
from tideline.engine.audit.log import AuditEvent, Tip, follow
from tideline.engine.coordinator.retention.archiving import MOST_ENTRIES
from tideline_server.retention.archive import FolderArchive
from tideline_server.store import SqlJournal

pytestmark = pytest.mark.processes
GIVEN = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"anna": "source", "bert": "source", "cyd": "source"}}
SAID = {"anna": "follow", "bert": "ask", "cyd": "keep"}


def runs_in(made: Net, name: str) -> set[str]:
    """The runs of which an agent's home has files."""
    return {folder.name for folder in (made.home / f"home-{name}" / "runs").iterdir()}


@pytest.mark.nightly(job="journeys")
def test_agents_hear_of_a_deletion_when_they_come_back(tmp_path: Path) -> None:
    """One deletes what it has, one asks its owner, one does nothing; what they still need stays, and the ledgers tell."""
    with net(tmp_path) as made:
        made.coordinator()
        for at, (name, said) in enumerate(SAID.items()):
            made.agent(name, write_blobs(tmp_path / name, at), "source", *made.policy(f"[retention]\non_delete = '{said}'\n"))
        gone, stays = (made.run({**GIVEN, "seed": seed}) for seed in (1, 2))
        assert [made.ended(run)["status"] for run in (gone, stays)] == ["completed", "completed"]
        for name in SAID:
            made.kill(name)
            assert runs_in(made, name) == {gone, stays}
        made.client().delete(f"/runs/{gone}")
        for name in SAID:
            made.again(name)
        made.until(lambda: runs_in(made, "anna") == {stays}, "anna to delete the run")
        made.until(lambda: "runs_deleted_elsewhere" in made.log("bert"), "bert to hear of it")
        assert runs_in(made, "bert") == runs_in(made, "cyd") == {gone, stays}
        (due,) = made.owner("bert", "clean", "--dry-run")["due"]
        assert (due["run"], due["why"]) == (gone, "deleted at the coordinator")
        assert made.owner("cyd", "clean", "--dry-run")["due"] == [] and not (made.home / "home-cyd" / "deleted.json").exists()
        assert made.owner("bert", "clean", "--yes")["forgotten"] == [gone] and runs_in(made, "bert") == {stays}
        for name in ("anna", "bert"):
            (entry,) = [each for each in made.owner(name, "ledger", "list") if each["kind"] == "forgotten"]
            assert (entry["run"], entry["details"]["why"]) == (gone, "deleted at the coordinator")
            assert made.owner(name, "ledger", "verify")["entries"] >= entry["seq"]


OLD, YOUNG = 120, 20
SECOND = "second"


@pytest.fixture
def database() -> Iterator[str]:
    with own_schema() as url:
        yield url


def buried(database: str) -> int:
    return int(run(database, "SELECT count(*) FROM tombstones")[0][0])


def rules(folder: Path) -> tuple[str, ...]:
    """What a coordinator is started with; entries of the audit log are old at once."""
    ages = ("--retain-runs-days", "30", "--retain-events-days", "3", "--retain-audit-days", "1e-9")
    return (*ages, "--audit-archive", str(folder / "audit"), "--parts", str(folder / "parts"))


def filled(database: str, folder: Path) -> set[str]:
    """A database with many runs; the parts that the young ones need."""
    with closing(SqlJournal(database)) as journal:
        store = store_of(journal, folder / "parts")
        for at in range(OLD):
            write_run(store, f"old-{at:03d}", 40.0)
        for at in range(YOUNG):
            write_run(store, f"young-{at:03d}", 5.0)
        journal.record([AuditEvent("test", 1.0, details={"at": at}) for at in range(MOST_ENTRIES)])
        runs = [RunId(f"young-{at:03d}") for at in range(YOUNG)]
        needed = {str(digest) for each in runs for row in journal.rounds(each) for digest, _ in row.state}
        return needed | {str(journal.marker())}


def settled(database: str, folder: Path, needed: set[str]) -> bool:
    """Whether the rules have done all that they are to do."""
    events = run(database, "SELECT count(*) FROM events")[0][0]
    return buried(database) == OLD and events == YOUNG and parts_on_disk(folder / "parts") == needed


def whole(database: str, folder: Path) -> Tip:
    """The audit log is one chain, in the archive and in the database; the last entry that left it."""
    archive = FolderArchive(folder / "audit")
    with closing(SqlJournal(database)) as journal:
        base = journal.audit_base()
        assert follow(Tip(), chain_in(archive.spans(), archive.read, base.seq)) == base
        assert follow(base, journal.audit()) == journal.audit_tip()
        return base


def killed_amid(federation: Net, database: str, more: int) -> None:
    """Kill the coordinator once it has deleted some runs more."""
    before = buried(database)
    federation.until(lambda: buried(database) >= min(before + more, OLD), "some runs to go")
    federation.kill(COORDINATOR)


@pytest.mark.nightly(job="journeys")
def test_a_coordinator_is_killed_amid_the_rules(tmp_path: Path, database: str) -> None:
    """Twice; each time every run is whole or gone, and the last start does the rest."""
    needed = filled(database, tmp_path)
    with net(tmp_path, database=database) as federation:
        federation.coordinator(*rules(tmp_path))
        for more in (5, 50):
            killed_amid(federation, database, more)
            left = run(database, "SELECT count(*) FROM runs")[0][0]
            assert left + buried(database) == OLD + YOUNG
            whole(database, tmp_path)
            federation.again(COORDINATOR)
        federation.ready()
        federation.until(lambda: settled(database, tmp_path, needed), "the rules to be done")
        federation.until(lambda: whole(database, tmp_path).seq >= MOST_ENTRIES, "the log to be archived")
    assert whole(database, tmp_path).seq >= MOST_ENTRIES
    assert {path.suffix for path in (tmp_path / "audit").iterdir()} <= {".jsonl", ".tmp"}


@pytest.mark.nightly(job="journeys")
def test_two_coordinators_apply_the_rules_at_once(tmp_path: Path, database: str) -> None:
    """Each run goes once, each entry leaves the log once, and the archive that they share is whole."""
    needed = filled(database, tmp_path)
    with net(tmp_path, database=database) as federation:
        federation.coordinator(*rules(tmp_path))
        federation.coordinator(*rules(tmp_path), name=SECOND)
        federation.until(lambda: settled(database, tmp_path, needed), "the rules to be done")
        federation.until(lambda: whole(database, tmp_path).seq >= MOST_ENTRIES, "the log to be archived")
    deleted = "SELECT count(*), count(DISTINCT run) FROM audit WHERE kind = 'run_deleted'"
    many, different = run(database, deleted)[0]
    assert many == different > 0 and run(database, "SELECT count(*) FROM runs") == [(YOUNG,)]
