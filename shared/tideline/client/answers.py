"""The JSON that a coordinator answers, a simulation returns and `--json` prints, as types. docs/result.md describes a result.

Keys that coordinators of earlier versions do not have are NotRequired.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from tideline.core.settings import Plain
from tideline.engine.model.verdicts import ExpectedAt as ExpectedAt
from tideline.engine.model.verdicts import Interval as Interval
from tideline.engine.model.verdicts import RehearsedAt as RehearsedAt
from tideline.engine.model.verdicts import Verdict as Verdict


class Failure(TypedDict):
    """Why an order has no reply in the fold."""

    phase: str
    round: int
    attempt: int
    kind: str
    what: str


class SpentData(TypedDict):
    """What steps took. reported, unreported: replies that said so, and that did not."""

    gpu_hours: float
    cpu_hours: float
    reported: int
    unreported: int


class SiteResult(TypedDict):
    """One site's line in a result. Accuracies are in 0..1."""

    name: str
    domain: str | None
    role: str
    samples: int | None
    accuracy: float | None
    source_only: float | None
    bytes_up: int
    bytes_down: int
    metrics: NotRequired[dict[str, float]]
    failures: list[Failure]
    declined: NotRequired[str | None]
    computing: NotRequired[dict[str, Plain] | None]
    spent: NotRequired[SpentData | None]
    epsilon: NotRequired[float | None]
    data: NotRequired[str | None]


class DeletedRun(TypedDict):
    """What remains of a deleted run."""

    run: str
    name: str
    method: str
    status: str
    created: float
    ended: float | None
    state_digest: str | None
    parent: str | None
    project: str
    deleted: float
    by: str
    rule: str


class DueRun(TypedDict):
    """A run that the rules of age delete next."""

    run: str
    name: str
    ended: float


class RetentionShown(TypedDict):
    """The rules of age, and what they delete next."""

    runs_days: float
    events_days: float
    runs: list[DueRun]
    events: int
    projects: list[ProjectAges]
    audit_days: float
    audit_entries: int
    audit_trouble: bool


class ProjectAges(TypedDict):
    """The rules of a project that has others than the coordinator."""

    name: str
    runs_days: float
    events_days: float


class TableData(TypedDict):
    """Numbers that a fold reported: values[i][j] is that of rows[i] and columns[j]."""

    rows: list[str]
    columns: list[str]
    values: list[list[float]]
    admins: NotRequired[bool]
    drawn: NotRequired[str]


class ClosedRound(TypedDict):
    """A closed round. Bytes are those of all attempts."""

    name: str
    round: int
    seconds: float
    replies: int
    clients: NotRequired[list[str]]
    marks: NotRequired[dict[str, list[str]]]
    groups: NotRequired[dict[str, list[str]]]
    without: NotRequired[dict[str, str]]
    tables: NotRequired[dict[str, TableData]]
    asked: NotRequired[int]
    bytes_down: int
    bytes_up: int


class Point(TypedDict):
    """A site's accuracy at one scoring; of very long runs the mean over so many `sites`, and no client."""

    client: str | None
    phase: str
    round: int
    cursor: int
    accuracy: float
    sites: NotRequired[int]


class Entry(TypedDict):
    """The metrics of one reply. None: not a number."""

    client: str
    phase: str
    round: int
    cursor: int
    metrics: dict[str, float | None]


class Mean(TypedDict):
    accuracy: float
    sites: int


class ScoreData(TypedDict):
    """A score, its 95 % interval, and the number of held-out rows that it is of."""

    value: float
    low: float
    high: float
    rows: int


class ValidatedData(TypedDict):
    """One scoring's mean over `sites` of a score of their validation rows."""

    phase: str
    round: int
    cursor: int
    value: float
    sites: int


class SelectionData(TypedDict):
    """By which score a run selects, whether the least is best, and its best and last scoring; None before the first."""

    score: str
    least: bool
    best: ValidatedData | None
    last: ValidatedData | None


class Generalization(TypedDict):
    """In-distribution and out-of-distribution accuracy."""

    id: Mean
    ood: Mean


class Groups(TypedDict):
    """The last grouping of the sites, and how well it fits their true domains."""

    last: dict[str, list[str]]
    adjusted_rand_index: float | None


class Awaited(TypedDict):
    """A site that an open run waits for. silent_seconds: None if it never enrolled."""

    client: str
    silent_seconds: float | None
    progress: float


class ClauseData(TypedDict):
    phase: str
    step: str
    field: str
    dims: str
    exposure: str
    audience: list[str]
    doc: str


class RunResult(TypedDict):
    """A run's result, or as much as there is of it."""

    run: str
    name: str
    method: str
    config: dict[str, Plain]
    world: dict[str, Plain]
    seed: int
    weights: NotRequired[str | None]
    sample: NotRequired[dict[str, Plain] | None]
    prior: NotRequired[str]
    privacy: NotRequired[dict[str, Plain] | None]
    secure_sums: NotRequired[dict[str, Plain] | None]
    augment: NotRequired[dict[str, Plain] | None]
    computing: NotRequired[dict[str, Plain] | None]
    wire: NotRequired[dict[str, Plain] | None]
    track: NotRequired[list[str]]
    rounds: int | None
    notes: NotRequired[list[str]]
    status: str
    cause: str
    waits_for: str
    awaited: NotRequired[list[Awaited]]
    spent: NotRequired[SpentData | None]
    seconds: float | None
    state_digest: str | None
    fingerprint: str
    reference: str | None
    reference_status: str | None
    clients: list[SiteResult]
    generalization: NotRequired[Generalization | None]
    scores: NotRequired[dict[str, dict[str, ScoreData]]]
    recall: NotRequired[dict[str, ScoreData]]
    selection: NotRequired[SelectionData | None]
    verdict: NotRequired[Verdict | None]
    phases: list[ClosedRound]
    groups: NotRequired[Groups | None]
    curve: list[Point]
    history: list[Entry] | None
    contract: list[ClauseData]
    project: NotRequired[str]
    plan_length: NotRequired[int]
    cursor: NotRequired[int]
    demo_seconds: NotRequired[float]


class EventData(TypedDict, total=False):
    """What an event says, by its kind."""

    client: str
    phase: str
    round: int
    cursor: int
    replies: int
    asked: int
    marks: dict[str, list[str]]
    without: dict[str, str]
    epsilon: dict[str, float]
    best: ValidatedData
    metrics: dict[str, float]
    cause: str
    min_replies: int
    why: str
    kind: str
    what: str
    note: str
    level: str


class Event(TypedDict):
    """Something that happened in a run. `seq` counts a run's events; `at`: seconds since the epoch."""

    seq: int
    kind: str
    at: NotRequired[float]
    data: EventData


class RunLine(TypedDict):
    id: str
    name: str
    method: str
    status: str
    cause: str
    cursor: int
    of: int
    created: float
    parent: str | None
    ended: NotRequired[float | None]
    project: NotRequired[str]
    track: NotRequired[list[str]]


class ClientLine(TypedDict):
    """An enrolled agent."""

    name: str
    roles: list[str]
    labels: dict[str, str]
    version: str
    seen: float
    standing: str
    revoked: float
    reason: str
    fingerprint: str
    rotate: bool
    doubles: list[str]
    ledger_entries: int | None
    ledger_hash: str | None
    ledger_now: int | None
    projects: list[str]
    device: str | None
    follows: bool | None


class RestoredLine(TypedDict):
    """What a restored database had forgotten."""

    waiting: bool
    lost: bool
    at: float | None
    warning: str
    clients: list[str]
    rotated: list[str]
    keys: list[str]
    invites: int


class ProjectLine(TypedDict):
    """A project: what it has, and what it may have."""

    name: str
    created: float
    created_by: str
    ended: float | None
    runs: int
    members: int
    bytes: int
    most_runs: int | None
    most_members: int | None
    most_bytes: int | None
    gpu_hours: NotRequired[float]
    cpu_hours: NotRequired[float]
    unreported: NotRequired[int]
    most_gpu_hours: NotRequired[float | None]
    most_cpu_hours: NotRequired[float | None]
    retain_runs_days: float | None
    retain_events_days: float | None


class HoursOfSite(SpentData):
    """What one site's steps took."""

    name: str


class HoursOfDay(SpentData):
    """What the steps of one day took."""

    day: str


class ProjectHours(SpentData):
    """What a project's steps took in a month."""

    project: str
    month: str
    frees: float
    most_gpu_hours: float | None
    most_cpu_hours: float | None
    clients: list[HoursOfSite]
    days: list[HoursOfDay]


class TargetLine(TypedDict):
    """A target of notices, without its secret."""

    name: str
    project: str
    to: str
    form: str
    on: list[str]
    created: float
    created_by: str
    last_sent: float | None
    reason: str
    ended: float | None
    left_out: int


class TargetAdded(TargetLine):
    """A new target, with its secret."""

    secret: str


class TargetTested(TypedDict):
    """How a test went."""

    taken: bool
    words: str


class GrantLine(TypedDict):
    """A role in a project."""

    role: str
    project: str


class Whoami(TypedDict):
    """Who made a call."""

    name: str
    role: str
    project: str
    grants: list[GrantLine]


class SessionLine(TypedDict):
    """A browser's session, without the secret."""

    id: str
    name: str
    issuer: str
    subject: str
    created: float
    expires: float
    last_used: float | None
    ended: float | None


class KeyLine(TypedDict):
    """An API key, without the secret."""

    name: str
    role: str
    created: float
    created_by: str
    last_used: float | None
    expires: float | None
    revoked: float | None
    project: str


PlannedLink = TypedDict("PlannedLink", {"from": str, "to": str, "weight": float, "joules": float})


class SweptPlan(TypedDict):
    """What a plan at another phi_E costs."""

    phi_energy: float
    joules: float
    links: int
    sources: int
    saved: int


class LinkPlan(TypedDict):
    """A plan of links between devices, as far as it is shown. docs/links.md describes it."""

    devices: list[str]
    psi: dict[str, str]
    alpha: list[PlannedLink]
    objective: float
    bound: float
    gap: float
    energy: float
    normalised_energy: float
    iterations: int
    status: str
    flags: list[str]
    sweep: list[SweptPlan]
