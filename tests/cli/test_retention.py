"""`tideline run delete` and `tideline retention show`: what goes, what is refused, and what goes next."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.cli.world import Coordinator, output_of, refusal_of, tide
from tideline.engine.coordinator.retention.archiving import Archiving
from tideline.engine.coordinator.retention.deleting import Deleting
from tideline.engine.coordinator.retention.keeping import DAY, Retention, Rules
from tideline.engine.model.access.projects import Quota
from tideline.engine.model.deletion import Cutoffs
from tideline_server.retention.archive import FolderArchive


class SomeEvents:
    """A journal with old events."""

    def drop_events(self, before: Cutoffs, most: int) -> int:
        return 0

    def old_events(self, before: Cutoffs) -> int:
        return 7


def run_of(there: Coordinator) -> str:
    return str(there.complete(world={"inputs": [1, 8, 8], "classes": 10, "model": "linear"}))


def tell(there: Coordinator, *more: str) -> Any:
    return tide(*more, "--home", there.home)


def test_a_run_is_deleted(there: Coordinator) -> None:
    """Once and for all: whoever asks for it hears so, and to delete it again changes nothing."""
    run = run_of(there)
    assert "you did not confirm" in refusal_of(tell(there, "run", "delete", run))
    assert run in output_of(tell(there, "run", "delete", run, "--yes"))
    assert "was deleted at" in refusal_of(tell(there, "run", "show", run))
    assert json.loads(output_of(tell(there, "run", "delete", run, "--yes", "--json")))["deleted"][0]["run"] == run
    assert run not in tell(there, "run", "list").stdout


def test_what_cannot_be_deleted(there: Coordinator) -> None:
    assert tell(there, "run", "delete", "nobody", "--yes").exit_code == 2
    run = str(there.start())
    assert f"tideline run cancel {run}" in refusal_of(tell(there, "run", "delete", run, "--yes"))


def test_what_goes_next_is_shown(there: Coordinator, tmp_path: Path) -> None:
    """The rules, a project's own, the runs, the events and the entries; without rules that nothing is due."""
    run = run_of(there)
    said = tell(there, "retention", "show").stdout
    assert "Runs are kept for ever, their events for ever." in said and "Nothing is due" in said
    at = there.federation
    retention = Retention(Deleting(at.run_service), SomeEvents(), Rules(runs_days=30.0, events_days=5.0))
    archive = FolderArchive(tmp_path / "audit")
    archiving = Archiving(journal=at.journal, archive=archive, clock=at.clock, days=-1.0, most=4)
    there.app.state.services = replace(there.app.state.services, retention=retention, archiving=archiving)
    assert f"{run} (" not in tell(there, "retention", "show").stdout
    at.journal.limit_project("default", Quota(retain_runs_days=-1.0 / DAY), 0.0)
    said = " ".join(tell(there, "retention", "show").stdout.split())
    assert "Runs are kept for 30 days after a run's end, their events for 5 days" in said
    assert "Those of default: runs for" in said and f"{run} (" in said and "goes next" in said
    assert "7 events of runs that are over will go" in said and "4 entries of the audit log will go into a file" in said
    archiving.trouble = "the disk is full"
    shown = json.loads(tell(there, "retention", "show", "--json").stdout)
    assert shown["audit_trouble"] and shown["audit_entries"] == 4 and shown["projects"][0]["name"] == "default"
