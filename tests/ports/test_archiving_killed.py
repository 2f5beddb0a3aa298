"""Killed anywhere on the way from the database to the archive: nothing is lost, and the next start goes on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import run as run_process

import pytest

from tests.postgres import own_schema
from tideline.engine.audit.archived import chain_in
from tideline.engine.audit.log import AuditEvent, Tip, follow
from tideline_server.retention.archive import FolderArchive
from tideline_server.store import SqlJournal

WORK = """
import os, signal, sys, time
from pathlib import Path
from tideline.engine.coordinator.retention.archiving import Archiving
from tideline_server.retention import archive as folder
from tideline_server.retention.archive import FolderArchive
from tideline_server.store import SqlJournal
from tideline_server.store import audit as log
from tideline_server.store.retention import audit as old

class Later:
    def now(self):
        return time.time() + 100 * 86400.0

def die(*given, **more):
    os.kill(os.getpid(), signal.SIGKILL)

point = sys.argv[3]
if point == "before the file is synced":
    os.fsync = die
elif point == "before it has its name":
    Path.replace = die
elif point == "before its name is synced":
    folder.sync = die
elif point == "before a transaction":
    SqlJournal.trim_audit = die
elif point == "amid the transaction":
    old.delete = die
elif point == "before the commit":
    append = log.append
    log.append = lambda *given: (append(*given), die())
elif point == "after it":
    trim = SqlJournal.trim_audit
    SqlJournal.trim_audit = lambda *given: (trim(*given), die())
journal = SqlJournal(sys.argv[1])
archiving = Archiving(journal, FolderArchive(Path(sys.argv[2])), Later(), 30.0, most=10)
for _ in range(40):  # each works for a while, and does nothing once nothing is due
    archiving.step()
print(journal.audit_base().seq)
"""
POINTS = (
    *("before the file is synced", "before it has its name", "before its name is synced"),
    *("before a transaction", "amid the transaction", "before the commit", "after it"),
)
ENTRIES = 40


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('killed') / 'journal.db'}"
        return
    with own_schema() as url:
        yield url


@pytest.mark.nightly(job="services")
def test_a_kill_loses_nothing(where: str, tmp_path: Path) -> None:
    """At each point in turn; then the whole chain is there, and a start without a kill archives what is due."""
    folder = tmp_path / "archive"
    with closing(SqlJournal(where)) as journal:
        for _ in POINTS:
            journal.record([AuditEvent("test", 1.0, details={"at": at}) for at in range(ENTRIES)])
        tip = journal.audit_tip()
    for point in POINTS:
        done = run_process([sys.executable, "-c", WORK, where, folder, point], env=dict(os.environ), check=False)
        assert done.returncode == -signal.SIGKILL, point
        assert whole(where, folder).seq >= tip.seq, point
    done = run_process([sys.executable, "-c", WORK, where, folder, ""], env=dict(os.environ), check=False, capture_output=True)
    assert done.returncode == 0 and int(done.stdout) >= tip.seq, done.stderr
    assert whole(where, folder).seq >= tip.seq


def whole(where: str, folder: Path) -> Tip:
    """The end of the chain, whose every entry is in the archive or in the database."""
    archive = FolderArchive(folder)
    with closing(SqlJournal(where)) as journal:
        base = journal.audit_base()
        last = follow(Tip(), chain_in(archive.spans(), archive.read, base.seq))
        assert last == base and follow(base, journal.audit()) == journal.audit_tip()
        return journal.audit_tip()
