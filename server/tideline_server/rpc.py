"""The agents' door: gRPC in, desk and office behind. It translates and holds no logic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from tideline.archive.intake import chunk_size
from tideline.core.errors import FederationError, IdentityRefused, Malformed, StorageFull, VersionRefused
from tideline.core.run import ClientId, Digest, OrderId
from tideline.engine.desk import Desk
from tideline.engine.office import Office
from tideline.engine.pipe import to_plain
from tideline.engine.rows import Arrivals, Failure, Order, Receipt, Reply
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.bell import LocalBell
from tideline_server.errors import code_of
from tideline_server.limits import UNLIMITED, Limits, address_of

T = TypeVar("T")
log = structlog.get_logger()
PROTOCOL = 1
MAX_MESSAGE = 64 << 20  # a reply that names half a million parts; a stranger's call is read before it is refused
MAX_WORDS = 2000  # of an error; gRPC drops a call whose trailing metadata exceed 8 KiB
TICK_SECONDS = 15.0
SERVICE = "tideline.v1.Federation"
SMALL_CHUNK = 1 << 19  # up to here, a change of threads costs more than the write

# Keepalive as agents need it behind proxies; gRPC's defaults end a quiet stream. No port is shared with another process.
# A small fixed window a stream, widened to a chunk when one is awaited: left to itself, gRPC buffers tens of MB for each of
# many agents that push at once. A chunk of 1 MiB in each round trip is 20 MB/s over a line of 50 ms.
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 17),
)

Context = Any  # grpc.aio.ServicerContext, whose stubs are untyped


class Door:
    """The service. Kernel calls block, so they run on threads."""

    def __init__(self, desk: Desk, office: Office, bell: LocalBell, version: str, limits: Limits = UNLIMITED) -> None:
        self.desk, self.office, self.bell, self.version, self.limits = desk, office, bell, version, limits
        self._threads = ThreadPoolExecutor(16, "door")
        # A report waits for the numeric worker, which may crunch for minutes: other calls must not stand behind it.
        self._reports = ThreadPoolExecutor(16, "report")
        self.closing = asyncio.Event()
        self._listening = 0  # agents that hear orders now, and so may all send or fetch at once

    async def run(self, call: Callable[..., T], *args: Any) -> T:
        """A kernel call, on a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)

    async def run_report(self, client: ClientId, reply: Reply) -> Receipt:
        """The kernel call that may take long."""
        return await asyncio.get_running_loop().run_in_executor(self._reports, self.desk.report, client, reply)

    async def client(self, context: Context) -> ClientId:
        """The client that the call's credential proves."""
        sent = dict(context.invocation_metadata())
        name, bearer = sent.get("tideline-client", ""), sent.get("authorization", "")
        if not name or not bearer.startswith("Bearer "):
            raise IdentityRefused("The call carries no credential", "Enrol this agent first")
        credential = bearer.removeprefix("Bearer ")
        client = self.office.proven(name, credential)
        return client if client is not None else await self.run(self.office.authenticate, name, credential)

    async def enrol(self, request: pb.EnrolRequest, context: Context) -> pb.EnrolReply:
        await self.limits.enrolment(address_of(context.peer()))
        if request.protocol != PROTOCOL:
            raise VersionRefused(
                f"The agent (tideline {request.version}) speaks protocol {request.protocol}; this coordinator"
                f" (tideline {self.version}) speaks {PROTOCOL}",
                "Install the same version on both ends",
            )
        roles = tuple(request.roles)
        client = await self.run(self.office.enrol, request.token, request.name, request.credential, roles, request.version)
        return pb.EnrolReply(name=client.name, protocol=PROTOCOL, version=self.version)

    async def orders(self, request: pb.OrdersRequest, context: Context) -> AsyncIterator[pb.OrderOrTick]:
        client = await self.client(context)
        self._listening += 1
        try:
            async for each in self.told(client):
                yield each
        finally:
            self._listening -= 1

    async def told(self, client: ClientId) -> AsyncIterator[pb.OrderOrTick]:
        """Each order as it comes, once, and again while the agent seems not to have it; and a tick now and then."""
        topic, sent = f"client:{client}", frozenset[OrderId]()
        while not self.closing.is_set():
            seen = self.bell.count(topic)
            offered, sent = await self.run(self.desk.news, client, sent)
            for order in offered:
                yield pb.OrderOrTick(order=order_out(order))
            if not await self.bell.moved(topic, seen, TICK_SECONDS):
                yield pb.OrderOrTick(tick=pb.Tick())

    async def fetch(self, request: pb.FetchRequest, context: Context) -> AsyncIterator[bytes]:
        client, order = await self.client(context), OrderId(request.order)
        wanted = [(Digest(part.digest), int(part.offset)) for part in request.parts]
        for chunk in await self.run(self.desk.fetch, client, order, wanted, self._listening):
            yield bytes(chunk)
            self.desk.sent(order, len(chunk))

    async def push(self, chunks: AsyncIterator[bytes], context: Context) -> pb.PushReply:
        client = await self.client(context)
        order, arrivals = announced(await anext(aiter(chunks), b""))
        intake = await self.run(self.desk.push, client, order, arrivals)
        try:
            await self.take(chunks, intake.write)
            await self.run(self.desk.received, client, order, intake)
        finally:
            await self.run(intake.close)
        return pb.PushReply()

    async def take(self, chunks: AsyncIterator[bytes], write: Callable[[bytes], None]) -> None:
        """Write each chunk while the next one arrives; a small one at once."""
        writing: asyncio.Future[None] | None = None
        try:
            async for chunk in chunks:
                if writing is not None:
                    await writing
                    writing = None
                if len(chunk) > SMALL_CHUNK:
                    writing = asyncio.ensure_future(self.run(write, chunk))
                else:
                    write(chunk)
        finally:
            if writing is not None:
                await writing

    async def report(self, request: pb.ReportRequest, context: Context) -> pb.Receipt:
        client = await self.client(context)
        reply = reply_in(request)
        receipt = await self.run_report(client, reply)
        sizes = dict(reply.files)
        lacking = sum(sizes[digest] - offset for digest, offset in receipt.missing)
        made = pb.Receipt(verdict=receipt.verdict, chunk=chunk_size(lacking, self._listening))
        made.missing.extend(pb.Missing(digest=d, offset=at) for d, at in receipt.missing)
        if receipt.error:
            made.error.CopyFrom(pb.Failure(kind=receipt.error.kind, what=receipt.error.what))
        return made

    async def beat(self, request: pb.BeatRequest, context: Context) -> pb.BeatReply:
        client = await self.client(context)
        # In this order of arguments, what is no number becomes 0.
        progress = {OrderId(order): max(0.0, min(share, 1.0)) for order, share in request.progress.items()}
        if not progress and self.desk.noted(client):
            return pb.BeatReply()  # the most frequent call of all: nothing to write, so no thread is asked
        return pb.BeatReply(gone=await self.run(self.desk.beat, client, progress))

    def close(self) -> None:
        """Let the streams end."""
        self.closing.set()

    def handler(self) -> Any:
        """The service as gRPC wants it. Fetch and Push pass raw bytes (see federation.proto)."""
        unary, down, up = (
            grpc.unary_unary_rpc_method_handler,
            grpc.unary_stream_rpc_method_handler,
            grpc.stream_unary_rpc_method_handler,
        )
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Enrol": unary(answered(self.enrol), pb.EnrolRequest.FromString, pb.EnrolReply.SerializeToString),
                "Orders": down(streamed(self.orders), pb.OrdersRequest.FromString, pb.OrderOrTick.SerializeToString),
                "Fetch": down(streamed(self.fetch), pb.FetchRequest.FromString, None),
                "Push": up(answered(self.push), None, pb.PushReply.SerializeToString),
                "Report": unary(answered(self.report), pb.ReportRequest.FromString, pb.Receipt.SerializeToString),
                "Beat": unary(answered(self.beat), pb.BeatRequest.FromString, pb.BeatReply.SerializeToString),
            },
        )


async def open_door(door: Door, address: str, tls: tuple[bytes, bytes] | None) -> Any:
    """A server at an address, started; over TLS where key and certificate are given."""
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((door.handler(),))
    if tls is None:
        server.add_insecure_port(address)
    else:
        server.add_secure_port(address, grpc.ssl_server_credentials([tls]))
    await server.start()
    return server


def answered(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call whose errors become a status and the error as trailing metadata."""

    async def safe(request: Any, context: Context) -> Any:
        try:
            return await call(request, context)
        except FederationError as error:
            await abort(context, error)

    return safe


def streamed(call: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    """The same for a call that streams its answer."""

    async def safe(request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async for each in call(request, context):
                yield each
        except FederationError as error:
            await abort(context, error)

    return safe


async def abort(context: Context, error: FederationError) -> None:
    """End a call with an error that the other end can rebuild."""
    if isinstance(error, StorageFull):
        log.warning("no_room", reason=str(error))
    told = json.dumps({k: v[:MAX_WORDS] for k, v in to_plain(error).items() if k != "context"}).encode()
    status = grpc.StatusCode[code_of(error).grpc]
    await context.abort(status, error.kind, trailing_metadata=(("tideline-error-bin", told),))


def announced(first: bytes) -> tuple[OrderId, Arrivals]:
    """What a push says that it brings. Raises Malformed."""
    try:
        head = pb.PushHead.FromString(first)
    except DecodeError:
        head = pb.PushHead()
    if not head.order or not head.parts:
        raise Malformed("The call does not say which parts it brings", "Send a PushHead first")
    return OrderId(head.order), tuple((Digest(p.digest), int(p.size), int(p.offset)) for p in head.parts)


def order_out(order: Order) -> pb.Order:
    """An order for the wire."""
    return pb.Order(
        id=order.id,
        run=order.run,
        cursor=order.cursor,
        phase=order.phase,
        step=order.step,
        round=order.round,
        files=[pb.File(digest=d, size=n) for d, n in order.files],
        seed=order.seed,
        after=order.after,
        seconds_left=order.seconds_left,
        brief=json.dumps(order.brief),
    )


def reply_in(request: pb.ReportRequest) -> Reply:
    """A reply from the wire."""
    failure = Failure(request.failure.kind, request.failure.what) if request.HasField("failure") else None
    facts = facts_in(request.facts)
    files = tuple((Digest(f.digest), int(f.size)) for f in request.files)
    return Reply(OrderId(request.order), files, dict(request.metrics), facts, failure)


def facts_in(text: str) -> Mapping[str, Any]:
    """A reply's facts. Raises Malformed for anything but a JSON object."""
    try:
        facts = json.loads(text or "{}")
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise Malformed("The facts of a reply are no JSON object", "Send an object, or nothing")
    return facts
