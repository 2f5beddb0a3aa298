"""What of a home goes by its owner's rules: runs that are over for long, and such that were deleted at the coordinator.

Each deletion stands in the ledger before it is done. What the owner has spared, or exported elsewhere, stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tideline.core.errors import Refused
from tideline.core.run import RunId
from tideline.engine.site.rules import OnDelete
from tideline_agent.home.features import clear_features
from tideline_agent.home.ledger import FileLedger
from tideline_agent.home.retention.deleted import heard_of
from tideline_agent.home.runs import StoredRun, clear, forget, stored_runs
from tideline_agent.policy_file import SitePolicy

DAY_SECONDS = 86400.0
FORGOTTEN = "forgotten"  # the ledger's kind


@dataclass(frozen=True)
class Due:
    """A run whose files go, and why. asked: whether the owner is to say so each time."""

    run: StoredRun
    why: str
    asked: bool = False


def due_in(home: Path, policy: SitePolicy, methods: str, now: float | None = None) -> list[Due]:
    """What the policy says goes, by each run's project, the oldest first."""
    heard, at = heard_of(home), time.time() if now is None else now
    runs = sorted(stored_runs(home, methods).values(), key=lambda each: each.last)
    return list(chosen(runs, heard, policy, at))


def chosen(runs: list[StoredRun], heard: Mapping[RunId, float], policy: SitePolicy, now: float) -> Iterator[Due]:
    for run in runs:
        if run.spared:
            continue
        rules = policy.of(run.project).rules
        on_delete = rules.retention.on_delete
        days = rules.days(run.model)
        if run.run in heard and on_delete is not OnDelete.RETAIN:
            yield Due(run, "deleted at the coordinator", asked=on_delete is OnDelete.ASK)
        elif days and run.over and run.last < now - DAY_SECONDS * days:
            yield Due(run, f"not written to for {days} days")


def delete(home: Path, due: list[Due]) -> tuple[list[Due], int]:
    """Delete what is due: what went, and the bytes that are free. A run for which the agent works stays until the next time."""
    gone, freed = list[Due](), 0
    ledger = FileLedger(home) if due else None
    for each in due:
        try:
            forget(home, each.run.run, lambda each=each: note(ledger, each))  # type: ignore[misc]
        except (Refused, FileNotFoundError):
            continue
        gone.append(each)
        freed += each.run.bytes
    clear(home)
    return gone, freed + clear_features(home)


def note(ledger: FileLedger | None, due: Due) -> None:
    if ledger is not None:
        ledger.record(FORGOTTEN, run=due.run.run, bytes=due.run.bytes, why=due.why)
