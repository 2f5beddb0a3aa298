"""The facts that the journal keeps. Frozen values; a change is a new row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from tideline.core.handle import AnyHandle
from tideline.core.phase import Table
from tideline.core.privacy import Contract
from tideline.core.run import EMPTY, ClientId, Digest, OrderId, Role, Roster, RunId, RunSpec
from tideline.core.settings import Plain

JOIN = -1  # the cursor of the exchange before the first phase: a site looks at the contract and settles
Files = tuple[tuple[Digest, int], ...]  # (digest, bytes), the root first
Arrivals = tuple[tuple[Digest, int, int], ...]  # (digest, bytes, offset from which it is sent)


class Status(StrEnum):
    """Where a run is. The first two are open; a stalled run waits for a person; the rest are final."""

    WAITING = "waiting"
    RUNNING = "running"
    STALLED = "stalled"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (Status.WAITING, Status.RUNNING)
FINAL = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)


class OrderStatus(StrEnum):
    """Where an order is. Only an open one can be answered; a late answer to an expired one is recorded, not folded."""

    OPEN = "open"
    ANSWERED = "answered"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Standing(StrEnum):
    """What a client may do. A pending one waits for a person's word; a revoked one is let in again by an invitation only."""

    PENDING = "pending"
    APPROVED = "approved"
    REVOKED = "revoked"


@dataclass(frozen=True)
class Invite:
    """A one-use token, stored hashed. `name` pins the client's name; empty lets the client choose. hold: it is pending first."""

    token_hash: str
    name: str
    labels: Mapping[str, str]
    expires: float
    used_by: str = ""
    hold: bool = False


@dataclass(frozen=True)
class Keys:
    """A client's public keys, in hexadecimal: Ed25519, by which it signs, and X25519, for what only it may read."""

    sign: str
    receive: str


@dataclass(frozen=True)
class Handover:
    """New keys that a client's keys before them signed (hexadecimal). The first that it had stand there unsigned."""

    keys: Keys
    signature: str


@dataclass(frozen=True)
class Peer:
    """A client as its peers are told of it: its keys, and how it came to them, the oldest first."""

    keys: Keys
    handovers: tuple[Handover, ...] = ()


@dataclass(frozen=True)
class Envelope:
    """A sealed value on its way: the digest and bytes of its sealed file; the content key sealed to each reader, and the holder's
    signature of what each is handed (hexadecimal both). An order has those of its own client alone.
    """

    handle: AnyHandle
    cipher: Digest
    bytes: int
    keys: Mapping[ClientId, str]
    signatures: Mapping[ClientId, str]


@dataclass(frozen=True)
class Client:
    """An enrolled agent. `roles` are those that its owner allows.

    protocol         that it spoke last; one of protocol 1 has no keys and shows a credential instead
    credential_hash  empty for a client with keys
    rotate           whether it is asked for new keys
    handovers        how it came to its keys from those that it enrolled with
    """

    name: ClientId
    credential_hash: str
    roles: tuple[str, ...]
    labels: Mapping[str, str]
    version: str
    enrolled: float
    seen: float
    protocol: int = 1
    sign_key: str = ""
    receive_key: str = ""
    standing: Standing = Standing.APPROVED
    revoked: float | None = None
    reason: str = ""
    rotate: bool = False
    handovers: tuple[Handover, ...] = ()

    @property
    def keys(self) -> Keys | None:
        """Its public keys, if it has any."""
        return Keys(self.sign_key, self.receive_key) if self.sign_key else None


@dataclass(frozen=True)
class PhaseFact:
    """What is known of one place in a plan without loading the method."""

    phase: str
    step: str
    round: int
    floor: int | None = None
    needs: str = ""


@dataclass(frozen=True)
class RunRow:
    """One run: what was asked for (`spec`), and how far it is."""

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
    reference_of: RunId | None = None


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
    reference_of: RunId | None


def headline(row: RunRow) -> Headline:
    """A run's row in one line."""
    told = {field.name: getattr(row, field.name) for field in fields(Headline) if field.name != "of"}
    return Headline(**told, of=len(row.plan))


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
class Failure:
    """Why there is no reply: the error's kind and our own sentence, never a traceback."""

    kind: str
    what: str


@dataclass(frozen=True)
class OrderRow:
    """One order and, once it is answered, its reply. sealed: the values of others that its message names."""

    id: OrderId
    run: RunId
    cursor: int
    attempt: int
    client: ClientId
    files: Files
    seed: int
    after: int
    created: float
    status: OrderStatus = OrderStatus.OPEN
    progress: float = 0.0
    beat: float = 0.0
    reply: Files = ()
    metrics: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    facts: Mapping[str, Plain] = field(default_factory=lambda: EMPTY)
    failure: Failure | None = None
    answered: float | None = None
    bytes_down: int = 0
    bytes_up: int = 0
    sealed: tuple[AnyHandle, ...] = ()

    @property
    def message(self) -> Digest | None:
        """The root of what is asked."""
        return self.files[0][0] if self.files else None


@dataclass(frozen=True)
class RoundRow:
    """A closed round: whose replies were folded, and the state afterwards where it was checkpointed.

    marks, groups, tables: what the fold told people (core.phase.Told).
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
class Answer:
    """What a person was told. No secret stands in it (see engine.errands)."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: str


@dataclass(frozen=True)
class Errand:
    """What a person asked for under a key: sent again, it is not done again. Forgotten a day after it was `made`.

    key     a hash of the key               asked    a hash of all that was asked for
    seed    what the effect is named after  worker   who is at it; empty: nobody
    chosen  what the first try went by, and every later one does
    """

    key: str
    asked: str
    seed: str
    made: float
    worker: str = ""
    chosen: Mapping[str, int] | None = None
    answer: Answer | None = None


@dataclass(frozen=True)
class Event:
    """Something that a person may want to know, in order, for one run."""

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


# Envelopes: what crosses between coordinator and agent.


@dataclass(frozen=True)
class Order:
    """What an agent is asked. `brief` is the run as plain data (method, config, world, contract, threads, role).

    sealed: the values of other sites that the message names, as far as they are for this one.
    """

    id: OrderId
    run: RunId
    cursor: int
    phase: str
    step: str
    round: int
    files: Files
    seed: int
    after: int
    seconds_left: float
    brief: Mapping[str, Plain]
    sealed: tuple[Envelope, ...] = ()


@dataclass(frozen=True)
class Reply:
    """What an agent answers: files of the message, or a failure. refused: the desk found the failure, in what was sent.

    sealed: the values for peers whose handles the message names.
    """

    order: OrderId
    files: Files = ()
    metrics: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    facts: Mapping[str, Plain] = field(default_factory=lambda: EMPTY)
    failure: Failure | None = None
    refused: bool = False
    sealed: tuple[Envelope, ...] = ()


@dataclass(frozen=True)
class Receipt:
    """What the desk says to a reply. `missing`: (digest, offset to go on from) that must be pushed first."""

    verdict: str  # accepted | missing | refused | stale | late
    missing: tuple[tuple[Digest, int], ...] = ()
    error: Failure | None = None
