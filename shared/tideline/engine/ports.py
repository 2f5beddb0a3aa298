"""What the kernel needs from outside. Each port has an in-process adapter and a networked one, and one suite that tests both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tideline.archive.parts import Parts
from tideline.core.data import Data, View
from tideline.core.handle import AnyHandle
from tideline.core.privacy import Contract
from tideline.core.run import EMPTY, ClientId, Digest, OrderId, Role, Roster, RunId, World
from tideline.core.settings import Plain
from tideline.core.step import Transfers
from tideline.engine.audit import ALL, About, Deed, Entry, Tip
from tideline.engine.keys import ApiKey
from tideline.engine.model.brief import Brief
from tideline.engine.model.compute import (
    BeginRequest,
    CheckRequest,
    CloseRequest,
    Draft,
    DraftRequest,
    MethodFacts,
    MethodSummary,
    NextRound,
)
from tideline.engine.rows import (
    Answer,
    Arrivals,
    Client,
    Envelope,
    Errand,
    Event,
    Files,
    Headline,
    Invite,
    Keys,
    Lease,
    Order,
    OrderRow,
    OrderStatus,
    Receipt,
    Reply,
    RoundRow,
    RunRow,
    Status,
    Tally,
)


class Clock(Protocol):
    """Seconds since the epoch."""

    def now(self) -> float: ...


class Bell(Protocol):
    """A hint that something moved; may be lost. Topics: `client:NAME`, `run:ID`."""

    def ring(self, topic: str) -> None: ...


@dataclass(frozen=True)
class Advance:
    """One closed round and what comes next, written in one transaction.

    sealed: the values for peers that the new state names, where it is kept. without: the sites whose failure is one of trust
    (`shut_out`), with its kind.
    """

    run: RunId
    from_cursor: int
    closed: RoundRow
    orders: tuple[OrderRow, ...]
    cursor: int
    deadline_at: float
    status: Status
    state_digest: Digest | None = None
    members: Roster | None = None
    fingerprint: str | None = None
    keep_from: int = 0  # the cursor before which replies and checkpoints are collected
    token: int | None = None  # of the writer's lease; none: nobody else conducts
    sealed: tuple[AnyHandle, ...] = ()
    without: Mapping[ClientId, str] = field(default_factory=lambda: EMPTY)

    @property
    def digests(self) -> frozenset[Digest]:
        """Every part that it refers to."""
        return frozenset(digest for files in (self.closed.state, *(o.files for o in self.orders)) for digest, _ in files)


MOST_DROPPED = 64  # parts of one collection: their bytes are put aside while their rows are locked


def anything(digest: Digest) -> bool:
    """Every part is there."""
    return True


def nothing(digests: Collection[Digest]) -> None:
    """No bytes are to be put aside."""


class Journal(Protocol):
    """The truth. Each method is one transaction; a value that it returns is a snapshot.

    What is done by a method stands in the audit log, written in the same transaction. `by` and `now` are for the log: the name
    of who asked, and when.
    """

    def record(self, deeds: Iterable[Deed]) -> None:
        """Write into the audit log what changes nothing else."""
        ...

    def audit(self, after: int = 0, limit: int | None = None, about: About = ALL) -> tuple[Entry, ...]:
        """Entries of the audit log with a higher number, in order, at most so many."""
        ...

    def audit_tip(self) -> Tip:
        """The last entry of the audit log."""
        ...

    def tally(self) -> Tally:
        """How much there is of everything."""
        ...

    def add_invite(self, invite: Invite, by: str = "", now: float = 0.0) -> None:
        """Write an invite; one that is there already stays as it is."""
        ...

    def invite(self, token_hash: str) -> Invite | None: ...
    def enrol(self, token_hash: str, client: Client) -> bool:
        """Use an unused invite and add the client, both or neither. Only a revoked client of that name is replaced."""
        ...

    def client(self, name: str) -> Client | None: ...
    def clients(self) -> tuple[Client, ...]: ...
    def saw(self, name: ClientId, now: float, version: str | None = None, roles: tuple[str, ...] | None = None) -> None:
        """Note that a client lives. A version and roles that it told replace those known; other roles stand in the log."""
        ...

    def saw_all(self, names: Collection[ClientId], now: float) -> None:
        """Note of many at once that they live."""
        ...

    def rekey(self, name: ClientId, before: str, keys: Keys, protocol: int, now: float = 0.0, handover: str = "") -> bool:
        """Give a client new keys, if its key to sign is still `before` (empty: none yet). Its credential is gone with it.

        handover: the signature by which the old keys vouch for the new ones; without it nobody who knows the old ones follows.
        """
        ...

    def approve(self, name: ClientId, by: str = "", now: float = 0.0) -> bool:
        """Approve a pending client. False if it is not pending."""
        ...

    def ask_rotation(self, name: ClientId, by: str = "", now: float = 0.0) -> None:
        """Note that a client is asked for new keys."""
        ...

    def revoke(self, name: ClientId, reason: str, now: float, by: str = "") -> tuple[OrderRow, ...]:
        """Revoke a client, and end its open orders as failed; these, as they are then.

        One that is revoked keeps its date and its reason, and orders that came since are ended.
        """
        ...

    def revoked(self) -> frozenset[ClientId]:
        """Who is revoked."""
        ...

    def add_key(self, key: ApiKey) -> bool:
        """Write a key; False where its id is known, or another key has the name that is not revoked."""
        ...

    def api_keys(self) -> tuple[ApiKey, ...]:
        """Every key, the oldest first; of one age, by id."""
        ...

    def revoke_key(self, name: str, now: float, by: str = "") -> bool:
        """Revoke the key of this name; False where none is good."""
        ...

    def used_key(self, key_id: str, now: float) -> None:
        """Note that a key was used; a later time that is known stays."""
        ...

    def create(
        self,
        runs: Iterable[RunRow],
        orders: Iterable[OrderRow],
        by: str = "",
        here: Callable[[Digest], bool] = anything,
    ) -> None:
        """Write new runs and their first orders. `by`: who asked, as the event tells; so in `settle` and `reopen`.

        A run refers to the weights that it begins from until its first state is kept; they may wait for another run from then
        on as if they had been uploaded now. `here`: as in `advance`. Raises ConfigRefused if they are not here.
        """
        ...

    def run(self, run: RunId) -> RunRow | None: ...
    def run_ids(self) -> tuple[RunId, ...]:
        """Every run, the oldest first; of one age, by id."""
        ...

    def headlines(self, limit: int | None = None, after: RunId | None = None) -> tuple[Headline, ...]:
        """The runs in that order, at most so many. `after`: those that follow this run; none follow one that is not there."""
        ...

    def settle(
        self,
        run: RunId,
        among: Iterable[Status],
        status: Status,
        cause: str,
        now: float,
        token: int | None = None,
        by: str = "",
    ) -> bool:
        """Change a run's status if it is one of `among`. A final status cancels what is open. `token`: as in `advance`."""
        ...

    def reopen(
        self,
        run: RunId,
        status: Status,
        cause: str,
        now: float,
        deadline_at: float,
        orders: Iterable[OrderRow],
        by: str = "",
    ) -> bool:
        """Open a stalled run again, with a new deadline and new attempts of orders; False if it is not stalled."""
        ...

    def advance(self, step: Advance, here: Callable[[Digest], bool] = anything) -> bool:
        """Write a closed round if the run is still open at `from_cursor`; False if somebody else was first.

        An answer of one who is not among the folded came while they were folded: it is late from here on.
        `here` is asked of the parts that the step refers to and that were dropped within the last day, once no collection
        can take them any more: who wrote the step may have seen one before. Of all others its writer has seen the bytes safe.
        Raises Overtaken if the step's token is not the newest of the run's lease, and Unreachable if a part is not here.
        """
        ...

    def leases(self, run: RunId | None = None) -> tuple[Lease, ...]:
        """The leases of all open runs, or of this one if it is open."""
        ...

    def claim(self, seen: Iterable[Lease], holder: str, seconds: float) -> tuple[Lease, ...]:
        """Take those leases that are still as they were seen; they come back with their next token."""
        ...

    def renew(self, held: Iterable[Lease]) -> tuple[Lease, ...]:
        """A sign of life for each lease whose token is still the newest: these, as they are now.

        Waits for nobody: a lease that a conductor's write holds just now lives without one.
        """
        ...

    def release(self, held: Iterable[Lease]) -> None:
        """Leave leases, those whose token is still the newest, to whoever comes."""
        ...

    def rounds(self, run: RunId) -> tuple[RoundRow, ...]: ...

    def order(self, order: OrderId) -> OrderRow | None: ...
    def orders(self, run: RunId, cursor: int | None = None) -> tuple[OrderRow, ...]: ...
    def open_orders(self, client: ClientId) -> tuple[OrderRow, ...]: ...
    def last_answer(self, run: RunId, client: ClientId) -> int:
        """The cursor of the last reply that this client gave (late ones count: the work was done), or JOIN - 1."""
        ...

    def answer(
        self,
        order: OrderId,
        reply: Reply,
        status: OrderStatus,
        now: float,
        down: int,
        up: int,
        here: Callable[[Digest], bool] = anything,
    ) -> OrderStatus | None:
        """Record the first answer to an order: the order's status afterwards, or None if a part that it needs is gone.

        An expired order stays expired. CANCELLED: the order was settled before, and nothing changes. `here`: as in `advance`.
        """
        ...

    def envelopes(self, run: RunId, handles: Collection[AnyHandle]) -> tuple[Envelope, ...]:
        """The sealed values of a run that these handles name and that are still kept.

        They are kept from the reply that brings them on, as long as a state that is kept, or an answer since, names them.
        """
        ...

    def reissue(self, orders: Iterable[OrderRow]) -> None:
        """Offer orders again under new names. One whose name is known, or whose run has ended, is left as it is."""
        ...

    def beat(self, client: ClientId, progress: Mapping[OrderId, float], now: float) -> tuple[OrderId, ...]:
        """Note progress; gives those of the orders that are no longer open."""
        ...

    def add_parts(self, digests: Sequence[Digest], run: RunId, client: ClientId, now: float) -> None:
        """Note parts that a client pushed for a run: they may wait for the report that names them."""
        ...

    def held(self, files: Files, run: RunId, client: ClientId, now: float) -> frozenset[Digest]:
        """Which of the files are here and this client's own in this run; their collection is put off.

        What only others hold counts as missing: else a client could learn what others sent, and bytes would depend on arrival.
        """
        ...

    def collect(
        self, before: float, drop: Callable[[Collection[Digest]], object] = nothing, most: int = MOST_DROPPED
    ) -> tuple[Digest, ...]:
        """Forget some parts that nothing refers to, at most so many: those that lost their last reference at once, others if
        untouched since `before`. Some more are left unless nothing comes back.

        A part that is pushed or asked for (`held`) after its last reference is written counts as one of the others.
        `drop` is called with those parts while nobody can refer to them, and must be able to bring their bytes back: the
        transaction may fail after it. Then it may be called again, with others, or not again: only what is returned is gone.
        """
        ...

    def adopt(self, found: Mapping[Digest, float]) -> int:
        """Note parts that lie in the store (with the time they were written) and that nobody has noted; how many."""
        ...

    def marker(self, ours: Digest | None = None) -> Digest | None:
        """The part that marks this journal's store of parts: `ours` if it is given and none was known."""
        ...

    def event(self, run: RunId, kind: str, data: Mapping[str, Plain], now: float) -> None: ...
    def events(self, run: RunId, after: int = 0) -> tuple[Event, ...]: ...

    def reserve(self, errand: Errand, over: str = "") -> Errand:
        """The errand that stands under a key: this one if there was none.

        If it asks for the same, and its worker is nobody or still `over`, it becomes this one's worker's.
        Errands that are a day older than this one are forgotten.
        """
        ...

    def choose(self, key: str, plan: Mapping[str, int]) -> Mapping[str, int]:
        """Write what an errand goes by, unless that was chosen before; what was chosen."""
        ...

    def create_once(
        self,
        key: str,
        worker: str,
        runs: Iterable[RunRow],
        orders: Iterable[OrderRow],
        by: str = "",
        here: Callable[[Digest], bool] = anything,
    ) -> None:
        """As `create`, as this worker of an errand; if the first run is there already, nothing is written.

        Raises Unreachable if the errand is another worker's by now: that one does it.
        """
        ...

    def conclude(self, key: str, worker: str, answer: Answer) -> Answer:
        """Write what an errand came to, unless that was written before; what was written. Raises as `create_once` does."""
        ...

    def leave(self, key: str, worker: str) -> None:
        """Leave an errand without an answer to whoever comes, if it is still this worker's."""
        ...


@dataclass(frozen=True)
class Job:
    """One step to run at a site. Files lie in the site's parts."""

    run: RunId
    client: ClientId
    cursor: int
    round: int
    brief: Brief
    seed: int
    message: Digest | None
    memory: Digest | None
    transfers: Transfers = Transfers()


@dataclass(frozen=True)
class Done:
    """A finished step: files of message and memory, metrics. Of the join: whether the site has labels, and the contract as the
    site's own code derives it.

    handles: the values for peers that the message names; their files lie beside the message's.
    """

    message: Files
    memory: Files
    metrics: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    labelled: bool | None = None
    contract: Contract | None = None
    handles: tuple[AnyHandle, ...] = ()


class Pool(Protocol):
    """Runs steps: inline, or in a trainer process of its own."""

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        """Run a step. Raises FederationError (StepFailed, Refused, Malformed, Cancelled)."""
        ...


class Shelf(Protocol):
    """A site's data, split once and for all."""

    def view(self, view: View, role: Role) -> Data: ...


OpenShelf = Callable[[World, Role], Shelf]


@dataclass(frozen=True)
class Head:
    """What a site's vault knows of a run: its memory, the reply that belongs to it, and what was asked.

    asked: the order's files; None in a record from before they were kept. sealed: what the reply brings for peers. peers: the
    sites that the run showed this one in its first order after the join, where sites of it seal for each other. own: the files of
    the values that it sealed last, which later orders may hand back to it.
    """

    order: OrderId
    cursor: int
    memory: Files
    reply: Files
    metrics: Mapping[str, float]
    facts: Mapping[str, Plain]
    asked: Files | None = None
    sealed: tuple[Envelope, ...] = ()
    peers: tuple[ClientId, ...] | None = None
    own: Files = ()


class Vault(Protocol):
    """A site's own disk. Memory and reply are committed together, by one rename. Each run has parts of its own."""

    def parts(self, run: RunId) -> Parts: ...

    def head(self, run: RunId) -> Head | None: ...
    def commit(self, run: RunId, head: Head) -> None: ...
    def keep(self, run: RunId, files: Files) -> None:
        """Collect the parts that neither a head nor these files name."""
        ...

    def note(self, run: RunId, brief: Mapping[str, Plain]) -> None:
        """Remember what the run is (its orders' brief), so that the site's owner can read its memory."""
        ...


class Link(Protocol):
    """An agent's line to the desk."""

    def fetch(self, order: Order, files: Files, parts: Parts) -> None:
        """Bring the order's files that are lacking into `parts`; each goes on behind what an earlier, cut try left."""
        ...

    def push(self, order: Order, arrivals: Arrivals, parts: Parts) -> None:
        """Send parts of a reply, each from its offset on. They are kept on disk there when this returns."""
        ...

    def report(self, order: Order, reply: Reply) -> Receipt: ...


class Compute(Protocol):
    """The coordinator's numbers, inline or in a process of their own. Calls have no effect but parts."""

    def methods(self) -> tuple[MethodSummary, ...]:
        """Every method."""
        ...

    def describe(self, method: str, preset: str | None = None) -> MethodFacts:
        """One method, with the contract of its defaults or of a preset. Raises NotFound, ConfigRefused."""
        ...

    def draft(self, asked: DraftRequest) -> Draft:
        """Check an experiment. Raises Refused errors with `context["path"]`."""
        ...

    def begin(self, asked: BeginRequest) -> NextRound:
        """The first state and the first orders."""
        ...

    def close(self, asked: CloseRequest) -> NextRound:
        """Fold a round. Raises StepFailed, Diverged."""
        ...

    def check(self, asked: CheckRequest) -> None:
        """Hold a reply to its declaration. Raises Malformed errors."""
        ...
