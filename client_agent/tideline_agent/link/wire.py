"""Orders, replies and parts as messages, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tideline.archive.parts import Parts, chunk_size, chunks
from tideline.core.notes import Note
from tideline.core.run import Digest, OrderId, RunId
from tideline.engine.audit.log import START, Tip
from tideline.engine.audit.witness import Seen
from tideline.engine.model.access.spending import Spent
from tideline.engine.model.brief import MOST_BRIEF
from tideline.engine.model.orders import Arrivals, Failure, Order, Receipt, Reply
from tideline.engine.peers.sealing import sealed_in, sealed_out
from tideline_protos.v1 import federation_pb2 as pb

MAX_WORDS = 10_000
MOST_HASH = 64


def seen_in(raw: pb.Seen) -> Seen:
    return Seen(raw.seq, raw.hash, raw.proof)


def seen_out(seen: Seen) -> pb.Seen:
    return pb.Seen(seq=seen.seq, hash=seen.hash, proof=seen.proof)


def reported_in(raw: pb.LedgerEntry) -> Tip:
    """The entry of the own ledger that was reported to a coordinator; the beginning where it names none."""
    return Tip(raw.number, raw.hash[:MOST_HASH]) if raw.number and raw.hash else Tip()


def entry_out(tip: Tip, accepted: bool = False) -> pb.LedgerEntry:
    return pb.LedgerEntry(number=tip.seq, hash="" if tip.hash == START else tip.hash, accepted=accepted)


def order_in(raw: pb.Order) -> Order:
    files = tuple((Digest(f.digest), int(f.size)) for f in raw.files)
    brief = brief_in(raw.brief)
    place = (raw.cursor, raw.phase, raw.step, raw.round)
    sealed = tuple(map(sealed_in, raw.sealed))
    return Order(OrderId(raw.id), RunId(raw.run), *place, files, raw.seed, raw.after, raw.seconds_left, brief, sealed)


def brief_in(text: str) -> Mapping[str, Any]:
    """What an order says of its run. Where that is no JSON object it is empty: the agent answers what it does not understand."""
    try:
        brief = json.loads(text) if len(text) <= MOST_BRIEF else None
    except (ValueError, RecursionError):
        brief = None
    return brief if isinstance(brief, dict) else {}


def push_head(order: Order, arrivals: Arrivals) -> bytes:
    """What a push says first: what it brings. This is what is signed of it."""
    head = pb.PushHead(order=order.id)
    head.parts.extend(pb.Arrival(digest=digest, size=size, offset=offset) for digest, size, offset in arrivals)
    return head.SerializeToString()


def ticket_request(order: Order, up: bool, arrivals: Arrivals) -> pb.TicketRequest:
    made = pb.TicketRequest(order=order.id, up=up)
    made.parts.extend(pb.Arrival(digest=digest, size=size, offset=offset) for digest, size, offset in arrivals)
    return made


def push_chunks(arrivals: Arrivals, parts: Parts, chunk: int = 0) -> Iterator[memoryview]:
    """The bytes that follow. chunk: as many at once as the coordinator wishes; 0: as seems good."""
    total = sum(size - offset for _, size, offset in arrivals)
    yield from chunks(parts, [(digest, offset) for digest, _, offset in arrivals], chunk or chunk_size(total))


def reply_out(reply: Reply) -> pb.ReportRequest:
    made = pb.ReportRequest(order=reply.order, metrics=dict(reply.metrics), facts=json.dumps(dict(reply.facts)))
    made.files.extend(pb.File(digest=d, size=n) for d, n in reply.files)
    made.sealed.extend(sealed_out(each, pb.Sealed()) for each in reply.sealed)
    if reply.ledger.seq:
        made.ledger.CopyFrom(entry_out(reply.ledger))
    if reply.spent is not None:
        made.spent.CopyFrom(spent_out(reply.spent))
    if reply.stages is not None:
        made.stages.CopyFrom(pb.Stages(**vars(reply.stages)))
    if reply.disclosed is not None:
        made.disclosed.CopyFrom(pb.Disclosed(**vars(reply.disclosed)))
    if reply.failure:
        made.failure.CopyFrom(pb.Failure(kind=reply.failure.kind, what=sendable(reply.failure.what)))
    return made


def spent_out(spent: Spent) -> pb.Spent:
    return pb.Spent(gpu_seconds=spent.gpu, cpu_seconds=spent.cpu, devices=spent.devices, cores=spent.cores, order=spent.order)


def receipt_in(raw: pb.Receipt) -> Receipt:
    error = Failure(raw.error.kind, raw.error.what) if raw.HasField("error") else None
    return Receipt(raw.verdict, tuple((Digest(m.digest), int(m.offset)) for m in raw.missing), error)


def notes_out(notes: Sequence[tuple[OrderId, Note]]) -> pb.SendNotesRequest:
    made = pb.SendNotesRequest()
    made.notes.extend(pb.Note(order=o, kind=n.kind, numbers=dict(n.numbers), words=dict(n.words)) for o, n in notes)
    return made


def sendable(words: str) -> str:
    """Words as the wire takes them: a file's name need not be UTF-8, and a message of megabytes helps nobody."""
    return words[:MAX_WORDS].encode(errors="replace").decode()
