"""The audit log of real processes: killed amid a run, its chain is whole and tells what the run's own result tells."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import SITES, WORLD, start_all
from tests.acceptance.harness import COORDINATOR, Net, net
from tideline.engine.audit.log import About, Tip, follow
from tideline.engine.model.orders import OrderStatus

pytestmark = pytest.mark.processes


def verified(made: Net) -> subprocess.CompletedProcess[str]:
    """`tideline audit verify`, as a person types it."""
    command = [sys.executable, "-m", "tideline", "audit", "verify", "--json", "--home", str(made.folder)]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(made.home / "config")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.nightly(job="journeys")
def test_a_kill_leaves_a_whole_chain_and_a_forgery_is_found(tmp_path: Path, data: dict[str, Path]) -> None:
    """What was accepted, closed and published stands there once each; then somebody edits the database."""
    with net(tmp_path) as made:
        start_all(made, data)
        run = made.run({"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": SITES, "seed": 5})
        made.until(lambda: made.result(run)["cursor"] >= 1, "the run to be on its way")
        made.restart(COORDINATOR)
        made.completed(run)
        told = verified(made)
        assert told.returncode == 0, told.stdout + told.stderr
        with made.journal() as journal:
            entries = journal.audit(about=About(run=run))
            answered = [o.id for o in journal.orders(run) if o.status is OrderStatus.ANSWERED]  # type: ignore[arg-type]
            rounds = journal.rounds(run)  # type: ignore[arg-type]
            assert follow(Tip(), journal.audit()) == journal.audit_tip()
        assert sorted(e.details["order"] for e in entries if e.kind == "reply_accepted") == sorted(answered)
        assert [e.details["cursor"] for e in entries if e.kind == "round_closed"] == [closed.cursor for closed in rounds]
        assert [e.details["result"]["files"][0][0] for e in entries if e.kind == "run_completed"] == [
            made.result(run)["state_digest"]
        ]
        assert [(e.kind, e.by) for e in entries[:1]] == [("run_started", "admin")]
        victim = next(e for e in entries if e.kind == "reply_accepted")
        with sqlite3.connect(made.folder / "coordinator.db") as database:
            database.execute("DROP TRIGGER audit_no_UPDATE")
            database.execute("UPDATE audit SET client = 'another' WHERE seq = ?", (victim.seq,))
        database.close()
        told = verified(made)
        assert told.returncode == 6 and json.loads(told.stdout)["context"]["entry"] == victim.seq
