"""What remains of a run that was deleted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tideline.core.errors import Deleted
from tideline.core.run import Digest, RunId
from tideline.core.settings import EMPTY
from tideline.engine.model.runs import RunRow


@dataclass(frozen=True)
class Tombstone:
    """What is known of a deleted run. Times in seconds since 1970.

    state_digest  of the state that it ended in, if it completed     parent  the run that it belonged to
    by            the name of the key that asked; empty: a rule did, or an API without keys
    rule          the rule by which it went; empty: a person asked
    """

    run: RunId
    name: str
    method: str
    status: str
    created: float
    ended: float | None
    state_digest: Digest | None
    parent: RunId | None
    project: str
    deleted: float
    by: str
    rule: str


NEVER = -math.inf  # no run was over before


@dataclass(frozen=True)
class Cutoffs:
    """The moments before which runs must have been over to go: of each of these projects, and of all others."""

    others: float = NEVER
    projects: Mapping[str, float] = field(default_factory=lambda: EMPTY)

    def of(self, project: str) -> float:
        return self.projects.get(project, self.others)

    @property
    def any(self) -> bool:
        """Whether some run may go."""
        return self.latest > NEVER

    @property
    def latest(self) -> float:
        return max((self.others, *self.projects.values()))


@dataclass(frozen=True)
class Growth:
    """How much a database holds: bytes on its disk, events of runs, entries of the audit log, and such that were archived."""

    bytes: int
    events: int
    entries: int
    archived: int


def tombstone_of(row: RunRow, by: str, rule: str, now: float) -> Tombstone:
    return Tombstone(
        run=row.id,
        name=row.name,
        method=row.method,
        status=row.status.value,
        created=row.created,
        ended=row.ended,
        state_digest=row.state_digest,
        parent=row.parent,
        project=row.project,
        deleted=now,
        by=by,
        rule=rule,
    )


def refusal(of: Tombstone) -> Deleted:
    """What whoever asks for a deleted run is told: when it was deleted, and by whom."""
    when = datetime.fromtimestamp(of.deleted, UTC).strftime("%Y-%m-%d %H:%M UTC")
    who = f"by the rule {of.rule}" if of.rule else f"by {of.by}" if of.by else "by a person"
    return Deleted(
        f"Run {of.run} ({of.name}) was deleted at {when} {who}",
        "Nothing brings it back but a backup of the database and the parts",
        run=of.run,
        deleted=of.deleted,
        by=of.by,
        rule=of.rule,
        state_digest=of.state_digest,
    )
