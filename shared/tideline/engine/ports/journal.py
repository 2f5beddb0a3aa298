"""The journal: all that a coordinator must not forget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tideline.core.handle import AnyHandle
from tideline.core.run import ClientId, Digest, OrderId, Roster, RunId
from tideline.core.settings import EMPTY, Plain
from tideline.engine.audit.log import ALL, About, AuditEvent, Entry, Mention, Tip
from tideline.engine.audit.witness import Mark
from tideline.engine.model.access.once import Answer, IdempotencyRecord
from tideline.engine.model.access.projects import EVERY, Project, Quota, Usage
from tideline.engine.model.access.spending import Month, Spending
from tideline.engine.model.access.user_sessions import UserSession
from tideline.engine.model.accounts import ApiKey, Client, Invite, Keys, Roles, Session, ShownLedger
from tideline.engine.model.deletion import Cutoffs, Tombstone
from tideline.engine.model.orders import Envelope, Files, Hold, OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import EVERYTHING, Event, Headline, Lease, RoundRow, RunRow, Sought, Status, Tally
from tideline.engine.model.totals import OrderLine, OrderTimes, RoundTotals, Scores, SiteTotals

MOST_DROPPED = 64  # parts of one collection: their bytes are put aside while their rows are locked


Present = Callable[[Digest], bool]  # whether a part's bytes are in the store


def all_present(digest: Digest) -> bool:
    """Every part is in the store."""
    return True


@dataclass(frozen=True)
class Advance:
    """One closed round and what comes next, written in one transaction.

    sealed: the values for peers that the new state names, where it is kept. without: the sites whose failure is one of trust
    (`shut_out`), with its kind. best: of a round that is the best so far by the run's selection, its score (`Validated`).
    best_state: the state that was scored in it, which is kept in place of that of the best round before. epsilon: what each
    site of a private run has spent by then.
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
    retain_from: int = 0  # the cursor before which replies and checkpoints are collected
    token: int | None = None  # of the writer's lease; none: nobody else conducts
    sealed: tuple[AnyHandle, ...] = ()
    without: Mapping[ClientId, str] = field(default_factory=lambda: EMPTY)
    best: Mapping[str, Plain] | None = None
    best_state: Files = ()
    epsilon: Mapping[ClientId, float] = field(default_factory=lambda: EMPTY)

    @property
    def digests(self) -> frozenset[Digest]:
        """Every part that it refers to."""
        named = (self.closed.state, self.best_state, *(o.files for o in self.orders))
        return frozenset(digest for files in named for digest, _ in files)


class Runs(Protocol):
    """Runs, their rounds, orders, leases and events."""

    def tally(self, scope: str = EVERY) -> Tally:
        """How much there is of everything; of one project's runs, sites and open orders."""

    def create(self, runs: Iterable[RunRow], orders: Iterable[OrderRow], by: str = "", here: Present = all_present) -> None:
        """Write new runs and their first orders. `by`: who asked, as the event tells; so in `set_status` and `reopen`.

        A run refers to the weights that it begins from until its first state is kept; they may wait for another run from then
        on as if they had been uploaded now. `here`: as in `advance`. Raises ConfigRefused if they are not here, and Refused
        where a run's project has as many open ones as its quota.
        """

    def run(self, run: RunId) -> RunRow | None: ...

    def run_ids(self, scope: str = EVERY) -> tuple[RunId, ...]:
        """Every run, the oldest first; of one age, by id."""

    def headlines(
        self, limit: int | None = None, after: RunId | None = None, scope: str = EVERY, sought: Sought = EVERYTHING
    ) -> tuple[Headline, ...]:
        """The runs in that order, at most so many. `after`: those that follow this run; none follow one that is not there."""

    def count_runs(self, scope: str = EVERY, sought: Sought = EVERYTHING) -> int:
        """How many such runs there are."""

    def current(self, also: Collection[RunId] = ()) -> tuple[Headline, ...]:
        """The runs that are not over, and those of these that are there, in that order: it costs the same however many ended."""

    def set_status(
        self, run: RunId, among: Iterable[Status], status: Status, cause: str, now: float, token: int | None = None, by: str = ""
    ) -> bool:
        """Change a run's status if it is one of `among`. A final status cancels what is open. `token`: as in `advance`."""

    def reopen(
        self,
        run: RunId,
        status: Status,
        cause: str,
        now: float,
        deadline_at: float,
        orders: Iterable[OrderRow],
        by: str = "",
        quorum: int | None = None,
    ) -> bool:
        """Open a stalled run again, with a new deadline and new attempts of orders; False if it is not stalled.

        quorum: how many replies are enough from now on; None: as many as before.
        """

    def advance(self, step: Advance, here: Present = all_present) -> bool:
        """Write a closed round if the run is still open at `from_cursor`; False if somebody else was first.

        An answer of one who is not among the folded came while they were folded: it is late from here on.
        `here` is asked of the parts that the step refers to and that were dropped within the last day, once no collection
        can take them any more: who wrote the step may have seen one before. Of all others its writer has seen the bytes safe.
        Raises Overtaken if the step's token is not the newest of the run's lease, and Unreachable if a part is not here.
        """

    def leases(self, run: RunId | None = None) -> tuple[Lease, ...]:
        """The leases of all open runs, or of this one if it is open."""

    def claim(self, seen: Iterable[Lease], holder: str, seconds: float) -> tuple[Lease, ...]:
        """Take those leases that are still as they were seen; they come back with their next token."""

    def renew(self, held: Iterable[Lease]) -> tuple[Lease, ...]:
        """A sign of life for each lease whose token is still the newest: these, as they are now.

        Waits for nobody: a lease that a scheduler's write holds just now lives without one.
        """

    def release(self, held: Iterable[Lease]) -> None:
        """Leave leases, those whose token is still the newest, to whoever comes."""

    def rounds(self, run: RunId) -> tuple[RoundRow, ...]:
        """Every closed round: as much as the run is long."""

    def round(self, run: RunId, cursor: int) -> RoundRow | None:
        """The round that was closed at this cursor: it costs the same however long the run is."""

    def recent_rounds(self, run: RunId) -> tuple[RoundRow, ...]:
        """The closed rounds from the last checkpoint but one on (from the first, where there is only one)."""

    def order(self, order: OrderId) -> OrderRow | None: ...

    def orders(self, run: RunId, cursor: int | None = None) -> tuple[OrderRow, ...]:
        """A run's orders, or those of one exchange, by cursor, client and attempt."""

    def order_lines(self, run: RunId, cursor: int) -> tuple[OrderLine, ...]:
        """The orders of one exchange in one line each, by client and attempt."""

    def recent_orders(self, run: RunId, places: int, last: int | None = None) -> tuple[OrderTimes, ...]:
        """The orders of the last exchanges that asked somebody, so many, by cursor, client and attempt. last: up to this one.

        Without what was sent and what was reported.
        """

    def missed(self, run: RunId) -> tuple[OrderLine, ...]:
        """The orders of a run that failed or expired, by cursor, client and attempt."""

    def standing(self, run: RunId, cursor: int) -> RoundTotals:
        """The totals of an exchange, kept as replies come: reading them costs the same however many were asked."""

    def round_totals(self, run: RunId) -> Mapping[int, RoundTotals]:
        """The totals of every exchange of a run that asked somebody, by cursor."""

    def site_totals(self, run: RunId) -> Mapping[ClientId, SiteTotals]:
        """The totals of each site over the closed exchanges of a run; sites that were not asked are not there."""

    def scores(self, run: RunId) -> Mapping[int, Scores]:
        """The accuracies that were told in closed exchanges, by cursor."""

    def open_orders(self, client: ClientId) -> tuple[OrderRow, ...]: ...

    def last_answers(self, run: RunId, clients: Collection[ClientId]) -> Mapping[ClientId, int]:
        """The cursor of the last reply that each gave (late ones count: the work was done), or JOIN - 1."""

    def barred(self, run: RunId) -> tuple[ClientId, ...]:
        """Who is revoked and has an open order of this run that reaches it (`reaches`), sorted."""

    def answer(
        self, order: OrderId, reply: Reply, status: OrderStatus, now: float, down: int, up: int, here: Present = all_present
    ) -> OrderStatus | None:
        """Record the first answer to an order: the order's status afterwards, or None if a part that it needs is gone.

        An expired order stays expired. CANCELLED: the order was settled before, and nothing changes. `here`: as in `advance`.
        """

    def envelopes(self, run: RunId, handles: Collection[AnyHandle]) -> tuple[Envelope, ...]:
        """The sealed values of a run that these handles name and that are still kept.

        They are kept from the reply that brings them on, as long as a state that is kept, or an answer since, names them.
        """

    def reissue(self, orders: Iterable[OrderRow]) -> None:
        """Offer orders of the open exchange again under new names.

        One whose name is known, whose exchange has closed, or whose run has ended, is left as it is.
        """

    def beat(self, client: ClientId, progress: Mapping[OrderId, float], now: float) -> tuple[OrderId, ...]:
        """Note progress; gives those of the orders that are no longer open."""

    def beat_all(
        self, reported: Mapping[ClientId, Mapping[OrderId, float]], now: float
    ) -> Mapping[ClientId, tuple[OrderId, ...]]:
        """The same of many clients at once. Those that have nothing to give up are not there."""

    def hold(self, client: ClientId, held: Mapping[OrderId, Hold], now: float) -> tuple[OrderId, ...]:
        """Note why a client lets orders wait, until it tells their progress; gives those that are no longer open."""

    def event(self, run: RunId, kind: str, data: Mapping[str, Plain], now: float) -> None: ...

    def events(self, run: RunId, after: int = 0, limit: int | None = None) -> tuple[Event, ...]:
        """A run's events with a higher number, in order, at most so many."""

    def last_event(self, run: RunId, before: float | None = None) -> int:
        """The number of a run's last event, or of the last before a time; 0: there is none."""


class Spendings(Protocol):
    """What steps spend on computing, counted with each reply (`answer`), once. A deleted run's stays with its project."""

    def spent_by_run(self, run: RunId) -> Mapping[ClientId, Spending]:
        """Of a run, by the sites that have replied."""

    def spent_in(self, projects: Collection[str], month: Month) -> Mapping[str, Spending]:
        """Of each of these projects in a month. A reply counts on the day on which it came."""

    def spent_by_site(self, project: str, month: Month) -> Mapping[ClientId, Spending]:
        """Of a project by its sites."""

    def spent_by_day(self, project: str, month: Month) -> Mapping[int, Spending]:
        """The same by days, counted from 1970 on."""


class Deletions(Protocol):
    """Runs that are deleted, and what remains of them."""

    def delete_runs(self, runs: Sequence[RunId], by: str, rule: str, now: float) -> tuple[Tombstone, ...]:
        """Delete runs with all that is written of them but the audit log, together; what remains of each.

        Nothing is written, and nothing comes back, if one of them is not there, or not over. Their parts lose their references.
        """

    def tombstone(self, run: RunId) -> Tombstone | None:
        """What remains of a deleted run."""

    def tombstones(self, runs: Collection[RunId]) -> tuple[Tombstone, ...]:
        """What remains of those of these runs that were deleted, by their ids."""

    def due_runs(self, before: Cutoffs) -> tuple[RunId, ...]:
        """The runs that were over before their project's moment and belong to no other, in the order of their ends."""


class Accounts(Protocol):
    """Invitations, agents, and the API keys of users."""

    def add_invite(self, invite: Invite, by: str = "", now: float = 0.0) -> None:
        """Write an invite; one that is there already stays as it is."""

    def invite(self, token_hash: str) -> Invite | None: ...

    def enrol(self, token_hash: str, client: Client) -> bool:
        """Use an unused invite and add the client, both or neither. Only a revoked client of that name is replaced.

        Raises Refused where a project of it has as many sites as its quota.
        """

    def client(self, name: str) -> Client | None: ...

    def clients(self) -> tuple[Client, ...]: ...

    def last_seen(self, names: Collection[ClientId], scope: str = EVERY) -> Mapping[ClientId, float]:
        """When each of them was last heard; who never enrolled, or serves other projects alone, is not there."""

    def saw(self, name: ClientId, now: float, version: str | None = None, roles: Roles = None, device: str | None = None) -> None:
        """Note that a client lives. Version, roles and device that it sent replace those known; other roles stand in the log."""

    def saw_all(self, names: Collection[ClientId], now: float) -> None:
        """Note of many at once that they live."""

    def rekey(self, name: ClientId, before: str, keys: Keys, now: float = 0.0, handover: str = "") -> bool:
        """Give a client new keys, if its key to sign is still `before`.

        handover: the signature by which the old keys vouch for the new ones; without it nobody who knows the old ones follows.
        """

    def approve(self, name: ClientId, by: str = "", now: float = 0.0) -> bool:
        """Approve a pending client. False if it is not pending."""

    def begin_session(self, name: ClientId, session: Session, now: float) -> bool:
        """Note a client's session (`transitions.sessioned`). Whether this made it doubled."""

    def let_on(self, name: ClientId, session: Session, by: str, now: float) -> bool:
        """Let one session of a doubled client go on, and ask it for new keys. False if it is not doubled, or not by this one."""

    def note_ledgers(self, reported: Mapping[ClientId, Tip], charged: Mapping[ClientId, tuple[int, float]] = EMPTY) -> None:
        """Note last entries of ledgers that are newer, unless one does not fit; and when how many charges were told, if more."""

    def show_ledger(self, name: ClientId, shown: ShownLedger, now: float) -> bool:
        """Compare a client's ledger (`transitions.ledger_shown`). Whether it does not fit from now on."""

    def ask_rotation(self, name: ClientId, by: str = "", now: float = 0.0) -> None:
        """Note that a client is asked for new keys."""

    def revoke(self, name: ClientId, reason: str, now: float, by: str = "") -> tuple[OrderRow, ...]:
        """Revoke a client, and end its open orders that reach it as failed; these, as they are then.

        One that is revoked keeps its date and its reason, and orders that came since are ended.
        """

    def projects(self) -> tuple[Project, ...]:
        """The default project, and the others by name, also those that were removed."""

    def add_project(self, project: Project) -> bool:
        """Write a project; False where the name was given before."""

    def limit_project(self, name: str, quota: Quota, now: float, by: str = "") -> bool:
        """Give a project a quota; False where there is none, or none any more."""

    def end_project(self, name: str, now: float, by: str = "") -> bool:
        """Note that a project is removed; False where there is none, or none any more, and for the default one."""

    def assign(self, name: ClientId, projects: tuple[str, ...], now: float, by: str = "") -> bool:
        """Have a client serve these projects; False where there is none. Raises Refused where a quota is reached."""

    def usage(self, projects: Collection[str]) -> Mapping[str, Usage]:
        """What each of these projects has. Its bytes: of the parts to which its runs refer, each once."""

    def uploaded(self, project: str) -> tuple[Digest, ...]:
        """Parts that its users have uploaded and that are still here, sorted."""

    def add_key(self, key: ApiKey) -> bool:
        """Write a key; False where its id is known, or another key has the name that is not revoked."""

    def api_keys(self) -> tuple[ApiKey, ...]:
        """Every key, the oldest first; of one age, by id."""

    def revoke_key(self, name: str, now: float, by: str = "") -> bool:
        """Revoke the key of this name; False where none is good."""

    def used_key(self, key_id: str, now: float) -> None:
        """Note that a key was used; a later time that is known stays."""


class UserSessions(Protocol):
    """Sessions of users who signed in with a browser. A restored database ends all of them (`catch_up`)."""

    def begin_user_session(self, session: UserSession) -> bool:
        """Write a session; False where its sign-in has begun one already. Those that ended a week before are forgotten."""

    def user_session(self, token_hash: str) -> UserSession | None: ...

    def user_sessions(self) -> tuple[UserSession, ...]:
        """Every session that is not forgotten, the oldest first; of one age, by id."""

    def end_user_session(self, session_id: str, now: float, by: str = "") -> bool:
        """End a session; False where there is none of this id, or it has ended."""

    def used_user_session(self, session_id: str, now: float) -> None:
        """Note that a session was used; a later time that is known stays."""


class PartRecords(Protocol):
    """What is known of the parts in the store: who refers to them, and whose they are."""

    def add_parts(self, digests: Sequence[Digest], run: RunId, client: ClientId, now: float) -> None:
        """Note parts that a client pushed for a run: they may wait for the report that names them."""

    def held(self, files: Files, run: RunId, client: ClientId, now: float) -> frozenset[Digest]:
        """Which of the files are here and this client's own in this run; their collection is put off.

        What only others hold counts as missing: else a client could learn what others sent, and bytes would depend on arrival.
        """

    def collect(
        self, before: float, drop: Callable[[Collection[Digest]], object] = lambda digests: None, most: int = MOST_DROPPED
    ) -> tuple[Digest, ...]:
        """Forget some parts that nothing refers to, at most so many: those that lost their last reference at once, others if
        untouched since `before`. Some more are left unless nothing comes back.

        A part that is pushed or asked for (`held`) after its last reference is written counts as one of the others.
        `drop` is called with those parts while nobody can refer to them, and must be able to bring their bytes back: the
        transaction may fail after it. Then it may be called again, with others, or not again: only what is returned is gone.
        """

    def adopt(self, found: Mapping[Digest, float]) -> int:
        """Note parts that lie in the store (with the time they were written) and that nobody has noted; how many."""

    def marker(self, ours: Digest | None = None) -> Digest | None:
        """The part that marks this journal's store of parts: `ours` if it is given and none was known."""


class Idempotency(Protocol):
    """Calls with an idempotency key: what was asked, what was chosen, what came of it."""

    def reserve(self, idempotency_record: IdempotencyRecord, over: str = "") -> IdempotencyRecord:
        """The idempotency record that stands under a key: this one if there was none.

        If it asks for the same, and its worker is nobody or still `over`, it becomes this one's worker's.
        Idempotency records that are a day older than this one are forgotten.
        """

    def choose(self, key: str, plan: Mapping[str, int]) -> Mapping[str, int]:
        """Write what an idempotency record goes by, unless that was chosen before; what was chosen."""

    def create_once(
        self, key: str, worker: str, runs: Iterable[RunRow], orders: Iterable[OrderRow], by: str = "", here: Present = all_present
    ) -> None:
        """As `create`, as this worker of an idempotency record; if the first run is there already, nothing is written.

        Raises Unreachable if the idempotency record is another worker's by now: that one does it.
        """

    def conclude(self, key: str, worker: str, answer: Answer) -> Answer:
        """Write what a record came to, unless that was written before; what was written. Raises as `create_once` does."""

    def leave(self, key: str, worker: str) -> None:
        """Leave an idempotency record without an answer to whoever comes, if it is still this worker's."""


class AuditLog(Protocol):
    """The audit log. What a method of the other ports does is recorded in the same transaction."""

    def record(self, events: Iterable[AuditEvent]) -> None:
        """Write into the audit log what changes nothing else."""

    def audit(self, after: int = 0, limit: int | None = None, about: About = ALL) -> tuple[Entry, ...]:
        """Entries of the audit log with a higher number, in order, at most so many."""

    def mentions(self, after: int) -> tuple[int, frozenset[Mention]]:
        """The number of the last entry, and what entries with a higher number than `after` are about."""

    def audit_tip(self) -> Tip:
        """The last entry of the audit log."""

    def audit_base(self) -> Tip:
        """The last entry that was archived and taken out of the log, which goes on behind it; 0: none was."""

    def trim_audit(self, base: Tip, last: Tip, event: AuditEvent) -> bool:
        """Take the entries behind a base out, up to one that stands in an archive, and write the event, together.

        False, and nothing is written, if the log begins behind another base by now, has another entry in the place of `last`,
        or ends with it.
        """


class Witnessed(Protocol):
    """The witness (engine.audit.witness): what is witnessed is written in the transaction of the audit event itself."""

    def witness_mark(self) -> Mark:
        """How far the witness goes, and whether a restore waits to be confirmed."""

    def witness(self, after: int = 0) -> tuple[Entry, ...]:
        """The records with a higher number, in order."""

    def catch_up(self, missing: Sequence[Entry], found: AuditEvent, known: int, tip: Tip | None = None) -> bool:
        """Apply the records that this database lacks, behind the number up to which it agrees, and write what was found.

        Own records behind that number follow them. tip: that of an agent, where nobody has the records up to it. False, and
        nothing is written, if that was done before.
        """

    def confirm_restore(self, by: str, now: float) -> bool:
        """Note that an admin has seen the restore. False if none waits for that."""


class Journal(Runs, Spendings, Deletions, Accounts, UserSessions, PartRecords, Idempotency, AuditLog, Witnessed, Protocol):
    """The truth. Each method is one transaction; a value that it returns is a snapshot.

    What is done by a method stands in the audit log, written in the same transaction. `by` and `now` are for the log: the name
    of who asked, and when.
    """
