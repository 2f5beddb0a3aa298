"""The journal port on a database: each method is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.core.settings import EMPTY, Plain
from tideline.engine.audit import entries
from tideline.engine.audit.log import AuditEvent, Entry, Tip
from tideline.engine.audit.witness import confirmed, keys_in
from tideline.engine.coordinator.idempotency import free
from tideline.engine.model.access.once import IdempotencyRecord
from tideline.engine.model.access.projects import Project, Quota, Usage
from tideline.engine.model.access.user_sessions import UserSession
from tideline.engine.model.accounts import ApiKey, Client, Invite, Keys, Roles, Session, ShownLedger
from tideline.engine.model.deletion import Tombstone
from tideline.engine.model.orders import Files, Hold, OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import OPEN, Headline, Lease, RoundRow, RunRow, Status
from tideline.engine.model.transitions import answered, present, reopened, resuming, with_author
from tideline.engine.peers.sealing import ciphers
from tideline.engine.ports.journal import MOST_DROPPED, Advance, Present, all_present
from tideline_server.store import (
    accounts,
    audit,
    envelopes,
    idempotency,
    leases,
    listings,
    orders,
    parts,
    runs,
    totals,
    transitions,
)
from tideline_server.store.access import projects, spending, user_sessions
from tideline_server.store.access.projects import assign
from tideline_server.store.access.projects import usage as usage_of
from tideline_server.store.access.user_sessions import begin as begin_session
from tideline_server.store.access.user_sessions import end as end_session
from tideline_server.store.access.user_sessions import end_all as end_sessions
from tideline_server.store.database.transactions import Watch, open_store
from tideline_server.store.notices import SqlNotices
from tideline_server.store.retention import audit as old_entries
from tideline_server.store.retention import events as old_events
from tideline_server.store.retention import growth
from tideline_server.store.retention import runs as deletion

P = ParamSpec("P")
T = TypeVar("T")


def reads(query: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[SqlJournal, P], T]:
    """The method that asks one query of a snapshot."""

    def method(self: SqlJournal, /, *args: P.args, **more: P.kwargs) -> T:
        return self._read(query, *args, **more)

    return method


def writes(work: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[SqlJournal, P], T]:
    """The method that writes, and has nothing for the audit log."""

    def method(self: SqlJournal, /, *args: P.args, **more: P.kwargs) -> T:
        return self._store.write(lambda connection: work(connection, *args, **more))

    return method


class SqlJournal:
    """The journal in a file (SQLite) or at a URL (SQLite, Postgres). Any number of threads and processes.

    Raises StoreRefused if the database cannot be used, Unreachable and StorageFull if a transaction fails, and KeyError for an
    unknown run or order where the port says so; then nothing was written.

    A connection that breaks amid a commit raises Unreachable too, and the write may be there. You may repeat a write: what was
    written stays, and you get the answer of one who comes second. There are four exceptions: `event` and `record` write twice,
    `create` raises for a known run, and `collect` does not name again the parts that it has forgotten.
    """

    # First of all: below, a method's name hides the module of that name.
    run_ids, headlines, events = reads(runs.ids), reads(runs.headlines), reads(runs.events_after)
    tally, count_runs, last_event = reads(runs.tally), reads(runs.count_runs), reads(runs.last_event)
    leases = reads(leases.of_open_runs)
    round, recent_rounds = reads(runs.round_at), reads(runs.recent_rounds)
    order_lines, missed, barred = reads(orders.lines), reads(orders.missed), reads(orders.barred)
    recent_orders, mentions = reads(orders.recent), reads(audit.mentions)
    standing, round_totals, site_totals = reads(totals.standing), reads(totals.of_rounds), reads(totals.of_sites)
    scores, last_answers = reads(totals.scores), reads(totals.last_answers)
    envelopes = reads(envelopes.find)
    spent_by_run, spent_by_site, spent_by_day = reads(spending.of_run), reads(spending.by_site), reads(spending.by_day)
    spent_in = reads(spending.in_month)
    drop_events, old_events = writes(old_events.drop), reads(old_events.count)
    tombstone, tombstones, due_runs = reads(deletion.find), reads(deletion.among), reads(deletion.due)
    invite = reads(accounts.invite)
    client, clients, last_seen = reads(accounts.known), reads(accounts.everybody), reads(accounts.last_seen)
    projects, uploaded = reads(projects.every), reads(projects.uploaded)
    api_keys, used_key = reads(accounts.all_keys), writes(accounts.use_key)
    user_session, used_user_session = reads(user_sessions.find), writes(user_sessions.use)
    user_sessions = reads(user_sessions.every)
    add_parts, adopt = writes(parts.add), writes(parts.adopt)
    choose, conclude, leave = writes(idempotency.choose), writes(idempotency.conclude), writes(idempotency.leave)
    growth = reads(growth.measure)
    audit_tip, audit_base = reads(audit.tip), reads(old_entries.base)
    witness_mark, witness = reads(audit.mark), reads(audit.records)
    audit = reads(audit.entries)

    def __init__(self, where: Path | str, watch: Watch = lambda *transaction: None) -> None:
        self._store = open_store(where, watch)
        self._known = runs.Remembered()
        self._library = listings.Library()
        self.notices = SqlNotices(self._store)

    def close(self) -> None:
        self._store.close()

    @property
    def connections(self) -> int:
        return self._store.connections

    def record(self, events: Iterable[AuditEvent]) -> None:
        done = list(events)
        self._store.write(lambda connection: audit.append(connection, done))

    def add_invite(self, invite: Invite, by: str = "", now: float = 0.0) -> None:
        self._do(lambda connection: accounts.add_invite(connection, invite), entries.invited(invite, by, now))

    def enrol(self, token_hash: str, client: Client) -> bool:
        return self._do(lambda connection: accounts.enrol(connection, token_hash, client), entries.enrolled(client, token_hash))

    def saw(self, name: ClientId, now: float, version: str | None = None, roles: Roles = None, device: str | None = None) -> None:
        def work(connection: Connection, done: list[AuditEvent]) -> None:
            before = accounts.saw(connection, name, now, version, roles, device)
            done += [entries.roles_changed(name, before, roles or (), now)] if before is not None else []

        self._write(work)

    def saw_all(self, names: Collection[ClientId], now: float) -> None:
        if names:
            self._store.write(lambda connection: accounts.saw_all(connection, names, now))

    def rekey(self, name: ClientId, before: str, keys: Keys, now: float = 0.0, handover: str = "") -> bool:
        event = entries.rotated(name, keys, now, handover)
        return self._do(lambda connection: accounts.rekey(connection, name, before, keys, handover), event)

    def approve(self, name: ClientId, by: str = "", now: float = 0.0) -> bool:
        return self._do(lambda connection: accounts.approve(connection, name), entries.about_client("approved", name, now, by))

    def begin_session(self, name: ClientId, session: Session, now: float) -> bool:
        def work(connection: Connection, done: list[AuditEvent]) -> bool:
            doubled = accounts.begin_session(connection, name, session, now)
            done += [entries.doubled(doubled, now)] if doubled is not None else []
            return doubled is not None

        return self._write(work)

    def note_ledgers(self, reported: Mapping[ClientId, Tip], charged: Mapping[ClientId, tuple[int, float]] = EMPTY) -> None:
        if reported or charged:
            self._store.write(lambda connection: accounts.note_ledgers(connection, reported, charged))

    def show_ledger(self, name: ClientId, shown: ShownLedger, now: float) -> bool:
        def work(connection: Connection, done: list[AuditEvent]) -> bool:
            changed = accounts.show_ledger(connection, name, shown)
            done += [] if changed is None else entries.ledger_shown(*changed, shown.accepted, now)
            return bool(done) and done[-1].kind == "ledger_differs"

        return self._write(work)

    def let_on(self, name: ClientId, session: Session, by: str, now: float) -> bool:
        event = entries.about_client("approved", name, now, by, session=str(session))
        return self._do(lambda connection: accounts.go_on(connection, name, session, now), event)

    def ask_rotation(self, name: ClientId, by: str = "", now: float = 0.0) -> None:
        event = entries.about_client("rotation_asked", name, now, by)
        self._do(lambda connection: accounts.ask_rotation(connection, name), event)

    def revoke(self, name: ClientId, reason: str, now: float, by: str = "") -> tuple[OrderRow, ...]:
        return self._write(partial(revoked, name=name, reason=reason, now=now, by=by))

    def add_project(self, project: Project) -> bool:
        return self._do(lambda connection: projects.add(connection, project), entries.project_made(project))

    def limit_project(self, name: str, quota: Quota, now: float, by: str = "") -> bool:
        return self._do(lambda connection: projects.limit(connection, name, quota), entries.project_limited(name, quota, now, by))

    def end_project(self, name: str, now: float, by: str = "") -> bool:
        return self._do(lambda connection: projects.end(connection, name, now), entries.project_ended(name, now, by))

    def assign(self, name: ClientId, projects: tuple[str, ...], now: float, by: str = "") -> bool:
        def work(connection: Connection, done: list[AuditEvent]) -> bool:
            before = assign(connection, name, projects)
            done += [entries.assigned(name, before, projects, now, by)] if before not in (None, projects) else []
            return before is not None

        return self._write(work)

    def add_key(self, key: ApiKey) -> bool:
        return self._do(lambda connection: accounts.add_key(connection, key), entries.key_made(key))

    def revoke_key(self, name: str, now: float, by: str = "") -> bool:
        return self._do(lambda connection: accounts.revoke_key(connection, name, now), entries.key_ended(name, now, by))

    def begin_user_session(self, session: UserSession) -> bool:
        return self._do(lambda connection: begin_session(connection, session), entries.signed_in(session))

    def end_user_session(self, session_id: str, now: float, by: str = "") -> bool:
        event = entries.session_ended(session_id, now, by)
        return self._do(lambda connection: end_session(connection, session_id, now), event)

    def catch_up(self, missing: Sequence[Entry], found: AuditEvent, known: int, tip: Tip | None = None) -> bool:
        def whole(connection: Connection) -> bool:
            done: list[AuditEvent] = []
            for record in missing:
                apply(connection, done, record)
            audit.lock(connection)
            if audit.caught_up(connection, missing, tip):
                audit.append(connection, done)
                return False
            own = audit.splice(connection, missing, known, tip)
            end_sessions(connection, found.at)
            audit.append(connection, [*done, found], None if own else tip)
            return True

        return self._store.write(whole)

    def confirm_restore(self, by: str, now: float) -> bool:
        def work(connection: Connection, done: list[AuditEvent]) -> bool:
            waits = audit.mark(connection).restored is not None
            done += [confirmed(by, now)] if waits else []
            return waits

        return self._write(work)

    def create(self, runs: Iterable[RunRow], orders: Iterable[OrderRow], by: str = "", here: Present = all_present) -> None:
        new, asked = tuple(runs), tuple(orders)
        started = [entries.run_started(row, by) for row in new]
        self._do(lambda connection: transitions.create(connection, new, asked, by, here), *started)

    def run(self, run: RunId) -> RunRow | None:
        return self._read(runs.find, self._known, run)

    def current(self, also: Collection[RunId] = ()) -> tuple[Headline, ...]:
        return self._read(runs.current, self._known, also)

    def rounds(self, run: RunId) -> tuple[RoundRow, ...]:
        return self._read(self._known.rounds, run)

    def set_status(
        self, run: RunId, among: Iterable[Status], status: Status, cause: str, now: float, token: int | None = None, by: str = ""
    ) -> bool:
        before = tuple(among)

        def work(connection: Connection, done: list[AuditEvent]) -> bool:
            row = self._locked(connection, run, token)
            if row.status not in before:
                return False
            transitions.set_status(connection, row, status, with_author({"cause": cause}, by), now)
            done.append(entries.run_ended(row, status, cause, by, now))
            return True

        return self._write(work)

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
        asked = tuple(orders)

        def work(connection: Connection, done: list[AuditEvent]) -> bool:
            row = self._locked(connection, run)
            if row.status is not Status.STALLED:
                return False
            late = reopened(row, deadline_at, quorum)
            transitions.set_status(connection, late, status, with_author(resuming(cause, quorum), by), now)
            done.append(entries.run_resumed(late, transitions.offer_new(connection, asked, now), by, now))
            return True

        return self._write(work)

    def advance(self, step: Advance, here: Present = all_present) -> bool:
        def work(connection: Connection, done: list[AuditEvent]) -> bool:
            row = self._locked(connection, step.run, step.token)
            if row.cursor != step.from_cursor or row.status not in OPEN:
                return False
            late = transitions.advance(connection, row, step)
            # Now that their rows are written: a collection either came before, and is known, or leaves them alone.
            doubtful = parts.doubtful(connection, step.digests)
            present(doubtful, here)
            parts.vouch(connection, doubtful)
            done += entries.round_ended(step, late)
            return True

        return self._write(work)

    def delete_runs(self, runs: Sequence[RunId], by: str, rule: str, now: float) -> tuple[Tombstone, ...]:
        def work(connection: Connection, done: list[AuditEvent]) -> tuple[Tombstone, ...]:
            made = deletion.delete_runs(connection, self._known.for_writers(), sorted(runs), by, rule, now)
            done += map(entries.run_deleted, made)
            return made

        return self._write(work)

    def trim_audit(self, base: Tip, last: Tip, event: AuditEvent) -> bool:
        return self._do(lambda connection: old_entries.trim(connection, base, last), event)

    def claim(self, seen: Iterable[Lease], holder: str, seconds: float) -> tuple[Lease, ...]:
        wanted = tuple(seen)
        return self._store.write(lambda connection: leases.claim(connection, wanted, holder, seconds)) if wanted else ()

    def renew(self, held: Iterable[Lease]) -> tuple[Lease, ...]:
        known = tuple(held)
        return self._store.write(lambda connection: leases.renew(connection, known)) if known else ()

    def release(self, held: Iterable[Lease]) -> None:
        known = tuple(held)
        if known:
            self._store.write(lambda connection: leases.release(connection, known))

    def order(self, order: OrderId) -> OrderRow | None:
        found = self._read(orders.find, self._library, orders.ONE, order=order)
        return found[0] if found else None

    def usage(self, projects: Collection[str]) -> Mapping[str, Usage]:
        return self._read(usage_of, self._library, projects)

    def orders(self, run: RunId, cursor: int | None = None) -> tuple[OrderRow, ...]:
        if cursor is None:
            return self._read(orders.find, self._library, orders.OF_RUN, of=run)
        return self._read(orders.find, self._library, orders.OF_ROUND, of=run, at=cursor)

    def open_orders(self, client: ClientId) -> tuple[OrderRow, ...]:
        return self._read(orders.find, self._library, orders.OPEN_OF, of=client)

    def answer(
        self, order: OrderId, reply: Reply, status: OrderStatus, now: float, down: int, up: int, here: Present = all_present
    ) -> OrderStatus | None:
        def work(connection: Connection, done: list[AuditEvent]) -> OrderStatus | None:
            row = self._order(connection, order)
            if row.answered is not None or row.status is OrderStatus.CANCELLED:
                return OrderStatus.CANCELLED
            if not parts.present(connection, listings.digests_in([reply.files, ciphers(reply.sealed)]), here):
                return None
            after = status if row.status is OrderStatus.OPEN else row.status
            row = answered(row, reply, after, now, down, up)
            transitions.answer(connection, row, reply, now)
            spending.add(connection, row, reply, now)
            done.append(entries.replied(row, reply, now))
            return after

        return self._write(work)

    def reissue(self, orders: Iterable[OrderRow]) -> None:
        again = tuple(orders)
        self._write(lambda connection, done: done.extend(map(entries.asked_again, transitions.reissue(connection, again))))

    def beat(self, client: ClientId, progress: Mapping[OrderId, float], now: float) -> tuple[OrderId, ...]:
        return self.beat_all({client: progress}, now).get(client, ())

    def beat_all(
        self, reported: Mapping[ClientId, Mapping[OrderId, float]], now: float
    ) -> Mapping[ClientId, tuple[OrderId, ...]]:
        return self._store.write(lambda connection: orders.beat(connection, reported, now)) if any(reported.values()) else {}

    def hold(self, client: ClientId, held: Mapping[OrderId, Hold], now: float) -> tuple[OrderId, ...]:
        def work(connection: Connection, done: list[AuditEvent]) -> tuple[OrderId, ...]:
            gone, awaited = orders.hold(connection, client, held, now)
            done += [entries.approval_awaited(order, client, run, now) for order, run in awaited]
            return gone

        return self._write(work) if held else ()

    def held(self, files: Files, run: RunId, client: ClientId, now: float) -> frozenset[Digest]:
        if not files:
            return frozenset()
        here, stale = self._read(parts.held, files, run, client, now)
        if stale:
            self._store.write(lambda connection: parts.touch(connection, stale, now))
        return here

    def collect(
        self, before: float, drop: Callable[[Collection[Digest]], object] = lambda digests: None, most: int = MOST_DROPPED
    ) -> tuple[Digest, ...]:
        after: int | None = 0
        while after is not None:
            some = self._store.write(partial(parts.collect, before=before, drop=drop, most=most, after=after))
            if some.gone:
                return some.gone
            after = some.after
        return ()

    def marker(self, ours: Digest | None = None) -> Digest | None:
        if ours is None:
            return self._read(parts.marker)
        return self._store.write(lambda connection: parts.mark(connection, ours))

    def event(self, run: RunId, kind: str, data: Mapping[str, Plain], now: float) -> None:
        def work(connection: Connection) -> None:
            runs.lock(connection, run)
            runs.note(connection, run, kind, data, now)

        self._store.write(work)

    def reserve(self, idempotency_record: IdempotencyRecord, over: str = "") -> IdempotencyRecord:
        known = self._read(idempotency.find, idempotency_record)
        if known is not None and not free(known, idempotency_record, over):
            return known
        return self._store.write(lambda connection: idempotency.reserve(connection, idempotency_record, over))

    def create_once(
        self, key: str, worker: str, runs: Iterable[RunRow], orders: Iterable[OrderRow], by: str = "", here: Present = all_present
    ) -> None:
        new, asked = tuple(runs), tuple(orders)
        started = [entries.run_started(row, by) for row in new]
        self._do(lambda connection: idempotency.create_once(connection, (key, worker), new, asked, by, here), *started)

    def _read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **more: P.kwargs) -> T:
        with self._store.reading() as connection:
            return query(connection, *args, **more)

    def _write(self, work: Callable[[Connection, list[AuditEvent]], T]) -> T:
        """Write, and add to the audit log what `work` says was done. The log is locked last."""

        def whole(connection: Connection) -> T:
            done: list[AuditEvent] = []
            result = work(connection, done)
            audit.append(connection, done)
            return result

        return self._store.write(whole)

    def _do(self, work: Callable[[Connection], T], *events: AuditEvent) -> T:
        """Write, and add these events to the audit log unless `work` gives False: it has done nothing."""

        def known(connection: Connection, done: list[AuditEvent]) -> T:
            did = work(connection)
            done += () if did is False else events
            return did

        return self._write(known)

    def _locked(self, connection: Connection, run: RunId, token: int | None = None) -> RunRow:
        """A run, locked until this transaction ends. Raises Overtaken."""
        runs.lock(connection, run)
        row = runs.find(connection, self._known.for_writers(), run)
        if row is None:
            raise KeyError(run)
        if token is not None:
            leases.fence(connection, run, token)
        return row

    def _order(self, connection: Connection, order: OrderId) -> OrderRow:
        """An order, bare, with its run locked until this transaction ends."""
        before = orders.bare(connection, order)
        if before is None:
            raise KeyError(order)
        runs.lock(connection, before.run)
        now = orders.bare(connection, order)
        if now is None:  # it went with its run
            raise KeyError(order)
        return now


def revoked(
    connection: Connection, done: list[AuditEvent], name: ClientId, reason: str, now: float, by: str
) -> tuple[OrderRow, ...]:
    """Revoke a client, and end its open orders; these."""
    transitions.lock_open_runs(connection, name)
    known, new = accounts.revoke(connection, name, reason, now)
    ended = [] if known is None else transitions.end_orders_of(connection, known, now)
    done += [entries.about_client("revoked", name, now, by, reason=reason[: entries.MOST_WORDS])] if new else []
    done += [entries.replied(row, reply, now) for row, reply in ended]
    return tuple(row for row, _ in ended)


def apply(connection: Connection, done: list[AuditEvent], record: Entry) -> None:
    """What a record of the witness says, done once more."""
    name, at, by, details = ClientId(record.client), record.at, record.by, record.details
    if record.kind == "enrolled":
        accounts.spend(connection, str(details["invite"]), name)
    elif record.kind == "key_ended" and accounts.revoke_key(connection, str(details["name"]), at):
        done.append(entries.key_ended(str(details["name"]), at, by))
    elif record.kind == "revoked":
        revoked(connection, done, name, str(details["reason"]), at, by)
    elif record.kind == "rotated" and (known := accounts.known(connection, name)) is not None:
        keys, handover = keys_in(record), str(details["handover"])
        if known.keys != keys and accounts.rekey(connection, name, known.sign_key, keys, handover):
            done.append(entries.rotated(name, keys, at, handover))
