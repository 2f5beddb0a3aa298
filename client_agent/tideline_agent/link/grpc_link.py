"""The agent's line to the desk over gRPC. Outages are waited out with growing, jittered pauses; nothing is lost by them."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import tenacity

from tideline import __version__
from tideline.archive.intake import MAX_CHUNK, Intake, chunk_size, chunks, commit
from tideline.archive.parts import Parts
from tideline.core.errors import Cancelled, FederationError, IdentityRefused, StorageFull, Unreachable
from tideline.core.run import Digest, OrderId, RunId
from tideline.engine.pipe import from_plain
from tideline.engine.rows import Arrivals, Failure, Files, Order, Receipt, Reply
from tideline_agent.link.lines import Line, Lines
from tideline_protos.v1 import federation_pb2 as pb

T = TypeVar("T")
Away = Callable[[BaseException | None], None]
FULL_SECONDS = 5.0  # pause before bytes are offered again to a coordinator without room
CUT_SECONDS = 0.5  # pause before they are offered again after a cut
PROTOCOL = 1
SILENCE_SECONDS = 45.0  # the coordinator ticks every 15; three missed ticks mean that the line is dead
CALL_SECONDS = 30.0
MAX_WORDS = 10_000
REPORT_SECONDS = 3600.0  # a report may wait while the coordinator crunches another run
AWAY = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
)


def quietly(error: BaseException | None) -> None:
    """Nobody is told of an outage."""


class FullThere(Unreachable):
    """The coordinator has no room. Like an outage, it is waited out: nothing was acknowledged, nothing is lost."""


class GrpcLink:
    """The port Link, and what else an agent says: enrol, orders, beat. `stop` ends every wait.

    What one of the coordinators does not answer is asked of the next.
    """

    def __init__(
        self, addresses: Sequence[str], name: str, credential: str, ca: Path | None, stop: threading.Event, away: Away = quietly
    ) -> None:
        self.name, self.stop = name, stop
        self._lines = Lines(addresses, name, ca)
        self._chunk = 0
        self._away: Away = lambda error: None if stop.is_set() else away(error)
        self._credential = credential
        self._metadata = (("tideline-client", name), ("authorization", f"Bearer {credential}"))

    def enrol(self, token: str, roles: tuple[str, ...]) -> pb.EnrolReply:
        """Enrol, or come back. One try. Raises Unreachable, IdentityRefused, VersionRefused."""
        request = pb.EnrolRequest(
            protocol=PROTOCOL, token=token, name=self.name, credential=self._credential, roles=roles, version=__version__
        )
        reply: pb.EnrolReply = self._ask(lambda line: line.enrol(request, timeout=CALL_SECONDS))
        return reply

    def orders(self) -> Iterator[Order]:
        """Open orders as they come, over as many connections as it takes, until `stop`. Raises IdentityRefused."""
        while not self.stop.is_set():
            line, stream, first = self._listen()
            try:
                with Watchdog(stream.cancel, SILENCE_SECONDS) as alive:
                    for each in itertools.chain([first], self._told(line, stream)):
                        alive.reset()
                        if each.HasField("order"):
                            yield order_in(each.order)
            except Unreachable as error:
                self._away(error)
            self.stop.wait(0.2)

    def _listen(self) -> tuple[Line, Any, pb.OrderOrTick]:
        """A stream of orders, its line, and the first thing that came over it, however long that takes."""
        for attempt in self._retrying():
            with attempt:
                line = self._lines.now
                stream = line.orders(pb.OrdersRequest(), metadata=self._metadata)
                with Watchdog(stream.cancel, SILENCE_SECONDS):
                    for first in self._told(line, stream):
                        return line, stream, first
                self._lines.leave(line)
                raise Unreachable(f"{line.address} hung up", "It may be restarting")
        raise Cancelled("The agent is stopping")

    def fetch(self, order: Order, files: Files, parts: Parts) -> None:
        for attempt in self._retrying():
            with attempt:
                lacking = [(digest, size) for digest, size in files if not parts.has(digest)]
                wanted = [pb.Wanted(digest=digest, offset=parts.arrived(digest)) for digest, _ in lacking]
                line = self._lines.now
                stream = line.fetch(pb.FetchRequest(order=order.id, parts=wanted), metadata=self._metadata)
                with Intake(lacking, parts.upload, commit) as intake:
                    for chunk in self._told(line, stream):
                        intake.write(chunk)
                    intake.end()

    def push(self, order: Order, arrivals: Arrivals, parts: Parts) -> None:
        """One try: after a cut, or where the coordinator has no room, the next report says where to go on."""
        for digest, _, _ in arrivals:
            parts.size(digest)  # here, and not on the thread that sends, where an error would read as a cut
        sent = (bytes(each) for each in push_stream(order, arrivals, parts, self._chunk))
        try:
            self._ask(lambda line: line.push(sent, metadata=self._metadata))
        except Unreachable as error:
            self._away(error)
            self._pause(FULL_SECONDS if isinstance(error, FullThere) else CUT_SECONDS)
            raise

    def report(self, order: Order, reply: Reply) -> Receipt:
        request = reply_out(reply)
        for attempt in self._retrying():
            with attempt:
                raw = self._ask(lambda line: line.report(request, metadata=self._metadata, timeout=REPORT_SECONDS))
                self._chunk = min(raw.chunk, MAX_CHUNK)
                return receipt_in(raw)
        raise Cancelled("The agent is stopping")

    def beat(self, progress: Mapping[OrderId, float]) -> tuple[OrderId, ...]:
        """One sign of life, one try. Gives the orders to give up."""
        request = pb.BeatRequest(progress={str(k): v for k, v in progress.items()})
        reply = self._ask(lambda line: line.beat(request, metadata=self._metadata, timeout=CALL_SECONDS))
        return tuple(OrderId(gone) for gone in reply.gone)

    def close(self) -> None:
        """End every call."""
        self.stop.set()
        self._lines.close()

    def _ask(self, call: Callable[[Line], T], line: Line | None = None) -> T:
        """A call's answer. Where the other end is away, the next call goes to another."""
        line = line or self._lines.now
        try:
            return told(lambda: call(line), line.address)
        except FullThere:
            raise
        except Unreachable:
            self._lines.leave(line)
            raise

    def _told(self, line: Line, stream: Iterator[T]) -> Iterator[T]:
        """A stream whose errors are ours."""
        iterator = iter(stream)
        while True:
            try:
                each = self._ask(lambda line: next(iterator), line)
            except StopIteration:
                return
            yield each

    def _pause(self, seconds: float) -> None:
        """Wait, unless the agent is stopping."""
        self.stop.wait(seconds)

    def _retrying(self) -> tenacity.Retrying:
        """Tries while the other end is away, until `stop`; pauses grow to ten seconds and are jittered."""
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Unreachable),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=10.0),
            stop=tenacity.stop_when_event_set(self.stop),
            sleep=self._pause,
            before_sleep=lambda state: self._away(state.outcome.exception() if state.outcome else None),
            reraise=True,
        )


class Watchdog:
    """Calls `bark` when `reset` was not called for so many seconds."""

    def __init__(self, bark: Callable[[], Any], seconds: float) -> None:
        self._bark, self._seconds = bark, seconds
        self._fed = threading.Event()
        self._done = False

    def __enter__(self) -> Watchdog:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def reset(self) -> None:
        """Somebody is alive."""
        self._fed.set()

    def __exit__(self, *args: object) -> None:
        self._done = True
        self._fed.set()
        self._thread.join()

    def _watch(self) -> None:
        while self._fed.wait(self._seconds):
            if self._done:
                return
            self._fed.clear()
        self._bark()


def told(call: Callable[[], T], address: str) -> T:
    """A call's answer; its errors as ours. Raises Unreachable where the other end is away."""
    try:
        return call()
    except grpc.RpcError as error:
        raise ours(error, address) from None
    except ValueError as error:  # a channel that was closed under the call
        raise Unreachable(f"The line to {address} is closed: {error}", "The agent is stopping") from None


def ours(error: Any, address: str) -> FederationError:
    """The FederationError that a gRPC error carries, or what its status means."""
    for key, value in error.trailing_metadata() or ():
        if key == "tideline-error-bin":
            there = from_plain(json.loads(value))
            return FullThere(there.what, there.todo) if isinstance(there, StorageFull) else there
    if error.code() in AWAY:
        return Unreachable(f"{address} does not answer: {error.details()}", "Check the address and that the coordinator runs")
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return IdentityRefused(f"{address} is no Tideline coordinator", "Give the address of its agents' door (gRPC)")
    return FederationError(f"{address} answered {error.code().name}: {error.details()}", "See the coordinator's log")


def order_in(raw: pb.Order) -> Order:
    """An order from the wire."""
    files = tuple((Digest(f.digest), int(f.size)) for f in raw.files)
    brief = json.loads(raw.brief)
    place = (raw.cursor, raw.phase, raw.step, raw.round)
    return Order(OrderId(raw.id), RunId(raw.run), *place, files, raw.seed, raw.after, raw.seconds_left, brief)


def push_stream(order: Order, arrivals: Arrivals, parts: Parts, chunk: int = 0) -> Iterator[bytes | memoryview]:
    """What a push sends: what it brings, then the bytes. chunk: as many at once as the coordinator wishes; 0: as seems good."""
    head = pb.PushHead(order=order.id)
    head.parts.extend(pb.Arrival(digest=digest, size=size, offset=offset) for digest, size, offset in arrivals)
    yield head.SerializeToString()
    total = sum(size - offset for _, size, offset in arrivals)
    yield from chunks(parts, [(digest, offset) for digest, _, offset in arrivals], chunk or chunk_size(total))


def reply_out(reply: Reply) -> pb.ReportRequest:
    """A reply for the wire."""
    made = pb.ReportRequest(order=reply.order, metrics=dict(reply.metrics), facts=json.dumps(dict(reply.facts)))
    made.files.extend(pb.File(digest=d, size=n) for d, n in reply.files)
    if reply.failure:
        made.failure.CopyFrom(pb.Failure(kind=reply.failure.kind, what=sendable(reply.failure.what)))
    return made


def receipt_in(raw: pb.Receipt) -> Receipt:
    """A receipt from the wire."""
    error = Failure(raw.error.kind, raw.error.what) if raw.HasField("error") else None
    return Receipt(raw.verdict, tuple((Digest(m.digest), int(m.offset)) for m in raw.missing), error)


def sendable(words: str) -> str:
    """Words as the wire takes them: a file's name need not be UTF-8, and a message of megabytes helps nobody."""
    return words[:MAX_WORDS].encode(errors="replace").decode()
