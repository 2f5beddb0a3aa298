"""After many runs with the rules of age, the database and the disk hold what the rules say, and nothing else."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, func, select

from tests.aging import DAY, Now, parts_on_disk, store_of, write_run
from tideline.core.run import RunId
from tideline.engine.audit.archived import ARCHIVED, chain_in
from tideline.engine.audit.log import Tip, follow
from tideline.engine.coordinator.retention.archiving import Archiving
from tideline.engine.coordinator.retention.deleting import Deleting
from tideline.engine.coordinator.retention.keeping import Retention, Rules
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.simulation.adapters import QuietBell
from tideline_server.retention.archive import FolderArchive
from tideline_server.store import SqlJournal
from tideline_server.store.database.address import read_address
from tideline_server.store.schema import metadata

OF_RUNS = ("runs", "orders", "events", "refs", "drafts", "rosters", "round_totals", "leases")


def rows_in(where: str) -> dict[str, int]:
    """The rows of each table."""
    engine = create_engine(read_address(where))
    with engine.connect() as connection:
        found = {table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in metadata.sorted_tables}
    engine.dispose()
    return found


def after_the_rules(where: str, folder: Path, many: int) -> dict[str, float]:
    """Write so many runs, half of them old, apply the rules until nothing is due, and see what is left; figures."""
    parts, archive = folder / "parts", FolderArchive(folder / "audit")
    with closing(SqlJournal(where)) as journal:
        store = store_of(journal, parts)
        marker = parts_on_disk(parts)
        for at in range(many):
            write_run(store, f"run-{at:04d}", 5.0 if at % 2 else 40.0)
        before, held, began = rows_in(where), parts_on_disk(parts), time.monotonic()
        service = RunService(journal=journal, compute=None, bell=QuietBell(), clock=Now())  # type: ignore[arg-type]
        retention = Retention(Deleting(service), journal, Rules(30.0, 3.0))
        archiving = Archiving(journal=journal, archive=archive, clock=Now(), days=30.0, most=500)
        later = time.time() + 100.0 * DAY  # the log is of today
        while retention._searched < 0 or retention._due or retention._events_before.any:
            retention.step()
        while archiving._some(later):
            pass
        store.collect()
        seconds = time.monotonic() - began
        young = [f"run-{at:04d}" for at in range(1, many, 2)]
        assert list(journal.run_ids()) == sorted(young, key=lambda run: journal.run(RunId(run)).created)  # type: ignore[union-attr]
        needed = {str(digest) for run in young for row in journal.rounds(RunId(run)) for digest, _ in row.state}
        assert parts_on_disk(parts) == needed | marker and len(needed) == many / 2 < len(held) / 2
        base = journal.audit_base()
        assert follow(Tip(), [*chain_in(archive.spans(), archive.read, base.seq), *journal.audit()]) == journal.audit_tip()
        assert all(entry.kind == ARCHIVED for entry in journal.audit()[1:]) and base.seq > 3 * many
    after = rows_in(where)
    for name in OF_RUNS:
        assert after[name] == (len(young) if name == "events" else before[name] / 2), name
    assert after["tombstones"] == many / 2 and {path.suffix for path in archive.folder.iterdir()} <= {".jsonl"}
    size = sum(path.stat().st_size for path in parts.rglob("*") if path.is_file())
    return {"runs": many, "seconds": seconds, "parts_bytes": size, "archive_bytes": archive.bytes()}


@pytest.mark.nightly(job="services")
def test_a_hundred_runs_and_the_rules(where: str, tmp_path: Path) -> None:
    """Half of them old."""
    after_the_rules(where, tmp_path, 100)


@pytest.mark.nightly(job="services")
def test_a_thousand_runs_and_the_rules(where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same, with figures."""
    found = after_the_rules(where, tmp_path, 1000)
    with capsys.disabled():
        print(f"\n{where.partition(':')[0]}: {found}")
    shutil.rmtree(tmp_path / "parts")
