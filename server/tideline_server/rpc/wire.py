"""Between the wire and the kernel: messages, errors, and names of calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from tideline.archive.errors import TooLarge
from tideline.archive.layout import LIMITS
from tideline.core.errors import Malformed
from tideline.core.notes import Note
from tideline.core.run import Digest, OrderId, Role
from tideline.engine.audit.log import START, Tip
from tideline.engine.audit.witness import Seen
from tideline.engine.coordinator.enrolment import Applicant
from tideline.engine.model.access.spending import Spent
from tideline.engine.model.accounts import Keys, Session, ShownLedger
from tideline.engine.model.orders import Arrivals, Failure, Order, Reply
from tideline.engine.model.said.disclosed import Disclosed
from tideline.engine.model.said.stages import Stages
from tideline.engine.peers.sealing import sealed_in, sealed_out
from tideline_protos.v1 import federation_pb2 as pb

M = TypeVar("M")
log = structlog.get_logger()
SERVICE = "tideline.v1.Federation"
MAX_KIND, MAX_WORDS = 80, 2000  # of an error; gRPC drops a call whose trailing metadata exceed 8 KiB
MOST_NOTES = 32  # of one call
MOST_METRICS = 1000  # of a reply
MOST_FILES = LIMITS.parts + 1  # of a reply: its root, and the parts that a root may name
MOST_KEYS = 5000  # sealed keys of a reply, of each value one for each of its readers; with their signatures about a megabyte
MOST_FACTS = 1 << 20  # characters: a truth value and its name, and a network's tensors in words
MOST_ENTRIES = (1 << 31) - 1  # of a ledger that are counted
HASH = re.compile(r"[0-9a-f]{64}")
MOST_PROBED = 256 << 10  # bytes of a part that is only tried
# Of a message, looked at before it is parsed: what is parsed takes many times its bytes. One that names MOST_FILES has 700 KB.
MOST_BYTES: Mapping[type[Any], int] = {
    **dict.fromkeys(
        (pb.HelloRequest, pb.EnrolRequest, pb.RotateRequest, pb.OrdersRequest, pb.SendNotesRequest, pb.BeatRequest), 64 << 10
    ),
    **dict.fromkeys((pb.FetchRequest, pb.PushHead, pb.TicketRequest, pb.ReportRequest, pb.PollRequest), 1 << 20),
    pb.ProbeRequest: MOST_PROBED + 1024,
}
Context = Any  # grpc.aio.ServicerContext, whose stubs are untyped, or what looks like one
Unary = Callable[[bytes, Context], Coroutine[Any, Any, Message]]  # a call with one message and one reply


def method(name: str) -> str:
    """A call's full name, as it is signed."""
    return f"/{SERVICE}/{name}"


def serialize(message: Message) -> bytes:
    """A message as it is sent."""
    content: bytes = message.SerializeToString()
    return content


def parsed(kind: type[M], request: bytes) -> M:
    """A request's message. Raises Malformed, TooLarge."""
    made: Any = kind()
    few(len(request), MOST_BYTES[kind], f"bytes of one {kind.__name__}")
    try:
        made.ParseFromString(request)
    except DecodeError:
        name = kind.__name__
        raise Malformed(f"The request is no {name}", "Install the same version on both ends") from None
    return made  # type: ignore[no-any-return]


def few(count: int, most: int, what: str) -> None:
    if count > most:
        raise TooLarge(f"{count} {what} come at once; at most {most} may", "Send fewer")


def announced(first: bytes) -> tuple[OrderId, Arrivals]:
    """What a push says that it brings. Raises Malformed, TooLarge."""
    few(len(first), MOST_BYTES[pb.PushHead], "bytes of one PushHead")
    try:
        head = pb.PushHead.FromString(first)
    except DecodeError:
        head = pb.PushHead()
    if not head.order or not head.parts:
        raise Malformed("The call does not say which parts it brings", "Send a PushHead first")
    return OrderId(head.order), arrivals_in(head.parts)


def arrivals_in(parts: Sequence[pb.Arrival]) -> Arrivals:
    """Parts and where they begin, from the wire. Raises TooLarge."""
    few(len(parts), MOST_FILES, "parts")
    return tuple((Digest(p.digest), int(p.size), int(p.offset)) for p in parts)


def applicant_in(request: pb.EnrolRequest, keys: Keys, session: Session, signed_ms: int) -> Applicant:
    """Who enrols, from the wire. Of roles one more than there are is taken up: somewhere among them is one that is refused."""
    return Applicant(
        name=request.name,
        roles=tuple(request.roles[: len(Role) + 1]),
        version=request.version,
        keys=keys,
        session=session,
        signed=signed_ms / 1000,
        device=request.device,
    )


def seen_in(message: pb.Seen) -> Seen:
    return Seen(message.seq, message.hash, message.proof)


def seen_out(seen: Seen) -> pb.Seen:
    return pb.Seen(seq=seen.seq, hash=seen.hash, proof=seen.proof)


def entry_in(message: pb.LedgerEntry) -> Tip:
    """An entry of a ledger; the beginning for what cannot be one. Without a hash: there is none of that number."""
    odd = not 0 < message.number <= MOST_ENTRIES or not (not message.hash or HASH.fullmatch(message.hash))
    return Tip() if odd else Tip(message.number, message.hash)


def entry_out(tip: Tip) -> pb.LedgerEntry:
    return pb.LedgerEntry(number=tip.seq, hash="" if tip.hash == START else tip.hash)


def shown_in(request: pb.OrdersRequest) -> ShownLedger:
    return ShownLedger(entry_in(request.ledger), entry_in(request.reported), request.reported.accepted)


def order_out(order: Order) -> pb.Order:
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
        sealed=[sealed_out(each, pb.Sealed()) for each in order.sealed],
    )


def wanted_in(request: pb.FetchRequest) -> list[tuple[Digest, int]]:
    few(len(request.parts), MOST_FILES, "parts")
    return [(Digest(part.digest), int(part.offset)) for part in request.parts]


def reply_in(raw: bytes) -> Reply:
    """A reply from the wire. Raises Malformed, TooLarge."""
    request = parsed(pb.ReportRequest, raw)
    few(len(request.files), MOST_FILES, "files")
    few(len(request.metrics), MOST_METRICS, "metrics")
    raw_failure = request.failure
    failure = Failure(raw_failure.kind[:MAX_KIND], raw_failure.what[:MAX_WORDS]) if request.HasField("failure") else None
    facts = facts_in(request.facts)
    files = tuple((Digest(f.digest), int(f.size)) for f in request.files)
    few(len(request.sealed), MOST_FILES, "sealed values")
    few(sum(max(len(each.keys), len(each.signatures)) for each in request.sealed), MOST_KEYS, "sealed keys")
    sealed = tuple(map(sealed_in, request.sealed))
    return Reply(
        order=OrderId(request.order),
        files=files,
        metrics=dict(request.metrics),
        facts=facts,
        failure=failure,
        sealed=sealed,
        ledger=entry_in(request.ledger),
        spent=spent_in(request.spent) if request.HasField("spent") else None,
        stages=stages_in(request.stages) if request.HasField("stages") else None,
        disclosed=disclosed_in(request.disclosed) if request.HasField("disclosed") else None,
    )


def spent_in(message: pb.Spent) -> Spent:
    """What a step took. An order's name that cannot be one is none."""
    named = len(message.order) <= MAX_KIND and message.order.isprintable()
    return Spent(
        gpu=message.gpu_seconds,
        cpu=message.cpu_seconds,
        devices=int(message.devices),
        cores=int(message.cores),
        order=OrderId(message.order if named else ""),
    )


def stages_in(message: pb.Stages) -> Stages:
    """How long ago a step began, whatever its site says."""
    return Stages(message.fetching, message.began, message.done)


def disclosed_in(message: pb.Disclosed) -> Disclosed | None:
    return Disclosed.of(message.policy, message.digest, message.data)


def notes_in(request: pb.SendNotesRequest) -> list[tuple[OrderId, Note]]:
    """Notes from the wire, each with its order. Raises Malformed for what is no note of a kind that is known here."""
    if len(request.notes) > MOST_NOTES:
        raise Malformed(f"{len(request.notes)} notes come at once; at most {MOST_NOTES} may", "Send them in several calls")
    return [(OrderId(raw.order), Note(raw.kind, dict(raw.numbers), dict(raw.words))) for raw in request.notes]


def facts_in(text: str) -> Mapping[str, Any]:
    """A reply's facts. Raises Malformed for anything but a small JSON object."""
    try:
        facts = json.loads(text or "{}") if len(text) <= MOST_FACTS else None
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise Malformed(
            f"The facts of a reply are no JSON object of at most {MOST_FACTS} characters", "Send an object, or nothing"
        )
    return facts
