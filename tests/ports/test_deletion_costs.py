"""A deletion costs what the run is large, however many others there are; and a kill amid it leaves the run whole."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import closing
from pathlib import Path
from subprocess import run as run_process

import pytest
from journal_values import RUN, TEAM
from test_costs import counted
from test_journal_deleted import NOW, over

from tideline.core.run import RunId
from tideline_server.store import SqlJournal

MOST = 1.5  # times the steps amid few runs
KILLED = """
import os, signal, sys
from pathlib import Path
from tideline_server.store import SqlJournal
from tideline_server.store.retention import runs
runs.bury = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
SqlJournal(Path(sys.argv[1])).delete_runs([sys.argv[2]], "", "", 50.0)
"""


def steps(path: Path, others: int) -> int:
    """The steps of the database for one deletion amid so many other runs."""
    with closing(SqlJournal(path)) as journal:
        for at in range(others):
            over(journal, RunId(f"other-{at}"))
        over(journal, RUN)
    with counted() as work, closing(SqlJournal(path)) as journal:
        journal.run(RUN)
        work.steps = 0
        assert journal.delete_runs([RUN], "", "", NOW)
        return work.steps


@pytest.mark.nightly(job="services")
def test_a_deletion_costs_the_same_amid_many_runs(tmp_path: Path) -> None:
    """The same steps amid 100 runs as amid 5."""
    assert steps(tmp_path / "many.db", 100) <= MOST * steps(tmp_path / "few.db", 5)


def test_a_kill_amid_a_deletion_leaves_the_run_whole(tmp_path: Path) -> None:
    """Killed after its rows are gone and before the tombstone is written: all of it is there, and is deleted the next time."""
    path = tmp_path / "journal.db"
    with closing(SqlJournal(path)) as journal:
        over(journal, RUN)
        before = (journal.run(RUN), journal.orders(RUN), journal.rounds(RUN), journal.events(RUN), journal.audit())
    done = run_process([sys.executable, "-c", KILLED, str(path), RUN], env=dict(os.environ), check=False)
    assert done.returncode == -signal.SIGKILL
    with closing(SqlJournal(path)) as journal:
        after = (journal.run(RUN), journal.orders(RUN), journal.rounds(RUN), journal.events(RUN), journal.audit())
        assert after == before
        assert len(before[1]) == 2 * len(TEAM) and journal.tombstone(RUN) is None
        assert journal.delete_runs([RUN], "", "", NOW)
        assert journal.run(RUN) is None
