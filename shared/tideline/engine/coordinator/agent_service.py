"""What agents ask of the coordinator. Every call names the client that its signature proved."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tideline.archive.digests import check_digest
from tideline.archive.errors import NotFinite, PartMismatch, PartMissing, TooLarge, Undeclared
from tideline.archive.layout import parse
from tideline.archive.parts import MAX_PART_BYTES, STREAMS, Intake, Upload, chunk_size, chunks
from tideline.core.errors import FederationError, IdentityRefused, Malformed, NotFound, Stale
from tideline.core.notes import Level, Note
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.core.settings import Plain
from tideline.engine.audit.log import Tip
from tideline.engine.coordinator.access.hours import accounted, noted
from tideline.engine.coordinator.integrity.mending import MendedParts, Mender, mended_or_stalled
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.coordinator.unreported import Allowance, Unreported
from tideline.engine.epsilon.witness import witnessed
from tideline.engine.model.brief import brief_of, with_peers
from tideline.engine.model.joins import check_join, kept
from tideline.engine.model.orders import Arrivals, Envelope, Failure, Hold, Order, OrderRow, OrderStatus, Receipt, Reply, bare
from tideline.engine.model.runs import FINAL, JOIN, RunRow, reaches
from tideline.engine.peers.relay import check_envelopes, for_one, seals
from tideline.engine.peers.sealing import ciphers
from tideline.engine.peers.summing import check_sum
from tideline.engine.ports.clock import SILENT, Bell, Clock, Meter
from tideline.engine.ports.compute import CheckRequest, Compute
from tideline.engine.ports.journal import Journal

SILENT_SECONDS = 30.0  # ten beats of an agent that lives
MOST_METRIC = 1e100  # what is more measures nothing, and sums of it may be no number
MOST_ORDERS = 10_000  # whose bytes are counted at once
KEPT_RUNS = 64  # whose facts are remembered
SEEN_SECONDS = 30.0  # a client's signs of life are written no more often than this

K = TypeVar("K")
V = TypeVar("V")


class AgentService:
    """Offers orders, hands out and takes in parts, accepts replies: the first counts, later ones are acknowledged and dropped."""

    def __init__(
        self,
        journal: Journal,
        part_store: PartStore,
        compute: Compute,
        bell: Bell,
        clock: Clock,
        version: str = "",
        later: Executor | None = None,
        meter: Meter = SILENT,
        allowance: Allowance | None = None,
    ) -> None:
        self.unreported = Unreported(allowance or Allowance())
        self.journal, self.part_store, self.compute, self.bell, self.clock = journal, part_store, compute, bell, clock
        self.version, self._later, self.meter = version, later, meter
        self._lock = threading.Lock()
        self._down: Counter[OrderId] = Counter()
        self._up: Counter[OrderId] = Counter()
        self._seen: dict[ClientId, float] = {}
        self._living: set[ClientId] = set()  # of whom that is not written yet
        self._reported: dict[ClientId, Tip] = {}  # ends of ledgers, of which that is not written either
        self._facts: dict[RunId, RunRow] = {}
        self._whose: dict[OrderId, tuple[ClientId, RunId]] = {}
        self.mender = Mender(journal=journal, part_store=part_store, compute=compute, bell=bell, clock=clock)

    def orders(self, client: ClientId) -> tuple[Order, ...]:
        """The client's open orders. The same order may be offered any number of times."""
        return self.news(client, frozenset())[0]

    def news(self, client: ClientId, sent: Set[OrderId]) -> tuple[tuple[Order, ...], frozenset[OrderId]]:
        """The open orders that were not sent to a client, or of which it has said nothing for a while: it may have lost one.

        And the names of all that are open: from then on all of them were sent.
        """
        silent = self.clock.now() - SILENT_SECONDS
        rows = self.reaching(client, self.journal.open_orders(client))
        offered = tuple(self.offer(row) for row in rows if row.id not in sent or max(row.beat, row.created) < silent)
        return offered, frozenset(row.id for row in rows)

    def reaching(self, client: ClientId, rows: tuple[OrderRow, ...]) -> tuple[OrderRow, ...]:
        """The orders but for those by which a project that the client does not serve asks it to join."""
        if all(row.cursor != JOIN for row in rows):
            return rows
        known = self.journal.client(client)
        serves = () if known is None else known.projects
        return tuple(row for row in rows if reaches(row.cursor, self.facts(row).project, serves))

    def offer(self, row: OrderRow) -> Order:
        """An order as the agent sees it: seconds left instead of times, and only what concerns this client."""
        run = self.run(row)
        fact = run.fact(row.cursor)
        if run.best is not None and run.best >= row.cursor:
            run = replace(run, best=None)  # the round has closed meanwhile: this order comes too late for what it found
        brief = brief_of(run, run.roster[row.client], self.version)
        if seals(run.contract):
            joined = {member.id for member in run.members}
            there = (each for each in self.journal.clients() if each.name in run.roster)
            brief = with_peers(brief, (each for each in there if run.project in each.projects or each.name in joined))
        return Order(
            id=row.id,
            run=row.run,
            cursor=row.cursor,
            phase=fact.phase,
            step=fact.step,
            round=fact.round,
            files=row.files,
            seed=row.seed,
            after=row.after,
            seconds_left=max(run.deadline_at - self.clock.now(), 0.0),
            brief=brief,
            sealed=tuple(for_one(each, row.client) for each in self.envelopes(row)),
        )

    def envelopes(self, row: OrderRow) -> tuple[Envelope, ...]:
        """The values of other sites that an order's message names."""
        return self.journal.envelopes(row.run, row.sealed) if row.sealed else ()

    def fetch(
        self, client: ClientId, order: OrderId, wanted: Sequence[tuple[Digest, int]], streams: int = STREAMS
    ) -> Iterator[memoryview]:
        """The bytes of parts from offsets on. A digest alone opens nothing: one of the client's own open orders must name it.

        Whoever takes them holds them to their names, and asks again for what is damaged: then they are looked at here first.
        streams: how many such calls there may be at once.
        """
        row = self.open(client, order)
        sizes = dict((*row.files, *ciphers(self.envelopes(row))))
        for digest, _ in wanted:
            if digest not in sizes:
                raise NotFound(f"Order {order[:8]} names no part {digest[:12]}")
        total = sum(sizes[digest] - offset for digest, offset in wanted)
        again = self._down[order] > 0
        return chunks(MendedParts(self.mender, row.run, sure=again), wanted, chunk_size(total, streams))

    def may_move(self, client: ClientId, order: OrderId, up: bool, parts: Arrivals) -> None:
        """Whether the client may push (up) or fetch such parts for an order, as far as the order tells. Raises as these do."""
        row = self.open(client, order)
        sizes = {} if up else dict((*row.files, *ciphers(self.envelopes(row))))
        for digest, size, _ in parts:
            if not up and sizes.get(digest) != size:
                raise NotFound(f"Order {order[:8]} names no part {digest[:12]} of {size} bytes")

    def sent(self, order: OrderId, nbytes: int) -> None:
        with self._lock:
            count(self._down, order, nbytes)
        self.meter.sent(nbytes)

    def push(self, client: ClientId, order: OrderId, arrivals: Arrivals) -> Intake:
        """Begin, or go on with, taking in parts of a reply. Bytes from elsewhere than where ours end would spoil them."""
        row = self.open(client, order)
        run = row.run
        for digest, size, _ in arrivals:
            check_digest(digest)
            if not 0 < size <= MAX_PART_BYTES:
                raise TooLarge(f"A part of {size} bytes is announced; the limit is {MAX_PART_BYTES}")
        self.unreported.announce(self.facts(row), row, arrivals)
        offsets = {digest: offset for digest, _, offset in arrivals}

        def begin(digest: Digest, size: int) -> Upload:
            here = self.part_store.offset(digest, size, run, client)
            if offsets[digest] != here:  # looked at first: to open an upload is to read all that came of it
                raise elsewhere(digest, here, offsets[digest])
            upload = self.part_store.upload(digest, size, run, client)
            if offsets[digest] != upload.offset:
                upload.close()
                raise elsewhere(digest, upload.offset, offsets[digest])
            return upload

        return Intake([(digest, size) for digest, size, _ in arrivals], begin, later=self._later)

    def received(self, client: ClientId, order: OrderId, intake: Intake) -> None:
        """Keep the pushed parts: from here on they survive a power cut. Raises DataTruncated if not all of them came."""
        intake.end()
        run = self.run_of(client, order)
        with self._lock:
            count(self._up, order, intake.came)
        self.unreported.came(order, self.part_store.commit(intake.whole, run, client))
        self.meter.received(intake.came)

    def forget_ended(self) -> None:
        """Forget what was pushed in part for orders that have ended since, whoever ended them."""
        for order in self.unreported.orders(self.clock.now()):
            row = self.journal.order(order)
            if row is None or row.status is not OrderStatus.OPEN:
                self.forget(order)

    def forget(self, order: OrderId) -> None:
        """An order has ended: so do uploads for it that are not whole. Whole parts wait for their collection."""
        pushed = self.unreported.over(order)
        if pushed is None:
            return
        for digest in pushed.parts.keys() - pushed.whole:
            self.part_store.upload(digest, pushed.parts[digest], pushed.run, pushed.client).discard()

    def report(self, client: ClientId, reply: Reply) -> Receipt:
        """Accept a reply or a failure; or say which parts are missing first, or why it is refused."""
        row = self.own(client, reply.order)
        receipt = self.judge(row, witnessed(self.journal, self.facts(row), row, reply, self.clock.now()))
        self.note_ledger(client, reply.ledger)
        verdict = "failed" if receipt.verdict == "accepted" and reply.failure else receipt.verdict
        self.meter.replied(self.facts(row), row.cursor, verdict)
        return receipt

    def judge(self, row: OrderRow, reply: Reply) -> Receipt:
        if row.status in (OrderStatus.ANSWERED, OrderStatus.FAILED, OrderStatus.CANCELLED):
            return Receipt("stale")
        if reply.failure is not None:
            return self.close(row, bare(reply, failure=reply.failure), OrderStatus.FAILED)
        if row.status is OrderStatus.EXPIRED:
            return self.late(row, reply)
        missing = self.missing(row, reply)
        if missing:
            return Receipt("missing", missing)
        try:
            self.check(row, reply)
        except Malformed as error:
            if self.overtaken(row, reply):
                return self.judge(self.own(row.client, row.id), reply)
            if isinstance(error, PartMissing) and self.ours(error, reply):
                mended_or_stalled(self.mender, row.run, error)
                return self.judge(self.own(row.client, row.id), reply)
            return self.refuse(row, reply, error)
        return self.close(row, kept(reply), OrderStatus.ANSWERED)

    def missing(self, row: OrderRow, reply: Reply) -> tuple[tuple[Digest, int], ...]:
        return self.part_store.missing(tuple(dict.fromkeys((*reply.files, *ciphers(reply.sealed)))), row.run, row.client)

    def ours(self, error: PartMissing, reply: Reply) -> bool:
        """Whether what a check lacks is the coordinator's own: a part of what was sent, and not of the reply."""
        lacking = error.context.get("digest")
        own = {digest for digest, _ in (*reply.files, *ciphers(reply.sealed))}
        return isinstance(lacking, str) and lacking not in own and not self.part_store.parts.has(Digest(lacking))

    def overtaken(self, row: OrderRow, reply: Reply) -> bool:
        """Whether the round has closed, or parts were collected, while the reply was checked: that is no fault of its own."""
        return self.own(row.client, row.id).status is not row.status or bool(self.missing(row, reply))

    def late(self, row: OrderRow, reply: Reply) -> Receipt:
        """A reply to a round that has closed: recorded without its message, which nobody will fold."""
        try:
            self.check_metrics(row, reply)
        except Malformed as error:
            return self.refuse(row, reply, error)
        return self.close(row, bare(reply, metrics=reply.metrics), OrderStatus.ANSWERED)

    def check(self, row: OrderRow, reply: Reply) -> None:
        """The reply names exactly the files of its root, its root keeps the contract, and nothing else comes with it."""
        self.check_metrics(row, reply)
        if row.cursor == JOIN:
            client = self.journal.client(row.client)
            check_join(self.run(row).spec, reply, client.version if client else "")
            return
        if reply.facts:
            raise Undeclared("The reply to a step holds facts; they belong to the join")
        if not reply.files:
            raise PartMissing("The reply names no message")
        header, run = parse(self.part_store.parts.view(reply.files[0][0])), self.facts(row)
        if [d for d, _ in header.parts] != [d for d, _ in reply.files[1:]]:
            raise Undeclared("The reply's files are not those that its root names")
        for digest, size in (*reply.files, *ciphers(reply.sealed)):
            # A part that is here is not what another was told to be; one that is damaged has any size, and is sent again.
            if self.part_store.parts.size(digest) != size and len(self.part_store.parts.view(digest)) != size:
                raise PartMismatch(f"Part {digest[:12]} has not the {size} bytes that the reply tells")
        if reply.sealed or header.handles:
            check_envelopes(row, run, reply, header.handles, self.journal.client(row.client))
        assert row.message is not None, "orders after the join have a message"
        asked = CheckRequest(spec=run.spec, cursor=row.cursor, asked=row.message, reply=reply.files[0][0], metrics=reply.metrics)
        self.compute.check(asked)
        check_sum(row, run, reply, self.journal, self.part_store.parts)

    def check_metrics(self, row: OrderRow, reply: Reply) -> None:
        """Only metrics with a clause of their own are taken, of numbers of a size that can be summed; a join has none."""
        run = self.facts(row)
        fact = run.fact(row.cursor)
        declared = {c.field for c in run.contract if row.cursor != JOIN and (c.phase, c.step) == (fact.phase, fact.step)}
        for name, value in reply.metrics.items():
            if f"metrics.{name}" not in declared:
                raise Undeclared(f"The metric {name!r} is not declared by the step {fact.step}")
            if not abs(value) <= MOST_METRIC:
                raise NotFinite(f"The metric {name} is {value}")

    def refuse(self, row: OrderRow, reply: Reply, error: FederationError) -> Receipt:
        failure = Failure(error.kind, str(error))
        self.close(row, bare(reply, failure=failure, refused=True), OrderStatus.FAILED)
        return Receipt("refused", error=failure)

    def close(self, row: OrderRow, reply: Reply, status: OrderStatus) -> Receipt:
        with self._lock:
            down, up = self._down[row.id], self._up[row.id]
        now = self.clock.now()
        reply, note = accounted(self.journal, row, noted(row, reply, now), now)
        after = self.journal.answer(row.id, reply, status, now, down, up, self.part_store.parts.has)
        if after is None:
            return Receipt("missing", self.missing(row, reply))
        if note is not None and after is not OrderStatus.CANCELLED:
            self.journal.event(row.run, NOTE, written_of(row) | note.data, now)
        with self._lock:
            del self._down[row.id], self._up[row.id]
        self.forget(row.id)
        self.bell.ring(f"run:{row.run}")
        return Receipt("accepted" if after is status else "late" if after is OrderStatus.EXPIRED else "stale")

    def beat(self, client: ClientId, progress: Mapping[OrderId, float]) -> tuple[OrderId, ...]:
        """Note how far a client's steps are; gives the orders that it should give up."""
        return self.beat_all({client: progress}).get(client, ())

    def beat_all(self, reported: Mapping[ClientId, Mapping[OrderId, float]]) -> Mapping[ClientId, tuple[OrderId, ...]]:
        """The same of many clients in one transaction, for those that have something to give up."""
        return self.journal.beat_all(reported, self.clock.now())

    def hold(self, client: ClientId, held: Mapping[OrderId, Hold]) -> tuple[OrderId, ...]:
        """Note why a client's owner lets orders wait; gives those that it should give up."""
        return self.journal.hold(client, held, self.clock.now())

    def over(self, client: ClientId, runs: Iterable[RunId]) -> tuple[RunId, ...]:
        """Of these runs those that ask a client for nothing more: they have ended, or are none of its own. One that stalled may
        go on.
        """
        known = {run: self.journal.run(run) for run in runs if run.isprintable()}
        return tuple(run for run, row in known.items() if row is None or row.status in FINAL or client not in row.roster)

    def lives(self, client: ClientId) -> bool:
        """Remember that a client lives. Asks nobody; gives whether it should be written down now, with the others'."""
        now = self.clock.now()
        with self._lock:
            if not 0.0 <= now - self._seen.get(client, -math.inf) < SEEN_SECONDS:
                self._seen[client] = now
                self._living.add(client)
            return bool(self._living)

    def note_ledger(self, client: ClientId, ledger: Tip) -> None:
        """Remember the last entry of a client's ledger, until it is written down with who lives."""
        with self._lock:
            if ledger.seq > self._reported.get(client, Tip()).seq:
                self._reported[client] = ledger

    @property
    def unwritten(self) -> bool:
        """Whether an end of a ledger is not written yet. Asks nobody."""
        return bool(self._reported)

    def write_living(self) -> None:
        """Write down who lives, and how far ledgers go: many in one transaction, as each one costs as much as a round's.

        What fails comes again.
        """
        with self._lock:
            (living, self._living), (reported, self._reported) = (self._living, set()), (self._reported, {})
        try:
            self.journal.saw_all(living, self.clock.now())
            self.journal.note_ledgers(reported)
        except Exception:
            with self._lock:
                self._living |= living
                self._reported = reported | self._reported
            raise

    def own(self, client: ClientId, order: OrderId) -> OrderRow:
        """The client's own order. Another client's is as unknown as one that does not exist."""
        row = self.journal.order(order)
        if row is None:
            raise NotFound(f"There is no order {order[:8]}", "It may belong to a run that was deleted")
        if row.client != client:
            raise IdentityRefused(f"Order {order[:8]} is not addressed to {client}")
        with self._lock:
            remember(self._whose, order, (client, row.run), MOST_ORDERS)
        return row

    def run_of(self, client: ClientId, order: OrderId) -> RunId:
        """The run of the client's own order, which never changes. Raises as `own` does."""
        known = self._whose.get(order)
        return known[1] if known is not None and known[0] == client else self.own(client, order).run

    def open(self, client: ClientId, order: OrderId) -> OrderRow:
        row = self.own(client, order)
        if row.status is not OrderStatus.OPEN:
            raise Stale(f"Order {order[:8]} is {row.status.value}")
        return row

    def run(self, row: OrderRow) -> RunRow:
        run = self.journal.run(row.run)
        assert run is not None, "orders refer to runs"
        with self._lock:
            remember(self._facts, row.run, run, KEPT_RUNS)
        return run

    def facts(self, row: OrderRow) -> RunRow:
        """The order's run as it was at some time: for what never changes in it, such as its roster, plan and contract."""
        return self._facts.get(row.run) or self.run(row)


def remember(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Keep a value under a key. Beyond so many, the oldest is forgotten."""
    known[key] = value
    if len(known) > most:
        del known[next(iter(known))]


def count(tally: Counter[OrderId], order: OrderId, nbytes: int) -> None:
    """Count an order's bytes. Orders that were withdrawn are never settled: beyond so many, the oldest is forgotten."""
    tally[order] += nbytes
    if len(tally) > MOST_ORDERS:
        del tally[next(iter(tally))]


def elsewhere(digest: Digest, here: int, there: int) -> Stale:
    return Stale(f"Part {digest[:12]} is here up to {here}, and is sent from {there}", "Report again, then send")


NOTE = "note"  # the kind of their events
PER_CLIENT, PER_RUN = 30, 120  # notes a minute that are written; of either, what is only information gets half
MINUTE = 60.0


@dataclass
class Minute:
    """A run's minute: when it began, what was written of whom, and what was left out."""

    began: float
    written: Counter[ClientId] = field(default_factory=Counter)
    left_out: Counter[ClientId] = field(default_factory=Counter)

    def admits(self, client: ClientId, level: Level) -> bool:
        """Whether one more may be written; counts it either way."""
        share = 2 if level is Level.INFO else 1
        admitted = self.written[client] < PER_CLIENT // share and self.written.total() < PER_RUN // share
        (self.written if admitted else self.left_out)[client] += 1
        return admitted


class Notebook:
    """Writes notes into the journal. Any number of threads; what is left out is reported when the minute is over."""

    def __init__(self, agent_service: AgentService) -> None:
        self.agent_service = agent_service
        self._lock = threading.Lock()
        self._minutes: dict[RunId, Minute] = {}

    def take(self, client: ClientId, notes: Iterable[tuple[OrderId, Note]]) -> None:
        """A client's notes on its own orders; those of orders that are gone with their runs are passed over.

        Raises IdentityRefused for an order that is not its own.
        """
        self.flush()
        for order, note in notes:
            try:
                row = self.agent_service.own(client, order)
            except NotFound:
                continue
            run = self.agent_service.run(row)
            if client not in run.roster:
                raise IdentityRefused(f"{client} takes no part in run {row.run}")
            if not self._over(run) and self._admitted(row, note):
                self._write(row.run, note, written_of(row))

    def overdue(self) -> bool:
        """Whether a minute is over in which something was left out. Asks nobody."""
        now = self.agent_service.clock.now()
        return any(minute.left_out and now >= minute.began + MINUTE for minute in tuple(self._minutes.values()))

    def flush(self) -> None:
        """End the minutes that are over, and say what was left out in them."""
        now = self.agent_service.clock.now()
        with self._lock:
            over = {run: minute for run, minute in self._minutes.items() if not 0 <= now - minute.began < MINUTE}
            self._minutes = {run: minute for run, minute in self._minutes.items() if run not in over}
        for run, minute in over.items():
            if minute.left_out:
                self._write(run, Note("left_out", {"count": minute.left_out.total()}), only(minute.left_out))

    def _over(self, run: RunRow) -> bool:
        """Whether a run has ended, and not just now: notes may come a little after the answers that ended it."""
        return run.status in FINAL and self.agent_service.clock.now() >= (run.ended or 0.0) + MINUTE

    def _admitted(self, row: OrderRow, note: Note) -> bool:
        with self._lock:
            minute = self._minutes.setdefault(row.run, Minute(self.agent_service.clock.now()))
            return minute.admits(row.client, note.level)

    def _write(self, run: RunId, note: Note, whose: dict[str, Plain]) -> None:
        self.agent_service.journal.event(run, NOTE, whose | note.data, self.agent_service.clock.now())
        self.agent_service.bell.ring(f"run:{run}")


def written_of(row: OrderRow) -> dict[str, Plain]:
    return {"client": row.client, "order": row.id, "cursor": row.cursor}


def only(left_out: Counter[ClientId]) -> dict[str, Plain]:
    return {"client": next(iter(left_out))} if len(left_out) == 1 else {}
