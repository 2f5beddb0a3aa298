"""The journal port on a database: each method is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.engine.entries import answered, present
from tideline.engine.errands import free
from tideline.engine.ports import Advance, anything, nothing
from tideline.engine.rows import (
    OPEN,
    Answer,
    Client,
    Errand,
    Event,
    Files,
    Headline,
    Invite,
    Lease,
    OrderRow,
    OrderStatus,
    Reply,
    RoundRow,
    RunRow,
    Status,
)
from tideline_server.store import errands, holdings, leases, listings, moves, orders, people, runs
from tideline_server.store.access import open_store


class SqlJournal:
    """The journal in a file (SQLite) or at a URL (SQLite, Postgres). Any number of threads and processes.

    Raises StoreRefused if the database cannot be used, Unreachable and StorageFull where a transaction cannot be had, and
    KeyError for a run or an order that is not there where the port says so; then nothing was written.

    A connection that breaks amid a commit is Unreachable too, and the write may be there. To repeat it is safe: what was
    written stays as it is, and the answer is that of one who comes second. Not quite so are three: an event is there twice;
    `create` raises for a run that is there; `collect` does not name again the parts that it has forgotten.
    """

    def __init__(self, where: Path | str) -> None:
        self._store = open_store(where)
        self._known = runs.Remembered()
        self._library = listings.Library()

    def close(self) -> None:
        """Wait for the transactions under way and let go of the database."""
        self._store.close()

    def add_invite(self, invite: Invite) -> None:
        self._store.write(lambda connection: people.add_invite(connection, invite))

    def invite(self, token_hash: str) -> Invite | None:
        with self._store.reading() as connection:
            return people.invite(connection, token_hash)

    def enrol(self, token_hash: str, client: Client) -> bool:
        return self._store.write(lambda connection: people.enrol(connection, token_hash, client))

    def client(self, name: str) -> Client | None:
        with self._store.reading() as connection:
            return people.known(connection, name)

    def clients(self) -> tuple[Client, ...]:
        with self._store.reading() as connection:
            return people.everybody(connection)

    def saw(self, name: ClientId, now: float, version: str | None = None, roles: tuple[str, ...] | None = None) -> None:
        self._store.write(lambda connection: people.saw(connection, name, now, version, roles))

    def create(self, runs: Iterable[RunRow], orders: Iterable[OrderRow]) -> None:
        new, asked = tuple(runs), tuple(orders)
        self._store.write(lambda connection: moves.create(connection, new, asked))

    def run(self, run: RunId) -> RunRow | None:
        with self._store.reading() as connection:
            return runs.find(connection, self._known, run)

    def run_ids(self) -> tuple[RunId, ...]:
        with self._store.reading() as connection:
            return runs.ids(connection)

    def headlines(self, limit: int | None = None, after: RunId | None = None) -> tuple[Headline, ...]:
        with self._store.reading() as connection:
            return runs.headlines(connection, limit, after)

    def settle(
        self, run: RunId, among: Iterable[Status], status: Status, cause: str, now: float, token: int | None = None
    ) -> bool:
        before = tuple(among)

        def work(connection: Connection) -> bool:
            row = self._locked(connection, run, token)
            if row.status not in before:
                return False
            moves.settle(connection, row, status, cause, now)
            return True

        return self._store.write(work)

    def reopen(self, run: RunId, status: Status, cause: str, now: float, deadline_at: float, orders: Iterable[OrderRow]) -> bool:
        asked = tuple(orders)

        def work(connection: Connection) -> bool:
            row = self._locked(connection, run)
            if row.status is not Status.STALLED:
                return False
            moves.settle(connection, replace(row, deadline_at=deadline_at), status, cause, now)
            moves.offer_new(connection, asked, now)
            return True

        return self._store.write(work)

    def advance(self, step: Advance, here: Callable[[Digest], bool] = anything) -> bool:
        def work(connection: Connection) -> bool:
            row = self._locked(connection, step.run, step.token)
            if row.cursor != step.from_cursor or row.status not in OPEN:
                return False
            moves.advance(connection, row, step)
            present(step, here)  # now that their rows are written: a collection either came before or leaves them alone
            return True

        return self._store.write(work)

    def leases(self, run: RunId | None = None) -> tuple[Lease, ...]:
        with self._store.reading() as connection:
            return leases.of_open_runs(connection, run)

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
        with self._store.reading() as connection:
            return self._known.rounds(connection, run)

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
        with self._store.reading() as connection:
            return orders.last_answer(connection, run, client)

    def answer(self, order: OrderId, reply: Reply, status: OrderStatus, now: float, down: int, up: int) -> OrderStatus | None:
        def work(connection: Connection) -> OrderStatus | None:
            row = self._order(connection, order)
            if row.answered is not None or row.status is OrderStatus.CANCELLED:
                return OrderStatus.CANCELLED
            if not holdings.present(connection, listings.digests_in([reply.files])):
                return None
            after = status if row.status is OrderStatus.OPEN else row.status
            moves.answer(connection, answered(row, reply, after, now, down, up), reply, now)
            return after

        return self._store.write(work)

    def reissue(self, orders: Iterable[OrderRow]) -> None:
        again = tuple(orders)
        self._store.write(lambda connection: moves.reissue(connection, again))

    def beat(self, client: ClientId, progress: Mapping[OrderId, float], now: float) -> tuple[OrderId, ...]:
        if not progress:
            return ()
        return self._store.write(lambda connection: orders.beat(connection, client, progress, now))

    def add_parts(self, digests: Sequence[Digest], run: RunId, client: ClientId, now: float) -> None:
        self._store.write(lambda connection: holdings.add(connection, digests, run, client, now))

    def held(self, files: Files, run: RunId, client: ClientId, now: float) -> frozenset[Digest]:
        if not files:
            return frozenset()
        with self._store.reading() as connection:
            here, stale = holdings.held(connection, files, run, client, now)
        if stale:
            self._store.write(lambda connection: holdings.touch(connection, stale, now))
        return here

    def collect(self, before: float, drop: Callable[[Digest], object] = nothing) -> tuple[Digest, ...]:
        return self._store.write(lambda connection: holdings.collect(connection, before, drop))

    def marker(self, ours: Digest | None = None) -> Digest | None:
        if ours is None:
            with self._store.reading() as connection:
                return holdings.marker(connection)
        return self._store.write(lambda connection: holdings.mark(connection, ours))

    def adopt(self, found: Mapping[Digest, float]) -> int:
        return self._store.write(lambda connection: holdings.adopt(connection, found))

    def event(self, run: RunId, kind: str, data: Mapping[str, Any], now: float) -> None:
        def work(connection: Connection) -> None:
            runs.lock(connection, run)
            runs.note(connection, run, kind, data, now)

        self._store.write(work)

    def events(self, run: RunId, after: int = 0) -> tuple[Event, ...]:
        with self._store.reading() as connection:
            return runs.events_after(connection, run, after)

    def reserve(self, errand: Errand, over: str = "") -> Errand:
        with self._store.reading() as connection:
            known = errands.find(connection, errand)
        if known is not None and not free(known, errand, over):
            return known
        return self._store.write(lambda connection: errands.reserve(connection, errand, over))

    def choose(self, key: str, plan: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._store.write(lambda connection: errands.choose(connection, key, plan))

    def create_once(self, key: str, worker: str, runs: Iterable[RunRow], orders: Iterable[OrderRow]) -> None:
        new, asked = tuple(runs), tuple(orders)
        self._store.write(lambda connection: errands.create_once(connection, key, worker, new, asked))

    def conclude(self, key: str, worker: str, answer: Answer) -> Answer:
        return self._store.write(lambda connection: errands.conclude(connection, key, worker, answer))

    def leave(self, key: str, worker: str) -> None:
        self._store.write(lambda connection: errands.leave(connection, key, worker))

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
