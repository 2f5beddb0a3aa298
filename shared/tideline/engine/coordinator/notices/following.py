"""What an entry of the audit log is to those who are notified. Whatever stands in the log is told once: it has one order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline.engine.audit.entries import APPROVAL_AWAITED
from tideline.engine.audit.log import Entry
from tideline.engine.model.notices import MOST_WORDS, Kind, Notice
from tideline.engine.model.runs import Status

FOLLOWED: Mapping[str, Kind] = {
    f"run_{Status.STALLED.value}": Kind.STALLED,
    f"run_{Status.FAILED.value}": Kind.FAILED,
    f"run_{Status.COMPLETED.value}": Kind.COMPLETED,
    APPROVAL_AWAITED: Kind.APPROVAL,
}


@dataclass(frozen=True)
class RunFacts:
    """What a notice says of a run. parent: the run that it belongs to."""

    name: str
    project: str
    parent: str | None = None


def notice_of(entry: Entry, run: RunFacts | None) -> Notice | None:
    """The notice of an entry. None where nobody is to hear: its run was deleted, or it is another's and has completed."""
    kind = FOLLOWED.get(entry.kind)
    if kind is None or run is None or (run.parent is not None and kind is Kind.COMPLETED):
        return None
    return Notice(
        kind=kind,
        at=entry.at,
        words=words_of(kind, entry, run)[:MOST_WORDS],
        source=str(entry.seq),
        project=run.project,
        run=entry.run,  # type: ignore[arg-type]
        run_name=run.name,
        site=entry.client if kind is Kind.APPROVAL else "",
    )


def words_of(kind: Kind, entry: Entry, run: RunFacts) -> str:
    whose = f"Run {run.name}" if run.parent is None else f"Run {run.name}, which belongs to {run.parent},"
    if kind is Kind.COMPLETED:
        return f"{whose} has completed"
    if kind is Kind.APPROVAL:
        return f"{whose} waits for the approval of the owner of {entry.client}"
    cause = str(entry.details.get("cause", ""))
    return f"{whose} has {kind.value}{': ' if cause else ''}{cause}"
