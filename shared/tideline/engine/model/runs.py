"""Runs: what was asked for, how far each is, its closed rounds, who schedules it, what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum

from tideline.core.phase import Table
from tideline.core.privacy import Contract
from tideline.core.run import ClientId, Digest, Role, Roster, RunId, RunSpec
from tideline.core.settings import EMPTY, Plain
from tideline.engine.model.access.projects import DEFAULT
from tideline.engine.model.orders import Files

JOIN = -1  # the cursor of the exchange before the first phase: a site checks the contract and makes its first memory


class Status(StrEnum):
    """Where a run is. The first two are open; a stalled run waits for a user; the rest are final."""

    WAITING = "waiting"
    RUNNING = "running"
    STALLED = "stalled"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (Status.WAITING, Status.RUNNING)


FINAL = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
MOST_STORED = 64  # runs of which one sign of life asks whether they were deleted
MOST_QUIET = 64  # runs of which one sign of life of an agent asks whether they are over


def reaches(cursor: int, project: str, serves: Sequence[str]) -> bool:
    """Whether an order of a project's run reaches a site: none joins a run of a project that it does not serve."""
    return cursor != JOIN or project in serves


@dataclass(frozen=True)
class PhaseFact:
    """What is known of one place in a plan without loading the method."""

    phase: str
    step: str
    round: int
    floor: int | None = None
    needs: str = ""


JOINING = PhaseFact("join", "join", 1)


@dataclass(frozen=True)
class RunRow:
    """One run: what was asked for (`spec`), and how far it is.

    reference: the run that it is compared with. parent: the run that it belongs to, as its reference or in its rehearsal.
    best: the cursor of its best scoring so far, if it selects. project: whose it is. quorum: how many replies are enough in the
    place of its `min_replies`, since somebody resumed it so.
    """

    id: RunId
    name: str
    method: str
    spec: RunSpec
    roster: Mapping[ClientId, Role]
    plan: tuple[PhaseFact, ...]
    contract: Contract
    created: float
    deadline_at: float
    status: Status = Status.WAITING
    cause: str = ""
    cursor: int = JOIN
    members: Roster = ()
    opened: float = 0.0
    started: float | None = None
    ended: float | None = None
    state_digest: Digest | None = None
    fingerprint: str = ""
    reference: RunId | None = None
    parent: RunId | None = None
    best: int | None = None
    project: str = DEFAULT
    quorum: int | None = None

    @property
    def serving(self) -> tuple[RunId, ...]:
        """The runs that belong to this one."""
        return (*([] if self.reference is None else [self.reference]), *self.spec.children)

    def fact(self, cursor: int) -> PhaseFact:
        """What is known of an exchange; the one at JOIN is the join."""
        return JOINING if cursor == JOIN else self.plan[cursor]


@dataclass(frozen=True)
class Headline:
    """A run in one line. `of`: exchanges in its plan."""

    id: RunId
    name: str
    method: str
    status: Status
    cause: str
    cursor: int
    of: int
    created: float
    ended: float | None
    parent: RunId | None
    project: str = DEFAULT
    track: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sought:
    """Which runs a list is to have. statuses: empty: all; words: in a name, method, id or project, in small or capital letters;
    tops: without those that belong to another run; newest: the newest first.
    """

    statuses: frozenset[Status] = frozenset()
    words: str = ""
    tops: bool = False
    newest: bool = False

    def fits(self, line: Headline) -> bool:
        text = "\n".join((line.name, line.method, line.id, line.project)).lower()
        wanted = not self.statuses or line.status in self.statuses
        return wanted and self.words.lower() in text and not (self.tops and line.parent is not None)


EVERYTHING = Sought()


def headline(row: RunRow) -> Headline:
    shared = {field.name: getattr(row, field.name) for field in fields(Headline) if field.name not in ("of", "track")}
    return Headline(**shared, of=len(row.plan), track=row.spec.track)


@dataclass(frozen=True)
class Lease:
    """Who conducts a run: one holder at a time, each with a higher token than the one before.

    The holder gives signs of life, counted in `beats`. Whoever has seen none for `seconds`, by a clock of his own, may take it.
    """

    run: RunId
    holder: str = ""
    token: int = 0
    beats: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class RoundRow:
    """A closed round: whose replies were folded, and the state afterwards where it was checkpointed.

    marks, groups, tables: what the fold reports (core.phase.Folded).
    """

    run: RunId
    cursor: int
    phase: str
    round: int
    opened: float
    closed: float
    folded: tuple[ClientId, ...]
    next_cursor: int
    state: Files = ()
    asked: Mapping[ClientId, Digest] = field(default_factory=lambda: EMPTY)
    marks: Mapping[str, tuple[ClientId, ...]] = field(default_factory=lambda: EMPTY)
    groups: Mapping[str, tuple[ClientId, ...]] = field(default_factory=lambda: EMPTY)
    tables: Mapping[str, Table] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class Event:
    """Something that a user may want to know, in order, for one run."""

    run: RunId
    seq: int
    at: float
    kind: str
    data: Mapping[str, Plain]


@dataclass(frozen=True)
class Tally:
    """How much there is: runs by status and clients by standing, each word there even if it is 0; open orders; parts; entries."""

    runs: Mapping[str, int]
    clients: Mapping[str, int]
    orders: int
    parts: int
    entries: int
