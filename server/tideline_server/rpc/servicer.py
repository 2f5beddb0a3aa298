"""The calls of agents. Each gets the request's bytes: they are proven first, and then parsed."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import grpc
import structlog

from tideline.archive.errors import TooLarge
from tideline.archive.parts import Intake, chunk_size
from tideline.core.errors import ClockRefused, IdentityRefused, TooMany, Unreachable
from tideline.core.run import ClientId, Digest, OrderId, RunId
from tideline.core.signing import OLDEST, PROTOCOL, fingerprint, handover_bytes, rotation_bytes
from tideline.engine.audit.entries import Refusals
from tideline.engine.coordinator.agent_service import AgentService, Notebook
from tideline.engine.coordinator.retention.heard import deleted_among
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.model.accounts import Client, Standing
from tideline.engine.model.orders import Arrivals, Hold
from tideline.engine.model.runs import MOST_QUIET, MOST_STORED
from tideline.engine.peers.sealing import ciphers
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.bell import LocalBell
from tideline_server.bulk.tickets import Lane
from tideline_server.clocks import Clocks
from tideline_server.limits import GRPC, HTTPS, UNLIMITED, Limits, Refusing, address_of, link_of
from tideline_server.rpc.announcing import Announcing
from tideline_server.rpc.callers import Callers, Rekeyed, keys_in, verified
from tideline_server.rpc.calls import Watch, moving, served, served_push, served_stream
from tideline_server.rpc.heartbeats import Beats, Heartbeats
from tideline_server.rpc.polling import Polling
from tideline_server.rpc.shares import Shares
from tideline_server.rpc.threshold import Connections, Threshold
from tideline_server.rpc.wire import (
    MOST_PROBED,
    SERVICE,
    Context,
    Unary,
    announced,
    applicant_in,
    arrivals_in,
    entry_out,
    notes_in,
    order_out,
    parsed,
    reply_in,
    seen_in,
    seen_out,
    serialize,
    shown_in,
    wanted_in,
)

log = structlog.get_logger()
Taken = tuple[list[bytes], Iterator[memoryview] | None]  # some bytes, and the rest, if there may be more
T = TypeVar("T")
TICK_SECONDS = 15.0
LOOKS = 3  # at a listening client's standing between two ticks
REPORTERS = 64  # reports that are worked at together
SMALL_REPORT = 1 << 16  # bytes that are parsed at once, on the loop
SMALL_FETCH = 1 << 16  # bytes that are read at once, if they are there
SMALL_CHUNK = 1 << 19  # up to here, a change of threads costs more than the write


class Servicer:
    """The gRPC service. Calls of the engine block, so they run on threads."""

    def __init__(
        self,
        agent_service: AgentService,
        run_service: RunService,
        bell: LocalBell,
        version: str,
        limits: Limits = UNLIMITED,
        certified: bool = False,
        watch: Watch = lambda *call: None,
        connections: Connections | None = None,
        lane: Lane | None = None,
    ) -> None:
        self.agent_service, self.run_service, self.bell = agent_service, run_service, bell
        self.version, self.limits, self.watch, self.lane = version, limits, watch, lane
        self._threads = ThreadPoolExecutor(16, "grpc")
        # A report waits for the numeric worker, which may crunch for minutes: other calls must not stand behind it.
        self._reports = ThreadPoolExecutor(REPORTERS, "report")
        self.callers = Callers(enrolment=run_service.enrolment, run=self.run, version=version, certified=certified, limits=limits)
        self.threshold, self.shares = Threshold(run_service.enrolment.knew, connections), Shares()
        self.notebook = Notebook(agent_service)
        self.clocks, self.announcing = Clocks(run_service.clock), Announcing(run_service.clock)
        refusals = {link: Refusals(agent_service.journal, run_service.clock, link) for link in (GRPC, HTTPS)}
        self.refusing = {link: Refusing(each, self.run) for link, each in refusals.items()}
        run_service.enrolment.noticed, run_service.enrolment.differing = note_double, note_ledger
        self.closing = asyncio.Event()
        self.living = Heartbeats(agent_service.write_living, self.run, self.closing)
        self.beats = Beats(self.agent_service.beat_all, self.run)
        self._listening = 0  # agents that hear orders now, and so may all send or fetch at once

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """A kernel call, on a thread, which logs as this call."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, contextvars.copy_context().run, call, *args)

    async def run_report(self, call: Callable[..., T], *args: Any) -> T:
        """What may take long of a report."""
        return await asyncio.get_running_loop().run_in_executor(self._reports, contextvars.copy_context().run, call, *args)

    async def caller(self, name: str, raw: bytes, context: Context) -> Client:
        """The client that a call proves to be. Who is refused stands in the audit log. Raises TooMany of one with many calls."""
        async with self.watched(dict(context.invocation_metadata()).get("tideline-client", ""), context):
            client = await self.callers.caller(name, raw, context)
        self.threshold.proven(self.shares.call(client.name))
        return client

    @asynccontextmanager
    async def watched(self, who: str, context: Context) -> AsyncIterator[None]:
        """Note a refusal. A wrong clock is none: the agent asks for the time, and is let in."""
        try:
            yield
        except ClockRefused:
            raise
        except (IdentityRefused, TooMany) as error:
            await self.refusing[link_of(context.peer())].note(str(who), address_of(context.peer()), error.what)
            raise

    def now_ms(self) -> int:
        return int(self.run_service.clock.now() * 1000)

    async def hello(self, raw: bytes, context: Context) -> pb.HelloReply:
        """Anybody may ask who we are; whether an agent can be let in, it finds out by itself."""
        await self.limits.greeting(address_of(context.peer()))
        parsed(pb.HelloRequest, raw)
        return pb.HelloReply(protocol=PROTOCOL, oldest=OLDEST, version=self.version, time_ms=self.now_ms())

    async def enrol(self, raw: bytes, context: Context) -> pb.EnrolReply:
        return await self.admit("Enrol", raw, context)

    async def check(self, raw: bytes, context: Context) -> pb.EnrolReply:
        return await self.admit("Check", raw, context)

    async def admit(self, call: str, raw: bytes, context: Context) -> pb.EnrolReply:
        """Enrol an agent, or check whether it would be enrolled."""
        await self.limits.enrolment(address_of(context.peer()))
        request = parsed(pb.EnrolRequest, raw)  # the key that has signed it stands in it
        enrolment = self.run_service.enrolment
        async with self.watched(request.name, context):
            keys, proof = self.callers.enrolling(request, raw, context, call)
            applicant = applicant_in(request, keys, proof.session, proof.time_ms)
            with suppress(Unreachable):  # while nobody is let in, an agent waits as if for approval
                await self.run(enrolment.witness.shown, seen_in(request.seen))
            if call == "Check" or enrolment.witness.closed:
                standing = await self.run(enrolment.would, request.token, applicant)
            else:
                standing = (await self.run(enrolment.admit, request.token, applicant)).standing.value
                self.threshold.proven(self.shares.call(ClientId(request.name)))
        reply = pb.EnrolReply(name=request.name, protocol=PROTOCOL, version=self.version, standing=standing)
        reply.oldest, reply.time_ms, reply.warning = OLDEST, self.now_ms(), "; ".join(enrolment.witness.warnings())
        if enrolment.witness.closed:
            reply.standing = Standing.PENDING
        reply.seen.CopyFrom(seen_out(enrolment.witness.seen))
        if self.agent_service.unwritten:  # what this agent reported before it was stopped may be among it
            await self.run(self.agent_service.write_living)
        reply.ledger.CopyFrom(entry_out(await self.run(enrolment.reported, request.name)))
        reply.announcement.CopyFrom(self.announcing.current().message)
        return reply

    async def rotate(self, raw: bytes, context: Context) -> pb.RotateReply:
        client = await self.caller("Rotate", raw, context)
        request = parsed(pb.RotateRequest, raw)
        keys = keys_in(request.sign_key, request.receive_key)
        signed = rotation_bytes(client.name, request.sign_key, request.receive_key)
        if not verified(keys.sign, request.signature, signed):
            raise IdentityRefused("The new keys are not signed by the new key", "Start the agent again")
        over = handover_bytes(client.name, request.sign_key, request.receive_key)
        if request.handover and not verified(client.sign_key, request.handover, over):
            raise IdentityRefused("The old key has not signed the new ones", "Start the agent again")
        await self.run(self.run_service.rekey, client, keys, request.handover.hex())
        log.info("keys_rotated", client=client.name, fingerprint=fingerprint(request.sign_key, request.receive_key))
        return pb.RotateReply()

    async def orders(self, raw: bytes, context: Context) -> AsyncGenerator[pb.OrderOrTick, None]:
        client = await self.caller("Orders", raw, context)
        await self.shown(client, parsed(pb.OrdersRequest, raw))
        try:
            with self.hearing(client) as over:
                async for each in self.order_stream(client, over):
                    yield each
        except Rekeyed:
            return  # the agent listens again, with its new keys

    async def shown(self, client: Client, asking: pb.OrdersRequest) -> None:
        """Take up what an agent shows when it begins to listen."""
        await self.run(self.run_service.enrolment.witness.shown, seen_in(asking.seen))
        if asking.HasField("ledger"):
            await self.run(self.run_service.enrolment.show_ledger, client.name, shown_in(asking))

    @contextmanager
    def hearing(self, client: Client) -> Iterator[asyncio.Event]:
        """An agent that hears orders; the event is set when that is to end."""
        self._listening += 1
        try:
            with self.shares.listening(client.name) as over:
                yield over
        finally:
            self._listening -= 1

    async def order_stream(self, client: Client, over: asyncio.Event) -> AsyncIterator[pb.OrderOrTick]:
        """Each order as it comes, once, and again while the agent seems not to have it; and a tick now and then, until `over`."""
        topic, sent = f"client:{client.name}", frozenset[OrderId]()
        ending = asyncio.ensure_future(over.wait())
        try:
            while not (self.closing.is_set() or ending.done()):
                seen = self.bell.count(topic)
                await self.callers.still(client)
                offered, sent = await self.run(self.agent_service.news, client.name, sent)
                for order in offered:
                    yield pb.OrderOrTick(order=order_out(order))
                if not await self.moved(client, topic, seen, ending):
                    yield pb.OrderOrTick(tick=pb.Tick())
        finally:
            ending.cancel()

    async def moved(self, client: Client, topic: str, seen: int, ending: asyncio.Future[Any]) -> bool:
        """Wait for the topic to ring or the stream to end, at most until the next tick. Raises as `Callers.still` does."""
        for _ in range(LOOKS):
            ringing = asyncio.ensure_future(self.bell.moved(topic, seen, TICK_SECONDS / LOOKS))
            try:
                await asyncio.wait({ringing, ending}, return_when=asyncio.FIRST_COMPLETED)
                if ending.done() or ringing.result():
                    return True
            finally:
                ringing.cancel()
            await self.callers.still(client)
        return False

    async def fetch(self, raw: bytes, context: Context) -> AsyncGenerator[bytes, None]:
        client = await self.caller("Fetch", raw, context)
        request = parsed(pb.FetchRequest, raw)
        order = OrderId(request.order)
        structlog.contextvars.bind_contextvars(order=order)
        async with self.shares.transfer(client.name):
            # A chunk may have to come from a disk or a bucket first, which must hold up nobody else.
            some, chunks = await self.run(self.fetched, client.name, order, wanted_in(request))
            while some:
                for chunk in some:
                    await self.callers.still(client)
                    yield chunk
                    self.agent_service.sent(order, len(chunk))
                some, chunks = await self.run(taken, chunks) if chunks is not None else ([], None)

    def fetched(self, client: ClientId, order: OrderId, wanted: Sequence[tuple[Digest, int]]) -> Taken:
        """The first bytes of a message, and the rest."""
        return taken(self.agent_service.fetch(client, order, wanted, self._listening))

    async def push(self, head: bytes, chunks: AsyncIterable[bytes], context: Context) -> pb.PushReply:
        client = await self.caller("Push", head, context)
        order, arrivals = announced(head)
        structlog.contextvars.bind_contextvars(order=order)
        async with self.shares.transfer(client.name):
            intake = await self.run(self.opened, client.name, order, arrivals)
            try:
                await self.take(client, moving(chunks), intake)
                await self.callers.still(client)
                await self.run(self.kept, client.name, order, intake)
            except BaseException:
                await self.run(intake.close)
                raise
        return pb.PushReply()

    def opened(self, client: ClientId, order: OrderId, arrivals: Arrivals) -> Intake:
        """Begin to take in a reply, its first part open: what is small is then written as it comes."""
        intake = self.agent_service.push(client, order, arrivals)
        try:
            intake.open()
        except BaseException:
            intake.close()
            raise
        return intake

    def kept(self, client: ClientId, order: OrderId, intake: Intake) -> None:
        """Keep what was pushed, and let go of it."""
        with intake:
            self.agent_service.received(client, order, intake)

    async def take(self, client: Client, chunks: AsyncIterator[bytes], intake: Intake) -> None:
        """Write each chunk while the next one arrives; at once a small one that goes on with a part: it waits for nothing."""
        writing: asyncio.Future[None] | None = None
        try:
            async for chunk in chunks:
                await self.callers.still(client)
                if writing is not None:
                    await writing
                    writing = None
                if len(chunk) <= min(SMALL_CHUNK, intake.room):
                    intake.write(chunk)
                else:
                    writing = asyncio.ensure_future(self.run(intake.write, chunk))
        finally:
            if writing is not None:
                await writing

    async def ticket(self, raw: bytes, context: Context) -> pb.TicketReply:
        client = await self.caller("Ticket", raw, context)
        request = parsed(pb.TicketRequest, raw)
        if self.lane is None:
            return pb.TicketReply()
        order, parts = OrderId(request.order), arrivals_in(request.parts)
        await self.run(self.agent_service.may_move, client.name, order, request.up, parts)
        return pb.TicketReply(ticket=self.lane.tickets.issue(client, order, request.up, parts), lane=self.lane.address)

    async def report(self, raw: bytes, context: Context) -> pb.Receipt:
        client = await self.caller("Report", raw, context)
        async with self.shares.report(client.name, len(raw)):  # parsed when it is its turn: what waits is as long as it came
            reply = await self.run_report(reply_in, raw) if len(raw) > SMALL_REPORT else reply_in(raw)
            structlog.contextvars.bind_contextvars(order=reply.order)
            receipt = await self.run_report(self.agent_service.report, client.name, reply)
        if self.agent_service.unwritten:
            self.living.write()
        sizes = dict((*reply.files, *ciphers(reply.sealed)))
        lacking = sum(sizes[digest] - offset for digest, offset in receipt.missing)
        reply_message = pb.Receipt(verdict=receipt.verdict, chunk=chunk_size(lacking, self._listening))
        reply_message.missing.extend(pb.Missing(digest=d, offset=at) for d, at in receipt.missing)
        if receipt.error:
            reply_message.error.CopyFrom(pb.Failure(kind=receipt.error.kind, what=receipt.error.what))
        return reply_message

    async def beat(self, raw: bytes, context: Context) -> pb.BeatReply:
        client = await self.caller("Beat", raw, context)
        if self.notebook.overdue():
            await self.run(self.notebook.flush)
        if self.agent_service.unreported.overdue(self.run_service.clock.now()):
            await self.run(self.agent_service.forget_ended)
        request = parsed(pb.BeatRequest, raw)
        self.clocks.heard(client.name, request.clock_ms)
        due = self.announcing.due(client.name, request.announced, request.declined)
        # In this order of arguments, what is no number becomes 0.
        progress = {OrderId(order): max(0.0, min(share, 1.0)) for order, share in request.progress.items()}
        if self.agent_service.lives(client.name):
            self.living.write()
        held = {OrderId(order): Hold(why) for order, why in request.held.items() if why in tuple(Hold)}
        quiet = [RunId(run) for run in request.quiet[:MOST_QUIET]]
        stored = [RunId(run) for run in request.stored[:MOST_STORED]]
        if not (progress or held or quiet or stored):  # the most frequent call: no thread is asked, and no database
            return pb.BeatReply(rotate=client.rotate, seen=self.seen(), announcement=due)
        deleted = await self.run(deleted_among, self.agent_service.journal, client, stored) if stored else ()
        over = await self.run(self.agent_service.over, client.name, quiet) if quiet else ()
        gone = list(await self.run(self.agent_service.hold, client.name, held) if held else ())
        gone += await self.beats.report(client.name, progress) if progress else ()
        return pb.BeatReply(gone=gone, rotate=client.rotate, seen=self.seen(), over=over, deleted=deleted, announcement=due)

    def seen(self) -> pb.Seen:
        """What the agent is to remember."""
        return seen_out(self.run_service.enrolment.witness.seen)

    async def send_notes(self, raw: bytes, context: Context) -> pb.SendNotesReply:
        client = await self.caller("SendNotes", raw, context)
        await self.run(self.notebook.take, client.name, notes_in(parsed(pb.SendNotesRequest, raw)))
        return pb.SendNotesReply()

    async def probe(self, raw: bytes, context: Context) -> pb.ProbeReply:
        client = await self.caller("Probe", raw, context)
        await self.limits.probe(client.name)
        request = parsed(pb.ProbeRequest, raw)
        if not 0 < len(request.data) <= MOST_PROBED:
            raise TooLarge(f"A probe of {len(request.data)} bytes; it may have 1 to {MOST_PROBED}", "Send fewer")
        data, seconds = await self.run(self.agent_service.part_store.probe, request.data)
        return pb.ProbeReply(data=data, seconds=seconds)

    @property
    def listening(self) -> int:
        return self._listening

    def close(self) -> None:
        self.closing.set()

    def unary(self) -> Mapping[str, Unary]:
        """The calls with one message and one reply, by name."""
        return {
            "Hello": self.hello,
            "Enrol": self.enrol,
            "Rotate": self.rotate,
            "Ticket": self.ticket,
            "Report": self.report,
            "Beat": self.beat,
            "SendNotes": self.send_notes,
            "Check": self.check,
            "Probe": self.probe,
            "Poll": Polling(self).poll,
        }

    def handler(self) -> grpc.GenericRpcHandler:
        """The service as gRPC wants it. Requests come as raw bytes, and so do the chunks of Fetch and Push.

        Each is a stream of messages to gRPC: of a call with one message, gRPC would read that before it asks us.
        """
        watch, threshold = self.watch, self.threshold
        up, down = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        handlers = {name: up(served(name, call, watch, threshold), None, serialize) for name, call in self.unary().items()}
        handlers["Orders"] = down(served_stream("Orders", self.orders, watch, threshold), None, serialize)
        handlers["Fetch"] = down(served_stream("Fetch", self.fetch, watch, threshold), None, None)
        handlers["Push"] = up(served_push("Push", self.push, watch, threshold), None, serialize)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)


def note_double(client: Client) -> None:
    log.warning("client_doubled", client=client.name, sessions=", ".join(client.doubles))


def note_ledger(client: Client) -> None:
    log.warning("ledger_differs", client=client.name, reported=client.ledger_entries, entries=client.ledger_now)


def taken(chunks: Iterator[memoryview]) -> Taken:
    """The next chunk, or some small ones: a small message takes one change of threads."""
    some: list[bytes] = []
    for chunk in chunks:
        some.append(bytes(chunk))
        if sum(map(len, some)) >= SMALL_FETCH:
            return some, chunks
    return some, None
