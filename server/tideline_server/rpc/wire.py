"""Between the wire and the kernel: messages, errors, and names of calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import grpc
import structlog
from google.protobuf.message import DecodeError

from tideline.core.errors import FederationError, Malformed, StorageFull
from tideline.core.notes import Note
from tideline.core.run import Digest, OrderId, Role
from tideline.engine.enrolment import Applicant
from tideline.engine.pipe import to_plain
from tideline.engine.rows import Arrivals, Failure, Keys, Order, Reply
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.errors import code_of

M = TypeVar("M")
log = structlog.get_logger()
SERVICE = "tideline.v1.Federation"
MAX_KIND, MAX_WORDS = 80, 2000  # of an error; gRPC drops a call whose trailing metadata exceed 8 KiB
MOST_NOTES = 32  # of one call
Context = Any  # grpc.aio.ServicerContext, whose stubs are untyped


def method(name: str) -> str:
    """A call's full name, as it is signed."""
    return f"/{SERVICE}/{name}"


def parsed(kind: type[M], request: bytes) -> M:
    """A request's message. Raises Malformed."""
    made: Any = kind()
    try:
        made.ParseFromString(request)
    except DecodeError:
        name = kind.__name__
        raise Malformed(f"The request is no {name}", "Install the same version on both ends") from None
    return made  # type: ignore[no-any-return]


def answered(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call whose errors become a status and the error as trailing metadata."""

    async def safe(request: Any, context: Context) -> Any:
        begin_log(call, context)
        try:
            return await call(request, context)
        except FederationError as error:
            await abort(context, error)

    return safe


def streamed(call: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    """The same for a call that streams its answer."""

    async def safe(request: Any, context: Context) -> AsyncIterator[Any]:
        begin_log(call, context)
        try:
            async for each in call(request, context):
                yield each
        except FederationError as error:
            await abort(context, error)

    return safe


def begin_log(call: Callable[..., Any], context: Context) -> None:
    """Bind to this call's log lines what it is and who says that he makes it. Each call has a task of its own."""
    client = str(dict(context.invocation_metadata() or ()).get("tideline-client", ""))[:MAX_KIND]
    structlog.contextvars.bind_contextvars(call=call.__name__, **({"client": client} if client else {}))


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


def applicant_in(request: pb.EnrolRequest, keys: Keys | None) -> Applicant:
    """Who enrols, from the wire. Of roles one more than there are is taken up: somewhere among them is one that is refused."""
    return Applicant(request.name, tuple(request.roles[: len(Role) + 1]), request.version, request.credential, keys)


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
    told = request.failure
    failure = Failure(told.kind[:MAX_KIND], told.what[:MAX_WORDS]) if request.HasField("failure") else None
    facts = facts_in(request.facts)
    files = tuple((Digest(f.digest), int(f.size)) for f in request.files)
    return Reply(OrderId(request.order), files, dict(request.metrics), facts, failure)


def notes_in(request: pb.TellRequest) -> list[tuple[OrderId, Note]]:
    """Notes from the wire, each with its order. Raises Malformed for what is no note of a kind that is known here."""
    if len(request.notes) > MOST_NOTES:
        raise Malformed(f"{len(request.notes)} notes come at once; at most {MOST_NOTES} may", "Send them in several calls")
    return [(OrderId(raw.order), Note(raw.kind, dict(raw.numbers), dict(raw.words))) for raw in request.notes]


def facts_in(text: str) -> Mapping[str, Any]:
    """A reply's facts. Raises Malformed for anything but a JSON object."""
    try:
        facts = json.loads(text or "{}")
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise Malformed("The facts of a reply are no JSON object", "Send an object, or nothing")
    return facts
