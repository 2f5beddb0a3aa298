"""The journal port on a database: each method is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from tideline.core.handle import Handle
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.engine.audit import entries
from tideline.engine.audit.log import ALL, About, AuditEvent, Entry, Tip
from tideline.engine.coordinator.idempotency import free
from tideline.engine.model.accounts import ApiKey, Client, Invite, Keys
from tideline.engine.model.orders import Envelope, Files, OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import OPEN, Event, Headline, Lease, RoundRow, RunRow, Status, Tally
from tideline.engine.model.transitions import answered, present, with_author
from tideline.engine.peers.sealing import ciphers
from tideline.engine.ports.journal import MOST_DROPPED, Advance, Answer, IdempotencyRecord, Present, all_present
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
    transitions,
)
from tideline_server.store.database.transactions import Watch, open_store

P = ParamSpec("P")
T = TypeVar("T")


class SqlJournal:
    """The journal in a file (SQLite) or at a URL (SQLite, Postgres). Any number of threads and processes.

    Raises StoreRefused if the database cannot be used, Unreachable and StorageFull where a transaction cannot be had, and
    KeyError for a run or an order that is not there where the port says so; then nothing was written.

    A connection that breaks amid a commit is Unreachable too, and the write may be there. To repeat it is safe: what was
    written stays as it is, and the answer is that of one who comes second. Not quite so are four: an event is there twice,
    and so is what was recorded; `create` raises for a run that is there; `collect` does not name again the parts that it has
    forgotten.
    """

    def __init__(self, where: Path | str, watch: Watch = lambda *transaction: None) -> None:
        self._store = open_store(where, watch)
        self._known = runs.Remembered()
        self._library = listings.Library()

    def close(self) -> None:
        """Wait for the transactions under way and let go of the database."""
        self._store.close()

    @property
    def connections(self) -> int:
        return self._store.connections

    def record(self, events: Iterable[AuditEvent]) -> None:
        done = list(events)
        self._store.write(lambda connection: audit.append(connection, done))

    def audit(self, after: int = 0, limit: int | None = None, about: About = ALL) -> tuple[Entry, ...]:
        return self._read(audit.entries, after, limit, about)

    def audit_tip(self) -> Tip:
        return self._read(audit.tip)

    def tally(self) -> Tally:
        return self._read(runs.tally)

    def add_invite(self, invite: Invite, by: str = "", now: float = 0.0) -> None:
        self._do(lambda connection: accounts.add_invite(connection, invite), entries.invited(invite, by, now))

    def invite(self, token_hash: str) -> Invite | None:
        return self._read(accounts.invite, token_hash)

    def enrol(self, token_hash: str, client: Client) -> bool:
        return self._do(lambda connection: accounts.enrol(connection, token_hash, client), entries.enrolled(client, token_hash))

    def client(self, name: str) -> Client | None:
        return self._read(accounts.known, name)

    def clients(self) -> tuple[Client, ...]:
        return self._read(accounts.everybody)

    def saw(self, name: ClientId, now: float, version: str | None = None, roles: tuple[str, ...] | None = None) -> None:
        def work(connection: Connection, done: list[AuditEvent]) -> None:
            before = accounts.saw(connection, name, now, version, roles)
            done += [entries.roles_changed(name, before, roles or (), now)] if before is not None else []

        self._write(work)

    def saw_all(self, names: Collection[ClientId], now: float) -> None:
        if names:
            self._store.write(lambda connection: accounts.saw_all(connection, names, now))

    def rekey(self, name: ClientId, before: str, keys: Keys, now: float = 0.0, handover: str = "") -> bool:
        event = entries.rotated(name, keys, now)
        return self._do(lambda connection: accounts.rekey(connection, name, before, keys, handover), event)

    def approve(self, name: ClientId, by: str = "", now: float = 0.0) -> bool:
        return self._do(lambda connection: accounts.approve(connection, name), entries.about_client("approved", name, now, by))

    def ask_rotation(self, name: ClientId, by: str = "", now: float = 0.0) -> None:
        event = entries.about_client("rotation_asked", name, now, by)
        self._do(lambda connection: accounts.ask_rotation(connection, name), event)

    def revoke(self, name: ClientId, reason: str, now: float, by: str = "") -> tuple[OrderRow, ...]:
        event = entries.about_client("revoked", name, now, by, reason=reason[: entries.MOST_WORDS])

        def work(connection: Connection, done: list[AuditEvent]) -> tuple[OrderRow, ...]:
            transitions.lock_open_runs(connection, name)
            known, new = accounts.revoke(connection, name, reason, now)
            ended = [] if known is None else transitions.end_orders_of(connection, known, now)
            done += [event] if new else []
            done += [entries.replied(row, reply, now) for row, reply in ended]
            return tuple(row for row, _ in ended)

        return self._write(work)

    def revoked(self) -> frozenset[ClientId]:
        return self._read(accounts.revoked)

    def add_key(self, key: ApiKey) -> bool:
        return self._do(lambda connection: accounts.add_key(connection, key), entries.key_made(key))

    def api_keys(self) -> tuple[ApiKey, ...]:
        return self._read(accounts.all_keys)

    def revoke_key(self, name: str, now: float, by: str = "") -> bool:
        return self._do(lambda connection: accounts.revoke_key(connection, name, now), entries.key_ended(name, now, by))

    def used_key(self, key_id: str, now: float) -> None:
        self._store.write(lambda connection: accounts.use_key(connection, key_id, now))

    def create(
        self,
        runs: Iterable[RunRow],
        orders: Iterable[OrderRow],
        by: str = "",
        here: Present = all_present,
    ) -> None:
        new, asked = tuple(runs), tuple(orders)

        def work(connection: Connection) -> bool:
            transitions.create(connection, new, asked, by, here)
            return True

        self._do(work, *(entries.run_started(row, by) for row in new))

    def run(self, run: RunId) -> RunRow | None:
        return self._read(runs.find, self._known, run)

    def run_ids(self) -> tuple[RunId, ...]:
        return self._read(runs.ids)

    def headlines(self, limit: int | None = None, after: RunId | None = None) -> tuple[Headline, ...]:
        return self._read(runs.headlines, limit, after)

    def set_status(
        self,
        run: RunId,
        among: Iterable[Status],
        status: Status,
        cause: str,
        now: float,
        token: int | None = None,
        by: str = "",
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
    ) -> bool:
        asked = tuple(orders)

        def work(connection: Connection, done: list[AuditEvent]) -> bool:
            row = self._locked(connection, run)
            if row.status is not Status.STALLED:
                return False
            transitions.set_status(
                connection, replace(row, deadline_at=deadline_at), status, with_author({"cause": cause}, by), now
            )
            done.append(entries.run_resumed(row, transitions.offer_new(connection, asked, now), by, now))
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

    def leases(self, run: RunId | None = None) -> tuple[Lease, ...]:
        return self._read(leases.of_open_runs, run)

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

    def rounds(self, run: RunId) -> tuple[RoundRow, ...]:
        return self._read(self._known.rounds, run)

    def order(self, order: OrderId) -> OrderRow | None:
        with self._store.reading() as connection:
            return next(iter(orders.find(connection, self._library, orders.ONE, order=order)), None)

    def orders(self, run: RunId, cursor: int | None = None) -> tuple[OrderRow, ...]:
        with self._store.reading() as connection:
            if cursor is None:
                return tuple(orders.find(connection, self._library, orders.OF_RUN, of=run))
            return tuple(orders.find(connection, self._library, orders.OF_ROUND, of=run, at=cursor))

    def open_orders(self, client: ClientId) -> tuple[OrderRow, ...]:
        with self._store.reading() as connection:
            return tuple(orders.find(connection, self._library, orders.OPEN_OF, of=client))

    def last_answer(self, run: RunId, client: ClientId) -> int:
        return self._read(orders.last_answer, run, client)

    def answer(
        self,
        order: OrderId,
        reply: Reply,
        status: OrderStatus,
        now: float,
        down: int,
        up: int,
        here: Present = all_present,
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
            done.append(entries.replied(row, reply, now))
            return after

        return self._write(work)

    def envelopes(self, run: RunId, handles: Collection[Handle[Any]]) -> tuple[Envelope, ...]:
        return self._read(envelopes.find, run, handles)

    def reissue(self, orders: Iterable[OrderRow]) -> None:
        again = tuple(orders)
        self._write(lambda connection, done: done.extend(map(entries.asked_again, transitions.reissue(connection, again))))

    def beat(self, client: ClientId, progress: Mapping[OrderId, float], now: float) -> tuple[OrderId, ...]:
        if not progress:
            return ()
        return self._store.write(lambda connection: orders.beat(connection, client, progress, now))

    def add_parts(self, digests: Sequence[Digest], run: RunId, client: ClientId, now: float) -> None:
        self._store.write(lambda connection: parts.add(connection, digests, run, client, now))

    def held(self, files: Files, run: RunId, client: ClientId, now: float) -> frozenset[Digest]:
        if not files:
            return frozenset()
        with self._store.reading() as connection:
            here, stale = parts.held(connection, files, run, client, now)
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
            with self._store.reading() as connection:
                return parts.marker(connection)
        return self._store.write(lambda connection: parts.mark(connection, ours))

    def adopt(self, found: Mapping[Digest, float]) -> int:
        return self._store.write(lambda connection: parts.adopt(connection, found))

    def event(self, run: RunId, kind: str, data: Mapping[str, Any], now: float) -> None:
        def work(connection: Connection) -> None:
            runs.lock(connection, run)
            runs.note(connection, run, kind, data, now)

        self._store.write(work)

    def events(self, run: RunId, after: int = 0) -> tuple[Event, ...]:
        return self._read(runs.events_after, run, after)

    def reserve(self, idempotency_record: IdempotencyRecord, over: str = "") -> IdempotencyRecord:
        with self._store.reading() as connection:
            known = idempotency.find(connection, idempotency_record)
        if known is not None and not free(known, idempotency_record, over):
            return known
        return self._store.write(lambda connection: idempotency.reserve(connection, idempotency_record, over))

    def choose(self, key: str, plan: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._store.write(lambda connection: idempotency.choose(connection, key, plan))

    def create_once(
        self,
        key: str,
        worker: str,
        runs: Iterable[RunRow],
        orders: Iterable[OrderRow],
        by: str = "",
        here: Present = all_present,
    ) -> None:
        new, asked = tuple(runs), tuple(orders)
        done = [entries.run_started(row, by) for row in new]
        self._do(lambda connection: idempotency.create_once(connection, (key, worker), new, asked, by, here), *done)

    def conclude(self, key: str, worker: str, answer: Answer) -> Answer:
        return self._store.write(lambda connection: idempotency.conclude(connection, key, worker, answer))

    def leave(self, key: str, worker: str) -> None:
        self._store.write(lambda connection: idempotency.leave(connection, key, worker))

    def _read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **more: P.kwargs) -> T:
        """A reader's snapshot."""
        with self._store.reading() as connection:
            return query(connection, *args, **more)

    def _write(self, work: Callable[[Connection, list[AuditEvent]], T]) -> T:
        """A writer's turn. What `work` says was done is written into the audit log with it, behind all its other locks."""

        def whole(connection: Connection) -> T:
            done: list[AuditEvent] = []
            result = work(connection, done)
            audit.append(connection, done)
            return result

        return self._store.write(whole)

    def _do(self, work: Callable[[Connection], bool], *events: AuditEvent) -> bool:
        """The same, where it is known before what is done, if anything is."""

        def known(connection: Connection, done: list[AuditEvent]) -> bool:
            did = work(connection)
            done += events if did else ()
            return did

        return self._write(known)

    def _locked(self, connection: Connection, run: RunId, token: int | None = None) -> RunRow:
        """A run that nobody else changes until this transaction ends. Raises Overtaken."""
        runs.lock(connection, run)
        row = runs.find(connection, self._known, run)
        if row is None:
            raise KeyError(run)
        if token is not None:
            leases.fence(connection, run, token)
        return row

    def _order(self, connection: Connection, order: OrderId) -> OrderRow:
        """An order, bare, whose run nobody else changes until this transaction ends."""
        before = orders.bare(connection, order)
        if before is None:
            raise KeyError(order)
        runs.lock(connection, before.run)
        now = orders.bare(connection, order)
        assert now is not None, "orders are never removed"
        return now
