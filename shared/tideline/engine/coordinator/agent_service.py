"""What agents ask of the coordinator. Every call names the client that its signature proved."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import Executor

from tideline.archive.errors import NotFinite, PartMismatch, PartMissing, TooLarge, Undeclared
from tideline.archive.intake import MAX_PART_BYTES, STREAMS, Intake, chunk_size, chunks
from tideline.archive.layout import named_handles, named_parts, parse
from tideline.archive.parts import Upload
from tideline.core.errors import FederationError, IdentityRefused, Malformed, NotFound, Stale
from tideline.core.run import ClientId, Digest, OrderId
from tideline.engine.coordinator.briefs import brief_of, with_peers
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.model.compute import CheckRequest
from tideline.engine.model.files import Arrivals
from tideline.engine.model.orders import Failure, Order, OrderRow, OrderStatus, Receipt, Reply
from tideline.engine.model.runs import JOIN, RunRow
from tideline.engine.peers.relay import check_envelopes, for_one, seals
from tideline.engine.peers.sealing import ciphers
from tideline.engine.ports.clock import Bell, Clock
from tideline.engine.ports.compute import Compute
from tideline.engine.ports.journal import Journal
from tideline.engine.ports.meter import SILENT, Meter

SILENT_SECONDS = 30.0  # ten beats of an agent that lives
MOST_ORDERS = 10_000  # whose bytes are counted at once
SEEN_SECONDS = 30.0  # a client's signs of life are written no more often than this


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
    ) -> None:
        self.journal, self.part_store, self.compute, self.bell, self.clock = journal, part_store, compute, bell, clock
        self.version, self._later, self.meter = version, later, meter
        self._lock = threading.Lock()
        self._down: Counter[OrderId] = Counter()
        self._up: Counter[OrderId] = Counter()
        self._seen: dict[ClientId, float] = {}
        self._living: set[ClientId] = set()  # of whom that is not written yet

    def orders(self, client: ClientId) -> tuple[Order, ...]:
        """The client's open orders. The same order may be offered any number of times."""
        return self.news(client, frozenset())[0]

    def news(self, client: ClientId, told: Set[OrderId]) -> tuple[tuple[Order, ...], frozenset[OrderId]]:
        """The open orders of which a client has not been told, or has said nothing for a while: it may have lost one.

        And the names of all that are open, which is what it has been told of then.
        """
        silent = self.clock.now() - SILENT_SECONDS
        rows = self.journal.open_orders(client)
        offered = tuple(self.offer(row) for row in rows if row.id not in told or max(row.beat, row.created) < silent)
        return offered, frozenset(row.id for row in rows)

    def offer(self, row: OrderRow) -> Order:
        """An order as the agent sees it: seconds left instead of times, and only what concerns this client."""
        run = self.run(row)
        fact = run.plan[row.cursor] if row.cursor >= 0 else None
        names = (fact.phase, fact.step, fact.round) if fact else ("join", "join", 1)
        left = max(run.deadline_at - self.clock.now(), 0.0)
        brief = brief_of(run, run.roster[row.client], self.version)
        if seals(run.contract):
            brief = with_peers(brief, (each for each in self.journal.clients() if each.name in run.roster))
        sealed = tuple(for_one(each, row.client) for each in self.journal.envelopes(row.run, row.sealed)) if row.sealed else ()
        return Order(row.id, row.run, row.cursor, *names, row.files, row.seed, row.after, left, brief, sealed)

    def fetch(
        self, client: ClientId, order: OrderId, wanted: Sequence[tuple[Digest, int]], streams: int = STREAMS
    ) -> Iterator[memoryview]:
        """The bytes of parts from offsets on. A digest alone opens nothing: one of the client's own open orders must name it.

        streams: how many such calls there may be at once.
        """
        row = self.open(client, order)
        sizes = dict((*row.files, *ciphers(self.journal.envelopes(row.run, row.sealed) if row.sealed else ())))
        for digest, _ in wanted:
            if digest not in sizes:
                raise NotFound(f"Order {order[:8]} names no part {digest[:12]}")
        total = sum(sizes[digest] - offset for digest, offset in wanted)
        return chunks(self.part_store.parts, wanted, chunk_size(total, streams))

    def sent(self, order: OrderId, nbytes: int) -> None:
        """Count what went down."""
        with self._lock:
            count(self._down, order, nbytes)
        self.meter.sent(nbytes)

    def push(self, client: ClientId, order: OrderId, arrivals: Arrivals) -> Intake:
        """Begin, or go on with, taking in parts of a reply. Bytes from elsewhere than where ours end would spoil them."""
        run = self.open(client, order).run
        for _, size, _ in arrivals:
            if not 0 < size <= MAX_PART_BYTES:
                raise TooLarge(f"A part of {size} bytes is announced; the limit is {MAX_PART_BYTES}")
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
        run = self.own(client, order).run
        with self._lock:
            count(self._up, order, intake.came)
        self.part_store.keep(intake.whole, run, client)
        self.meter.received(intake.came)

    def report(self, client: ClientId, reply: Reply) -> Receipt:
        """Accept a reply or a failure; or say which parts are missing first, or why it is refused."""
        row = self.own(client, reply.order)
        receipt = self.judge(row, reply)
        verdict = "failed" if receipt.verdict == "accepted" and reply.failure else receipt.verdict
        self.meter.replied(self.run(row), row.cursor, verdict)
        return receipt

    def judge(self, row: OrderRow, reply: Reply) -> Receipt:
        """What is said to a reply, once what it comes to is written."""
        if row.status in (OrderStatus.ANSWERED, OrderStatus.FAILED, OrderStatus.CANCELLED):
            return Receipt("stale")
        if reply.failure is not None:
            return self.close(row, Reply(reply.order, failure=reply.failure), OrderStatus.FAILED)
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
            return self.refuse(row, reply, error)
        return self.close(row, reply, OrderStatus.ANSWERED)

    def missing(self, row: OrderRow, reply: Reply) -> tuple[tuple[Digest, int], ...]:
        """Which of a reply's files must be sent first."""
        return self.part_store.missing(tuple(dict.fromkeys((*reply.files, *ciphers(reply.sealed)))), row.run, row.client)

    def overtaken(self, row: OrderRow, reply: Reply) -> bool:
        """Whether the round has closed, or parts were collected, while the reply was checked: that is no fault of its own."""
        return self.own(row.client, row.id).status is not row.status or bool(self.missing(row, reply))

    def late(self, row: OrderRow, reply: Reply) -> Receipt:
        """A reply to a round that has closed: recorded without its message, which nobody will fold."""
        try:
            self.check_metrics(row, reply)
        except Malformed as error:
            return self.refuse(row, reply, error)
        return self.close(row, Reply(reply.order, metrics=reply.metrics), OrderStatus.ANSWERED)

    def check(self, row: OrderRow, reply: Reply) -> None:
        """The reply names exactly the files of its root, its root keeps the contract, and nothing else comes with it."""
        self.check_metrics(row, reply)
        if row.cursor == JOIN:
            more = reply.files or reply.sealed
            if more or set(reply.facts) != {"labelled"} or not isinstance(reply.facts["labelled"], bool):
                raise Undeclared("The answer to a join holds more than whether the site has labels")
            return
        if reply.facts:
            raise Undeclared("The reply to a step holds facts; they belong to the join")
        if not reply.files:
            raise PartMissing("The reply names no message")
        header, run = parse(self.part_store.parts.view(reply.files[0][0])), self.run(row)
        if [d for d, _ in named_parts(header)] != [d for d, _ in reply.files[1:]]:
            raise Undeclared("The reply's files are not those that its root names")
        for digest, size in (*reply.files, *ciphers(reply.sealed)):
            if self.part_store.parts.size(digest) != size:
                raise PartMismatch(f"Part {digest[:12]} has not the {size} bytes that the reply tells")
        if reply.sealed or named_handles(header):
            check_envelopes(row, run, reply, named_handles(header), self.journal.client(row.client))
        assert row.message is not None, "orders after the join have a message"
        self.compute.check(CheckRequest(run.spec, row.cursor, row.message, reply.files[0][0]))

    def check_metrics(self, row: OrderRow, reply: Reply) -> None:
        """Only finite metrics with a clause of their own are taken; a join has none."""
        run = self.run(row)
        phase, step = (run.plan[row.cursor].phase, run.plan[row.cursor].step) if row.cursor >= 0 else ("join", "join")
        declared = {c.field for c in run.contract if (c.phase, c.step) == (phase, step)} if row.cursor >= 0 else set()
        for name, value in reply.metrics.items():
            if f"metrics.{name}" not in declared:
                raise Undeclared(f"The metric {name!r} is not declared by the step {step}")
            if not math.isfinite(value):
                raise NotFinite(f"The metric {name} is {value}")

    def refuse(self, row: OrderRow, reply: Reply, error: FederationError) -> Receipt:
        """Record why a reply is no reply; the round lives on if the quorum does."""
        failure = Failure(error.kind, str(error))
        self.close(row, Reply(reply.order, failure=failure, refused=True), OrderStatus.FAILED)
        return Receipt("refused", error=failure)

    def close(self, row: OrderRow, reply: Reply, status: OrderStatus) -> Receipt:
        """Write the answer; ring for the run."""
        with self._lock:
            down, up = self._down[row.id], self._up[row.id]
        after = self.journal.answer(row.id, reply, status, self.clock.now(), down, up, self.part_store.parts.has)
        if after is None:
            return Receipt("missing", self.missing(row, reply))
        with self._lock:
            del self._down[row.id], self._up[row.id]
        self.bell.ring(f"run:{row.run}")
        return Receipt("accepted" if after is status else "late" if after is OrderStatus.EXPIRED else "stale")

    def beat(self, client: ClientId, progress: Mapping[OrderId, float]) -> tuple[OrderId, ...]:
        """Note how far a client's steps are; gives the orders that it should give up."""
        return self.journal.beat(client, progress, self.clock.now())

    def lives(self, client: ClientId) -> bool:
        """Remember that a client lives. Asks nobody; gives whether it should be written down now, with the others'."""
        now = self.clock.now()
        with self._lock:
            if not 0.0 <= now - self._seen.get(client, -math.inf) < SEEN_SECONDS:
                self._seen[client] = now
                self._living.add(client)
            return bool(self._living)

    def write_living(self) -> None:
        """Write down who lives: many in one transaction, as each one costs as much as a round's. What fails comes again."""
        with self._lock:
            living, self._living = self._living, set()
        try:
            self.journal.saw_all(living, self.clock.now())
        except Exception:
            with self._lock:
                self._living |= living
            raise

    def own(self, client: ClientId, order: OrderId) -> OrderRow:
        """The client's own order. Another client's is as unknown as one that does not exist."""
        row = self.journal.order(order)
        if row is None:
            raise NotFound(f"There is no order {order[:8]}", "It may belong to a run that was deleted")
        if row.client != client:
            raise IdentityRefused(f"Order {order[:8]} is not addressed to {client}")
        return row

    def open(self, client: ClientId, order: OrderId) -> OrderRow:
        """The client's own order, if it waits for an answer. Raises Stale."""
        row = self.own(client, order)
        if row.status is not OrderStatus.OPEN:
            raise Stale(f"Order {order[:8]} is {row.status.value}")
        return row

    def run(self, row: OrderRow) -> RunRow:
        """The order's run."""
        run = self.journal.run(row.run)
        assert run is not None, "orders refer to runs"
        return run


def count(tally: Counter[OrderId], order: OrderId, nbytes: int) -> None:
    """Count an order's bytes. Orders that were withdrawn are never settled: beyond so many, the oldest is forgotten."""
    tally[order] += nbytes
    if len(tally) > MOST_ORDERS:
        del tally[next(iter(tally))]


def elsewhere(digest: Digest, here: int, there: int) -> Stale:
    """The error for bytes that do not follow those that are here."""
    return Stale(f"Part {digest[:12]} is here up to {here}, and is sent from {there}", "Report again, then send")
