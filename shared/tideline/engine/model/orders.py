"""Orders and replies: as the journal keeps them, and as they cross between coordinator and agent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tideline.core.handle import AnyHandle
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.core.settings import EMPTY, Plain
from tideline.engine.audit.log import Tip
from tideline.engine.model.access.spending import Spent
from tideline.engine.model.said.disclosed import Disclosed
from tideline.engine.model.said.stages import Stages, stages_in


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


Files = tuple[tuple[Digest, int], ...]  # (digest, bytes), the root first


Arrivals = tuple[tuple[Digest, int, int], ...]  # (digest, bytes, offset from which it is sent)


class OrderStatus(StrEnum):
    """Where an order is. Only an open one can be answered; a late answer to an expired one is recorded, not folded."""

    OPEN = "open"
    ANSWERED = "answered"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Failure:
    """Why there is no reply: the error's kind and our own sentence, never a traceback."""

    kind: str
    what: str


@dataclass(frozen=True)
class OrderRow:
    """One order and, once it is answered, its reply. sealed: the values of others that its message names. held: why its site lets
    it wait, as long as it does.
    """

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
    held: str = ""

    @property
    def message(self) -> Digest | None:
        """The root of what is sent; a join sends none, whatever files it brings."""
        return self.files[0][0] if self.files and self.cursor >= 0 else None

    @property
    def stages(self) -> list[float] | None:
        """When fetching, computing and sending began, where the site has told."""
        return stages_in(self.facts)


def new_order(run: RunId, cursor: int, client: ClientId, files: Files, seed: int, after: int, now: float) -> OrderRow:
    """An order, offered for the first time."""
    name = order_id(run, cursor, client, 1)
    return OrderRow(id=name, run=run, cursor=cursor, attempt=1, client=client, files=files, seed=seed, after=after, created=now)


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
    """What an agent answers: files of the message, or a failure. refused: the agent service found the failure, in what was sent.

    sealed: the values for peers whose handles the message names. ledger: the last entry of the site's ledger as it is sent.
    spent: on the step; stages: of the work on it; disclosed: at a join, of policy and data. None: the agent does not say.
    """

    order: OrderId
    files: Files = ()
    metrics: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    facts: Mapping[str, Plain] = field(default_factory=lambda: EMPTY)
    failure: Failure | None = None
    refused: bool = False
    sealed: tuple[Envelope, ...] = ()
    ledger: Tip = field(default_factory=Tip)
    spent: Spent | None = None
    stages: Stages | None = None
    disclosed: Disclosed | None = None


def bare(reply: Reply, metrics: Mapping[str, float] = EMPTY, failure: Failure | None = None, refused: bool = False) -> Reply:
    """Without its message, and what its site says of the work on it."""
    return Reply(reply.order, metrics=metrics, failure=failure, refused=refused, spent=reply.spent, stages=reply.stages)


@dataclass(frozen=True)
class Receipt:
    """What the agent service says to a reply. `missing`: (digest, offset to go on from) that must be pushed first."""

    verdict: str  # accepted | missing | refused | stale | late
    missing: tuple[tuple[Digest, int], ...] = ()
    error: Failure | None = None


class Hold(StrEnum):
    """Why an order waits at its site."""

    APPROVAL = "approval"
    HOURS = "hours"
    QUOTA = "quota"
    PAUSED = "paused"


class Purpose(StrEnum):
    """What a generator is for. Two purposes never share a stream."""

    BEGIN = "begin"
    PREPARE = "settle"
    ASK = "ask"
    STEP = "step"
    FOLD = "tell"
    SAMPLE = "sample"
    WIRE = "wire"


def seed_for(run_seed: int, purpose: Purpose, cursor: int, client: str = "") -> int:
    """A seed below 2**63. Attempts and run ids do not enter, so a repeated order gives the same bytes."""
    return int(hashed("seed", run_seed, purpose.value, cursor, client)[:16], 16) >> 1


def order_id(run: RunId, cursor: int, client: ClientId, attempt: int) -> OrderId:
    """The order's name: the same order, asked for again after a crash, has the same name."""
    return OrderId(hashed("order", run, cursor, client, attempt)[:32])


def hashed(*values: object) -> str:
    return hashlib.sha256(json.dumps(values, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()
