"""The journal within a process."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import attrgetter

from tideline.archive.disk.spill import Spill
from tideline.core.handle import AnyHandle
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.core.settings import Plain
from tideline.engine.audit import entries
from tideline.engine.model import totals, transitions
from tideline.engine.model.experiment import WEIGHTS_CURSOR, initial_weights_of, weights_missing
from tideline.engine.model.orders import Envelope, Files, Hold, OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import FINAL, JOIN, OPEN, Event, Lease, RoundRow, RunRow, Status, reaches
from tideline.engine.model.totals import OrderLine, OrderTimes, RoundTotals, Scores, SiteTotals
from tideline.engine.peers.sealing import ciphers
from tideline.engine.ports.journal import MOST_DROPPED, Advance, Present, all_present
from tideline.engine.simulation.deleted import MemoryDeletions
from tideline.engine.simulation.history import History
from tideline.engine.simulation.kept_totals import KeptTotals
from tideline.engine.simulation.projects import MemoryProjects

NOBODY = ClientId("")
BEST = "best"  # what refers to the state of a run's best round


class MemoryJournal(MemoryProjects, MemoryDeletions):
    """The journal in dictionaries. spill: what keeps the history that is seldom read; it has one of its own unless said."""

    def __init__(self, spill: Spill | None = None) -> None:
        super().__init__(spill)
        self._orders: dict[OrderId, OrderRow] = {}
        self._asked: dict[RunId, dict[int, list[OrderId]]] = {}  # by cursor
        self._last: dict[tuple[RunId, ClientId], int] = {}  # the cursor of the last reply
        self._missed: dict[RunId, dict[OrderId, None]] = {}
        self._totals = KeptTotals()
        self._leases: dict[RunId, Lease] = {}
        self._marker: Digest | None = None
        self._rounds: dict[RunId, list[RoundRow]] = {}
        self._events: dict[RunId, History[Event]] = {}
        self._once_referred: set[Digest] = set()
        self._dropped: dict[Digest, float] = {}
        self._sealed: dict[RunId, dict[AnyHandle, tuple[int, Envelope]]] = {}  # and the last cursor that needs each

    def create(self, runs: Iterable[RunRow], orders: Iterable[OrderRow], by: str = "", here: Present = all_present) -> None:
        new = tuple(runs)
        with self._lock:
            self._check_runs(new)
            self._begin_from(new, here)
            for run in new:
                self._runs[run.id] = run
                self._rounds[run.id] = []
                self._leases[run.id] = Lease(run.id)
                self._note(run.id, "created", transitions.with_author({"method": run.method}, by), run.created)
                self.record([entries.run_started(run, by)])
            asked = tuple(orders)
            for order in asked:
                self._offer(order, order.created)
            self._count(asked)

    def set_status(
        self, run: RunId, among: Iterable[Status], status: Status, cause: str, now: float, token: int | None = None, by: str = ""
    ) -> bool:
        with self._lock:
            row = self._runs[run]
            transitions.fence(self._leases[run], token)
            if row.status not in tuple(among):
                return False
            ended = now if status in FINAL else None
            self._runs[run] = replace(row, status=status, cause=cause, ended=ended)
            self._note(run, status.value, transitions.with_author({"cause": cause}, by), now)
            self.record([entries.run_ended(row, status, cause, by, now)])
            if status in FINAL:
                self._end(run, OrderStatus.CANCELLED)
            return True

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
        with self._lock:
            row = self._runs[run]
            if row.status is not Status.STALLED:
                return False
            row = transitions.reopened(row, deadline_at, quorum)
            self._runs[run] = replace(row, status=status, cause=cause, ended=None)
            self._note(run, status.value, transitions.with_author(transitions.resuming(cause, quorum), by), now)
            new = [order for order in orders if order.id not in self._orders]
            for order in new:
                self._offer(order, now)
            self._count(new)
            self.record([entries.run_resumed(row, new, by, now)])
            return True

    def advance(self, step: Advance, here: Present = all_present) -> bool:
        with self._lock:
            row = self._runs[step.run]
            transitions.fence(self._leases[step.run], step.token)
            if row.cursor != step.from_cursor or row.status not in OPEN:
                return False
            transitions.present(self._dropped.keys() & step.digests, here)
            self._vouch(step.digests)
            self._close_orders(row, OrderStatus.EXPIRED)
            now = step.closed.closed
            self._rounds[step.run].append(step.closed)
            self._refer("state", step.run, step.closed.next_cursor, step.closed.state, now)
            self._need(step, now)
            if step.best_state:
                self._let_go(step.run, BEST)
                self._refer(BEST, step.run, step.from_cursor, step.best_state, now)
            for order in step.orders:
                self._offer(order, now)
            self._runs[step.run] = transitions.advanced(row, step)
            self._trim(step.run, step.retain_from)
            late = self._leave_out(step, now)
            self._totals.close(step.run, step.from_cursor, self.orders(step.run, step.from_cursor))
            self._count(step.orders)
            self._note(step.run, "closed", transitions.closed_event(step), now)
            if step.status in FINAL:
                self._note(step.run, step.status.value, {"cause": ""}, now)
                self._end(step.run, OrderStatus.CANCELLED)
            self.record(entries.round_ended(step, late))
            return True

    def leases(self, run: RunId | None = None) -> tuple[Lease, ...]:
        with self._lock:
            asked = sorted(self._leases) if run is None else [run]
            return tuple(self._leases[r] for r in asked if r in self._leases and self._runs[r].status in OPEN)

    def claim(self, seen: Iterable[Lease], holder: str, seconds: float) -> tuple[Lease, ...]:
        with self._lock:
            free = [lease for lease in seen if self._leases.get(lease.run) == lease]
            return self._hold([replace(each, holder=holder, token=each.token + 1, beats=0, seconds=seconds) for each in free])

    def renew(self, held: Iterable[Lease]) -> tuple[Lease, ...]:
        with self._lock:
            return self._hold([replace(now, beats=now.beats + 1) for now in self._newest(held)])

    def release(self, held: Iterable[Lease]) -> None:
        with self._lock:
            self._hold([replace(now, holder="") for now in self._newest(held)])

    def _newest(self, held: Iterable[Lease]) -> list[Lease]:
        return [now for lease in held if (now := self._leases.get(lease.run)) and now.token == lease.token]

    def _hold(self, changed: list[Lease]) -> tuple[Lease, ...]:
        self._leases.update({lease.run: lease for lease in changed})
        return tuple(sorted(changed, key=lambda lease: lease.run))

    def rounds(self, run: RunId) -> tuple[RoundRow, ...]:
        return tuple(self._rounds.get(run, ()))

    def round(self, run: RunId, cursor: int) -> RoundRow | None:
        found = self._rounds.get(run, [])
        at = bisect_left(found, cursor, key=attrgetter("cursor"))
        return found[at] if at < len(found) and found[at].cursor == cursor else None

    def recent_rounds(self, run: RunId) -> tuple[RoundRow, ...]:
        with self._lock:
            found, checkpoints = list[RoundRow](), 0
            for closed in reversed(self._rounds.get(run, ())):
                if checkpoints == 2:
                    break
                found.append(closed)
                checkpoints += bool(closed.state)
        return tuple(reversed(found))

    def order(self, order: OrderId) -> OrderRow | None:
        return self._orders.get(order)

    def orders(self, run: RunId, cursor: int | None = None) -> tuple[OrderRow, ...]:
        with self._lock:
            asked = self._asked.get(run, {})
            names = chain.from_iterable(asked.values()) if cursor is None else asked.get(cursor, ())
            found = [self._orders[name] for name in names]
        return tuple(sorted(found, key=lambda o: (o.cursor, o.client, o.attempt)))

    def open_orders(self, client: ClientId) -> tuple[OrderRow, ...]:
        with self._lock:
            found = [self._orders[name] for name in self._open.get(client, ())]
        return tuple(sorted(found, key=lambda o: (o.created, o.id)))

    def open_names(self) -> set[OrderId]:
        """Every order that is open."""
        with self._lock:
            return {name for own in self._open.values() for name in own}

    def order_lines(self, run: RunId, cursor: int) -> tuple[OrderLine, ...]:
        return tuple(map(totals.line_of, self.orders(run, cursor)))

    def recent_orders(self, run: RunId, places: int, last: int | None = None) -> tuple[OrderTimes, ...]:
        with self._lock:
            asked = [at for at, names in self._asked.get(run, {}).items() if names and (last is None or at <= last)]
            return tuple(totals.times_of(o) for at in sorted(asked)[-places:] for o in self.orders(run, at))

    def missed(self, run: RunId) -> tuple[OrderLine, ...]:
        with self._lock:
            found = [totals.line_of(self._orders[name]) for name in self._missed.get(run, ())]
        return tuple(sorted(found, key=lambda o: (o.cursor, o.client, o.attempt)))

    def standing(self, run: RunId, cursor: int) -> RoundTotals:
        return self._totals.rounds[run].get(cursor, RoundTotals())

    def round_totals(self, run: RunId) -> Mapping[int, RoundTotals]:
        with self._lock:
            return dict(self._totals.rounds[run])

    def site_totals(self, run: RunId) -> Mapping[ClientId, SiteTotals]:
        with self._lock:
            return dict(self._totals.sites[run])

    def scores(self, run: RunId) -> Mapping[int, Scores]:
        with self._lock:
            return dict(self._totals.scores[run])

    def last_answers(self, run: RunId, clients: Collection[ClientId]) -> Mapping[ClientId, int]:
        return {client: self._last.get((run, client), JOIN - 1) for client in clients}

    def barred(self, run: RunId) -> tuple[ClientId, ...]:
        with self._lock:
            return tuple(sorted(c for c in self._revoked if any(order.run == run for order in self._reaching(c))))

    def _reaching(self, client: ClientId) -> tuple[OrderRow, ...]:
        """A client's open orders, but for those by which a project that it does not serve asks for it."""
        serves, mine = self._clients[client].projects, self.open_orders(client)
        return tuple(order for order in mine if reaches(order.cursor, self._runs[order.run].project, serves))

    def _project_of(self, order: OrderId) -> str:
        return self._runs[self._orders[order].run].project

    def answer(
        self, order: OrderId, reply: Reply, status: OrderStatus, now: float, down: int, up: int, here: Present = all_present
    ) -> OrderStatus | None:
        with self._lock:
            after = self._answer(order, reply, status, now, down, up, here)
            if after not in (None, OrderStatus.CANCELLED):
                self._spend(self._orders[order], reply, now)
            return after

    def _answer(
        self, order: OrderId, reply: Reply, status: OrderStatus, now: float, down: int, up: int, here: Present = all_present
    ) -> OrderStatus | None:
        with self._lock:
            row = self._orders[order]
            if row.answered is not None or row.status is OrderStatus.CANCELLED:
                return OrderStatus.CANCELLED
            given = (*reply.files, *ciphers(reply.sealed))
            if any(d not in self._parts or (d in self._dropped and not here(d)) for d, _ in given):
                return None
            after = status if row.status is OrderStatus.OPEN else row.status
            self._write(row := transitions.answered(row, reply, after, now, down, up))
            self._totals.reply(row)
            self._vouch(digest for digest, _ in given)
            self._pushed.pop((row.run, row.client), None)
            if after is OrderStatus.ANSWERED:
                self._refer(f"reply:{order}", row.run, row.cursor, reply.files, now, row.client)
                self._refer(f"sealed:{order}", row.run, row.cursor, ciphers(reply.sealed), now, row.client)
                known = self._sealed.setdefault(row.run, {})
                known.update({e.handle: (row.cursor, e) for e in reply.sealed if e.handle not in known})
            self._note(row.run, "late" if after is OrderStatus.EXPIRED else after.value, transitions.reply_event(row, reply), now)
            self.record([entries.replied(self._orders[order], reply, now)])
            return after

    def envelopes(self, run: RunId, handles: Collection[AnyHandle]) -> tuple[Envelope, ...]:
        with self._lock:
            known = self._sealed.get(run, {})
            return tuple(known[handle][1] for handle in sorted(handles, key=str) if handle in known)

    def revoke(self, name: ClientId, reason: str, now: float, by: str = "") -> tuple[OrderRow, ...]:
        with self._lock:
            known = self._revoke(name, reason, now, by)
            mine = () if known is None else self._reaching(name)
            for order in mine:
                assert known is not None
                self._answer(order.id, transitions.revoked_reply(order, known), OrderStatus.FAILED, now, 0, 0)
            return tuple(self._orders[order.id] for order in mine)

    def reissue(self, orders: Iterable[OrderRow]) -> None:
        with self._lock:
            for order in orders:
                run = self._runs.get(order.run)
                if order.id not in self._orders and run is not None and run.status not in FINAL and order.cursor == run.cursor:
                    self._offer(order, order.created)
                    self._count([order])
                    self.record([entries.asked_again(order)])

    def beat(self, client: ClientId, progress: Mapping[OrderId, float], now: float) -> tuple[OrderId, ...]:
        with self._lock:
            gone = []
            for order, share in progress.items():
                row = self._orders.get(order)
                if row is None or row.client != client or row.status is not OrderStatus.OPEN:
                    gone.append(order)
                else:
                    self._write(replace(row, progress=share, beat=now, held=""))
            return tuple(gone)

    def hold(self, client: ClientId, held: Mapping[OrderId, Hold], now: float) -> tuple[OrderId, ...]:
        with self._lock:
            rows = {order: self._orders.get(order) for order in held}
            own = {o: row for o, row in rows.items() if row and row.client == client and row.status is OrderStatus.OPEN}
            for order, row in own.items():
                self._write(replace(row, held=held[order].value, beat=now))
            new = [o for o, row in own.items() if held[o] is Hold.APPROVAL and row.held != Hold.APPROVAL.value]
            self.record([entries.approval_awaited(order, client, own[order].run, now) for order in sorted(new)])
            return tuple(order for order in held if order not in own)

    def beat_all(
        self, reported: Mapping[ClientId, Mapping[OrderId, float]], now: float
    ) -> Mapping[ClientId, tuple[OrderId, ...]]:
        with self._lock:
            return {client: gone for client, progress in reported.items() if (gone := self.beat(client, progress, now))}

    def add_parts(self, digests: Sequence[Digest], run: RunId, client: ClientId, now: float) -> None:
        with self._lock:
            self._parts.update(dict.fromkeys(digests, now))
            self._once_referred.difference_update(digests)
            self._pushed.setdefault((run, client), set()).update(digests)

    def held(self, files: Files, run: RunId, client: ClientId, now: float) -> frozenset[Digest]:
        with self._lock:
            own = self._own(run, client)
            here = [digest for digest, _ in files if digest in self._parts and digest in own]
            self._parts.update(dict.fromkeys(here, now))
            self._once_referred.difference_update(here)
            return frozenset(here)

    def _own(self, run: RunId, client: ClientId) -> set[Digest]:
        """What a client was sent or has answered lately, and what it has pushed for the answer at hand."""
        own = set(self._pushed.get((run, client), ()))
        for named in self._refs.get(run, {}).get(client, {}).values():
            own.update(digest for digest, _ in named)
        return own

    def collect(
        self, before: float, drop: Callable[[Collection[Digest]], object] = lambda digests: None, most: int = MOST_DROPPED
    ) -> tuple[Digest, ...]:
        with self._lock:
            live = {digest for of in self._refs.values() for own in of.values() for files in own.values() for digest, _ in files}
            free = [d for d, at in self._parts.items() if d not in live and (d in self._once_referred or at < before)]
            gone = tuple(free[:most])
            if gone:
                drop(gone)
            self._forget(gone, before)
            return gone

    def _forget(self, gone: tuple[Digest, ...], before: float) -> None:
        for digest in gone:
            del self._parts[digest]
        self._once_referred.difference_update(gone)
        self._pushed = {whose: here for whose, own in self._pushed.items() if (here := own & self._parts.keys())}
        known = {digest: at for digest, at in self._dropped.items() if at >= before - transitions.REMEMBERED_SECONDS}
        self._dropped = known | dict.fromkeys(gone, before)

    def _vouch(self, digests: Iterable[Digest]) -> None:
        """These are here, and somebody refers to them: that they were dropped once is over."""
        for digest in digests:
            self._dropped.pop(digest, None)

    def marker(self, ours: Digest | None = None) -> Digest | None:
        with self._lock:
            self._marker = self._marker or ours
            return self._marker

    def adopt(self, found: Mapping[Digest, float]) -> int:
        with self._lock:
            new = {digest: at for digest, at in found.items() if digest not in self._parts}
            self._parts.update(new)
            return len(new)

    def event(self, run: RunId, kind: str, data: Mapping[str, Plain], now: float) -> None:
        with self._lock:
            self._note(run, kind, data, now)

    def events(self, run: RunId, after: int = 0, limit: int | None = None) -> tuple[Event, ...]:
        with self._lock:
            found = self._events[run].since(max(after, 0)) if run in self._events else iter(())
            return tuple(found if limit is None else islice(found, limit))

    def last_event(self, run: RunId, before: float | None = None) -> int:
        return max((event.seq for event in self.events(run) if before is None or event.at < before), default=0)

    def create_once(
        self, key: str, worker: str, runs: Iterable[RunRow], orders: Iterable[OrderRow], by: str = "", here: Present = all_present
    ) -> None:
        new = tuple(runs)
        with self._lock:
            self._held(key, worker)
            if new[0].id not in self._runs and new[0].id not in self._tombstones:
                self.create(new, orders, by, here)

    def _note(self, run: RunId, kind: str, data: Mapping[str, Plain], now: float) -> None:
        if run not in self._events:
            self._events[run] = self._event_history(run)
        log = self._events[run]
        log.append(Event(run=run, seq=len(log) + 1, at=now, kind=kind, data=dict(data)))

    def _event_history(self, run: RunId) -> History[Event]:
        return History(self._spill, fields_of, lambda row: Event(run, *row))  # type: ignore[misc]

    def _offer(self, order: OrderRow, now: float) -> None:
        self._asked.setdefault(order.run, {}).setdefault(order.cursor, []).append(order.id)
        self._write(order)
        self._refer(f"order:{order.id}", order.run, order.cursor, order.files, now, order.client)

    def _write(self, order: OrderRow) -> None:
        """Put an order's row in the place of the one before, if there is one."""
        self._orders[order.id] = order
        if order.status is OrderStatus.OPEN:
            self._open.setdefault(order.client, {})[order.id] = None
        else:
            self._open.get(order.client, {}).pop(order.id, None)
        if order.status in totals.MISSED:
            self._missed.setdefault(order.run, {})[order.id] = None
        if totals.worked(order):
            whose = order.run, order.client
            self._last[whose] = max(self._last.get(whose, JOIN - 1), order.cursor)

    def _refer(self, what: str, run: RunId, cursor: int, files: Files, now: float, client: ClientId = NOBODY) -> None:
        if files:
            self._refs.setdefault(run, {}).setdefault(client, {})[(what, cursor)] = files
            self._parts.update({digest: now for digest, _ in files})
            self._once_referred.update(digest for digest, _ in files)

    def _begin_from(self, runs: tuple[RunRow, ...], here: Callable[[Digest], bool]) -> None:
        for digest in (digest for run in runs for digest, _ in initial_weights_of(run)):
            if digest not in self._parts or (digest in self._dropped and not here(digest)):
                raise weights_missing(digest)
        for run in runs:
            files = initial_weights_of(run)
            self._vouch(digest for digest, _ in files)
            self._refer("start", run.id, WEIGHTS_CURSOR, files, run.created)
            self._once_referred.difference_update(digest for digest, _ in files)

    def _need(self, step: Advance, now: float) -> None:
        """The new state names these sealed values: they are needed as long as it is."""
        known, at = self._sealed.get(step.run, {}), step.closed.next_cursor
        found = {handle: (at, known[handle][1]) for handle in step.sealed if handle in known}
        known.update(found)
        self._refer("sealed", step.run, at, ciphers(envelope for _, envelope in found.values()), now)

    def _trim(self, run: RunId, retain_from: int) -> None:
        for client, own in self._refs.get(run, {}).items():
            self._refs[run][client] = {(what, at): f for (what, at), f in own.items() if at >= retain_from or what == BEST}
        self._sealed[run] = {k: v for k, v in self._sealed.get(run, {}).items() if v[0] >= retain_from}

    def _let_go(self, run: RunId, what: str) -> None:
        own = self._refs.get(run, {}).get(NOBODY, {})
        for key in [key for key in own if key[0] == what]:
            del own[key]

    def _end(self, run: RunId, status: OrderStatus) -> None:
        self._close_orders(self._runs[run], status)
        own = self._refs.pop(run, {}).get(NOBODY, {})
        if states := [key for key in own if key[0] == "state"]:
            last = max(states, key=lambda key: key[1])
            self._refs[run] = {NOBODY: {key: files for key, files in own.items() if key == last or key[0] == BEST}}
        self._sealed.pop(run, None)

    def _leave_out(self, step: Advance, now: float) -> list[ClientId]:
        """Who answered while the round was being folded without him is late: these."""
        late, folded = [], set(step.closed.folded)
        for order in self.orders(step.run, step.from_cursor):
            if order.status is OrderStatus.ANSWERED and order.client not in folded:
                self._write(replace(order, status=OrderStatus.EXPIRED))
                own = self._refs.get(order.run, {}).get(order.client, {})
                own.pop((f"reply:{order.id}", order.cursor), None)
                own.pop((f"sealed:{order.id}", order.cursor), None)
                self._note(step.run, "late", transitions.late_event(order), now)
                late.append(order.client)
        return late

    def _close_orders(self, run: RunRow, status: OrderStatus) -> None:
        """End the open exchange; no other has open orders."""
        for order in self.orders(run.id, run.cursor):
            if order.status is OrderStatus.OPEN:
                self._write(replace(order, status=status))
        self._totals.give_up(run.id, run.cursor)

    def _count(self, new: Iterable[OrderRow]) -> None:
        """Count the exchanges to which orders were added."""
        for run, cursor in {(order.run, order.cursor) for order in new}:
            self._totals.count(run, cursor, self.orders(run, cursor))


def fields_of(event: Event) -> Plain:
    """What is kept of an event, beside its run."""
    return [event.seq, event.at, event.kind, event.data]
