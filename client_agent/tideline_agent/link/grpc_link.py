"""The agent's line to the coordinator, over gRPC or HTTPS. It waits outages out, with growing, jittered pauses."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import grpc
import tenacity
from google.protobuf.message import Message

from tideline import __version__
from tideline.archive.errors import TooLarge
from tideline.archive.parts import MAX_CHUNK, MIN_CHUNK, Intake, Parts, commit
from tideline.core.errors import (
    Cancelled,
    ClockRefused,
    FederationError,
    IdentityRefused,
    StorageFull,
    Unreachable,
)
from tideline.core.notes import Note
from tideline.core.run import OrderId, RunId
from tideline.core.settings import EMPTY
from tideline.core.signing import PROTOCOL
from tideline.engine.audit.log import Tip
from tideline.engine.model.accounts import ShownLedger
from tideline.engine.model.orders import Arrivals, Files, Hold, Order, Receipt, Reply
from tideline.engine.model.runs import MOST_QUIET, MOST_STORED
from tideline_agent.home.identity import Keys
from tideline_agent.home.seen import SeenFile
from tideline_agent.link.bulk import Lane, LaneAway, LaneLine, Ticket
from tideline_agent.link.calls import CALL_SECONDS, hail, other_version, pause, translated
from tideline_agent.link.lines import SERVICE, Endpoints, Greeting, Lines, Transfers, Watchdog
from tideline_agent.link.opening import AnyLine, open_line
from tideline_agent.link.outcomes import FullThere, NotSpoken
from tideline_agent.link.polling import POLL_SECONDS, Polls
from tideline_agent.link.wire import (
    entry_out,
    notes_out,
    order_in,
    push_chunks,
    push_head,
    receipt_in,
    reply_out,
    reported_in,
    seen_in,
    seen_out,
    ticket_request,
)
from tideline_protos.v1 import federation_pb2 as pb

T = TypeVar("T")
Away = Callable[[BaseException | None], None]
Metadata = tuple[tuple[str, str], ...]
FULL_SECONDS = 5.0  # pause before bytes are offered again to a coordinator without room
SIGNINGS = 4  # of a call, where keys are swapped one after another
CUT_SECONDS = 0.5  # pause before they are offered again after a cut
KEEPING_SECONDS = 120.0  # in which a coordinator takes a chunk, or brings all of them to its disk
SILENCE_SECONDS = 45.0  # the coordinator ticks every 15; three missed ticks mean that the line is dead
NOTES_SECONDS = 10.0
REPORT_SECONDS = 3600.0  # a report may wait while the coordinator crunches another run


@dataclass(frozen=True)
class Beaten:
    """The answer to a sign of life: orders to give up, whether to make new keys, runs that are over, or deleted."""

    gone: tuple[OrderId, ...] = ()
    rotate: bool = False
    over: tuple[RunId, ...] = ()
    deleted: tuple[RunId, ...] = ()


class Hearing(Protocol):
    """Takes up what a coordinator announces."""

    @property
    def has(self) -> tuple[str, bool]:
        """The id of the last announcement that came, and whether it is declined."""
        ...

    def heard(self, announcement: pb.Announcement | None) -> None:
        """Called with each sign of life that was answered; None where nothing else is announced."""


class GrpcLink:
    """The port Link, and what else an agent says: enrol, rotate, orders, beat. `stop` ends every wait.

    What one of the coordinators does not answer is asked of the next, over what its address says: HOST:PORT is gRPC, and https://
    is HTTPS. Every call is signed by the agent's keys.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        name: str,
        keys: Keys,
        stop: threading.Event,
        away: Away = lambda error: None,
        seen: SeenFile | None = None,
        session: str = "",
        bulk: bool = True,
    ) -> None:
        self.name, self.stop, self._lane = name, stop, Lane(endpoints, bulk)
        self.endpoints = endpoints
        self._lines = Lines([open_line(each, endpoints) for each in endpoints.addresses], name)
        self._transfers = Transfers()
        self._chunk = 0
        self._away: Away = lambda error: None if stop.is_set() else away(error)
        self._keys, self._seen, self.session = keys, seen, session
        self._turning = threading.RLock()  # held while keys are rotated
        self.reported = Tip()  # the last entry of this site's ledger that was reported to the coordinator, by its own word
        self.ledger: Callable[[Tip], ShownLedger] | None = None  # how the ledger is shown to it
        self.hearing: Hearing | None = None  # who takes up what is announced
        self.device = ""  # what the site computes on, if its owner lets that be told

    @property
    def address(self) -> str:
        """That which is called now."""
        return self._lines.now.address

    @property
    def lost(self) -> threading.Event:
        """Set while nobody answers."""
        return self._lines.lost

    @property
    def keys(self) -> Keys:
        return self._keys

    def turn(self, endpoints: Endpoints, first: str = "") -> None:
        """Other endpoints, for calls that begin from now on; those under way go on. first: the address to call next."""
        same = replace(endpoints, addresses=()) == replace(self.endpoints, addresses=())
        there = {each.address: each for each in self._lines.all} if same else {}
        self._lines.turn([there.get(each) or open_line(each, endpoints) for each in endpoints.addresses], first)
        if not same:
            self._lane.renew(endpoints)
        self.endpoints = endpoints

    def enrol(self, token: str, roles: tuple[str, ...]) -> pb.EnrolReply:
        """Enrol, or come back. One try. Raises Unreachable, IdentityRefused, VersionRefused."""
        return self._apply("Enrol", token, roles)

    def check(self, token: str, roles: tuple[str, ...]) -> pb.EnrolReply:
        """What `enrol` would come to. Changes nothing, and uses no token up. Raises as it does, and NotSpoken."""
        return self._apply("Check", token, roles)

    def _apply(self, call: str, token: str, roles: tuple[str, ...]) -> pb.EnrolReply:
        request = pb.EnrolRequest(protocol=PROTOCOL, token=token, name=self.name, version=__version__, roles=roles)
        request.sign_key, request.receive_key = self._keys.public
        request.seen.CopyFrom(self._shown())
        request.device = self.device
        reply: pb.EnrolReply = self._ask(call, request, CALL_SECONDS)
        self._remember(reply.seen)
        if call == "Enrol" and self.hearing is not None:
            self.hearing.heard(reply.announcement if reply.HasField("announcement") else None)
        self.reported = reported_in(reply.ledger)
        return reply

    def _asking(self) -> pb.OrdersRequest:
        request = pb.OrdersRequest(seen=self._shown())
        if self.ledger is not None:
            shown = self.ledger(self.reported)
            request.ledger.CopyFrom(entry_out(shown.last))
            request.reported.CopyFrom(entry_out(shown.reported, shown.accepted))
        return request

    def _shown(self) -> pb.Seen:
        """What this agent remembers of the coordinators' witness."""
        return pb.Seen() if self._seen is None else seen_out(self._seen.seen)

    def _remember(self, given: pb.Seen) -> None:
        if self._seen is not None:
            self._seen.note(seen_in(given))

    def probe(self, data: bytes) -> tuple[bytes, float]:
        """Bytes as the coordinator's store of parts gives them back, and the seconds that this took it. Raises NotSpoken."""
        reply = self._ask("Probe", pb.ProbeRequest(data=data), CALL_SECONDS)
        return reply.data, reply.seconds

    def send_notes(self, notes: Sequence[tuple[OrderId, Note]]) -> None:
        """Send notes of what happened here. One try. Raises NotSpoken, Unreachable."""
        # A slow answer to what nobody waits for is no reason to leave for another coordinator.
        self._ask("SendNotes", notes_out(notes), NOTES_SECONDS, stays=True)

    @property
    def ahead(self) -> float:
        """Seconds by which this machine's clock was ahead of the coordinator's when that was asked for the time."""
        greeting = self._lines.now.greeting
        return 0.0 if greeting is None else greeting.ahead

    def hello(self) -> Greeting:
        """Who the coordinator in use is, and its time. Raises VersionRefused, Unreachable."""
        return self._greet(self._lines.now)

    def give_up(self, order: OrderId) -> None:
        """End what is transferred for an order, now and from here on: `fetch` and `push` raise Cancelled."""
        self._transfers.give_up(order)

    def forget(self, order: OrderId) -> None:
        """Nobody works for the order any more."""
        self._transfers.forget(order)

    def use(self, keys: Keys) -> None:
        with self._turning:
            self._keys = keys

    def rotate(self, fresh: Keys, done: Callable[[], object]) -> None:
        """Put new keys into the place of the old ones; `done` is called once the coordinator has them.

        Other calls wait meanwhile, if theirs were refused. Raises IdentityRefused where neither pair is known there.
        """
        with self._turning:
            sign_key, receive_key = fresh.public
            old = self._keys
            signatures = {"signature": fresh.takes_over(self.name), "handover": old.hands_over(self.name, fresh)}
            request = pb.RotateRequest(sign_key=sign_key, receive_key=receive_key, **signatures)
            try:
                self._ask("Rotate", request, CALL_SECONDS)
            except IdentityRefused as error:
                self._keys = fresh  # an earlier try may have got through, and its answer not
                try:
                    self.beat({})
                except FederationError as other:
                    self._keys = old
                    raise error if isinstance(other, IdentityRefused) else other from None
            self._keys = fresh
            done()

    def orders(self) -> Iterator[Order]:
        """Open orders as they come, over as many connections as it takes, until `stop`. Raises IdentityRefused."""
        while not self.stop.is_set():
            try:
                line, stream, first = self._listen()
                with Watchdog(stream.cancel, SILENCE_SECONDS) as alive:
                    for each in itertools.chain([first], self._translated(line, stream)):
                        alive.reset()
                        if each.HasField("order"):
                            yield order_in(each.order)
            except Unreachable as error:
                self._away(error)
            except TooLarge as error:
                self._away(error)
                self.stop.wait(FULL_SECONDS)
            self.stop.wait(0.2)

    def _listen(self) -> tuple[AnyLine, grpc.Call, pb.OrderOrTick]:
        """A stream of orders, its line, and the first thing that came over it, however long that takes."""
        for attempt in self._retrying():
            with attempt:
                line = self._lines.now
                stream, first = self._polled(line) if line.polls else self._stream(line, "Orders", self._asking())
                if first is not None:
                    return line, stream, first
                self._lines.leave(line)
                raise Unreachable(f"{line.address} hung up", "It may be restarting")
        raise Cancelled("The agent is stopping")

    def _polled(self, line: AnyLine) -> tuple[Polls, pb.OrderOrTick]:
        """The same by polls, each a call by itself."""
        polls = Polls(lambda request: self._ask("Poll", request, POLL_SECONDS, on=line), self._asking())
        return polls, next(polls)

    def fetch(self, order: Order, files: Files, parts: Parts) -> None:
        for attempt in self._retrying():
            with attempt:
                self._transfers.check(order.id)
                lacking = [(digest, size) for digest, size in files if not parts.has(digest)]
                arrivals = tuple((digest, size, min(parts.arrived(digest), size)) for digest, size in lacking)
                if self._moved(order, False, arrivals, lambda line: line.fetch(parts)):
                    return
                wanted = [pb.Wanted(digest=digest, offset=parts.arrived(digest)) for digest, _ in lacking]
                line = self._lines.now
                stream, first = self._stream(line, "Fetch", pb.FetchRequest(order=order.id, parts=wanted), order.id)
                with Intake(lacking, parts.upload, commit) as intake, Watchdog(stream.cancel, SILENCE_SECONDS) as alive:
                    for chunk in itertools.chain([] if first is None else [first], self._translated(line, stream, order.id)):
                        alive.reset()
                        intake.write(chunk)
                    intake.end()

    def push(self, order: Order, arrivals: Arrivals, parts: Parts) -> None:
        """One try: after a cut, or where the coordinator has no room, the next report says where to go on."""
        for digest, _, _ in arrivals:
            parts.size(digest)  # here, and not on the thread that sends, where an error would read as a cut
        try:
            if not self._moved(order, True, arrivals, lambda line: line.push(parts)):
                self._push(order, arrivals, parts)
        except Unreachable as error:
            self._away(error)
            self.stop.wait(FULL_SECONDS if isinstance(error, FullThere) else CUT_SECONDS)
            raise

    def _moved(self, order: Order, up: bool, arrivals: Arrivals, move: Callable[[LaneLine], None]) -> bool:
        """Whether parts went over the bulk lane. Raises as `fetch` and `push` do, where it was there and was cut."""
        if self._lines.now.polls or not self._lane.carries(sum(size - offset for _, size, offset in arrivals)):
            return False
        ticket = self._ticket(order, up, arrivals)
        if ticket is None:
            self._lane.leave()
            return False
        try:
            with self._lane.line(ticket) as line, self._transfers.under(order.id, line):
                move(line)
        except LaneAway:
            return False
        except StorageFull as error:
            raise FullThere(error.what, error.todo) if up else error from None
        return True

    def _ticket(self, order: Order, up: bool, arrivals: Arrivals) -> Ticket | None:
        """A ticket for the bulk lane; None where there is none."""
        line, keys = self._lines.now, self._keys
        try:
            given = self._ask("Ticket", ticket_request(order, up, arrivals), CALL_SECONDS)
        except NotSpoken:
            return None
        if not given.ticket:
            return None
        host = line.address.rpartition(":")[0] if given.lane.startswith(":") else ""
        signature = keys.bulk_signature(given.ticket, up, self.name, sum(size - offset for _, size, offset in arrivals))
        return Ticket(secret=given.ticket, signature=signature, up=up, parts=arrivals, address=host + given.lane)

    def _push(self, order: Order, arrivals: Arrivals, parts: Parts) -> None:
        head = push_head(order, arrivals)

        def start(line: AnyLine, metadata: Metadata) -> None:
            with Watchdog(lambda: call.cancel(), KEEPING_SECONDS) as alive:
                chunks = itertools.chain([head], push_chunks(arrivals, parts, self._chunk))
                call = line.calls["Push"].future((alive.fed(bytes(each)) for each in chunks), metadata=metadata)
                with self._transfers.under(order.id, call):
                    try:
                        call.result()
                    except grpc.FutureCancelledError:
                        raise Unreachable(f"{line.address} took nothing for {KEEPING_SECONDS:g} s", "It is tried again") from None

        self._begin(self._lines.now, "Push", head, start)

    def report(self, order: Order, reply: Reply) -> Receipt:
        made = time.monotonic()
        for attempt in self._retrying():
            with attempt:
                stages = reply.stages and reply.stages.older(time.monotonic() - made)
                raw = self._ask("Report", reply_out(replace(reply, stages=stages)), REPORT_SECONDS)
                self._chunk = raw.chunk and min(max(raw.chunk, MIN_CHUNK), MAX_CHUNK)
                return receipt_in(raw)
        raise Cancelled("The agent is stopping")

    def beat(
        self,
        progress: Mapping[OrderId, float],
        held: Mapping[OrderId, Hold] = EMPTY,
        quiet: Sequence[RunId] = (),
        stored: Sequence[RunId] = (),
    ) -> Beaten:
        """One sign of life, one try. held: orders that wait at this site, and why. quiet, stored: runs that are asked about."""
        request = pb.BeatRequest(
            progress={str(k): v for k, v in progress.items()},
            held={k: v.value for k, v in held.items()},
            clock_ms=int(time.time() * 1000),
            quiet=quiet[:MOST_QUIET],
            stored=stored[:MOST_STORED],
        )
        if self.hearing is not None:
            request.announced, request.declined = self.hearing.has
        reply = self._ask("Beat", request, CALL_SECONDS)
        self._remember(reply.seen)
        if self.hearing is not None:
            self.hearing.heard(reply.announcement if reply.HasField("announcement") else None)
        over, deleted = (tuple(map(RunId, found)) for found in (reply.over, reply.deleted))
        return Beaten(tuple(OrderId(gone) for gone in reply.gone), bool(reply.rotate), over, deleted)

    def close(self) -> None:
        self.stop.set()
        self._lines.close()

    def _ask(self, name: str, request: Message, seconds: float, stays: bool = False, on: AnyLine | None = None) -> Any:
        """A call's answer. stays: on this line, also where none comes. on: a certain one."""
        body = request.SerializeToString()

        def start(line: AnyLine, metadata: Metadata) -> Any:
            return line.calls[name](body, metadata=metadata, timeout=seconds)

        return self._begin(on or self._lines.now, name, body, start, stays)

    def _stream(self, line: AnyLine, name: str, request: Message, order: OrderId | None = None) -> tuple[grpc.Call, Any]:
        """A stream and the first thing that came over it, None if nothing did. order: that for which parts come."""
        body = request.SerializeToString()

        def start(line: AnyLine, metadata: Metadata) -> tuple[grpc.Call, Any]:
            stream = line.calls[name](body, metadata=metadata)
            with Watchdog(stream.cancel, SILENCE_SECONDS), self._transfers.under(order, stream):
                return stream, next(stream, None)

        return self._begin(line, name, body, start)

    def _begin(self, line: AnyLine, name: str, body: bytes, start: Callable[[AnyLine, Metadata], T], stays: bool = False) -> T:
        """What a call begins with. Refused for its time or its keys, it is signed anew if those are others by now."""
        with contextlib.nullcontext() if stays else self._leaving(line):
            for left in reversed(range(SIGNINGS)):
                keys, greeting, metadata = self._signed(line, name, body)
                try:
                    answer = translated(lambda metadata=metadata: start(line, metadata), line.address)  # type: ignore[misc]
                    self._lines.found(line)
                    return answer
                except IdentityRefused as error:
                    if not left or not self._otherwise(line, keys, greeting, error):
                        raise
        raise AssertionError("the last try returns or raises")

    def _otherwise(self, line: AnyLine, keys: Keys, greeting: Greeting, error: IdentityRefused) -> bool:
        """Whether a call that was refused would be signed otherwise now."""
        if isinstance(error, ClockRefused):  # this machine slept, or the coordinator's clock was set
            if line.greeting is greeting:
                line.greeting = None
            return True
        with self._turning:
            return self._keys is not keys

    def _signed(self, line: AnyLine, name: str, body: bytes) -> tuple[Keys, Greeting, Metadata]:
        greeting = line.greeting or self._greet(line)
        keys, now = self._keys, greeting.now_ms
        signature = keys.signature(SERVICE + name, self.name, now, body, self.session)
        shown = (("tideline-client", self.name), ("tideline-time", str(now)), ("tideline-signature", signature))
        return keys, greeting, (*shown, ("tideline-session", self.session)) if self.session else shown

    def _greet(self, line: AnyLine) -> Greeting:
        """Ask a coordinator who it is and what time it has. Raises VersionRefused for one that does not speak as we do."""
        body = pb.HelloRequest(protocol=PROTOCOL, version=__version__).SerializeToString()
        before = time.monotonic()
        hello = translated(lambda: hail(line, body), line.address)
        if not hello.oldest <= PROTOCOL <= hello.protocol:
            speaks = f"protocol {hello.protocol}" + (f" down to {hello.oldest}" if hello.oldest < hello.protocol else "")
            raise other_version(line.address, f"(tideline {hello.version}) speaks {speaks}")
        # Told somewhere between question and answer.
        heard = (before + time.monotonic()) / 2
        ahead = time.time() - (time.monotonic() - heard) - hello.time_ms / 1000
        line.greeting = Greeting(
            time_ms=hello.time_ms, heard=heard, version=hello.version, protocols=(hello.oldest, hello.protocol), ahead=ahead
        )
        return line.greeting

    @contextlib.contextmanager
    def _leaving(self, line: AnyLine) -> Iterator[None]:
        """Where the other end is away, the next call goes to another."""
        try:
            yield
        except FullThere:
            raise
        except Unreachable:
            self._lines.leave(line)
            raise

    def _translated(self, line: AnyLine, stream: grpc.Call, order: OrderId | None = None) -> Iterator[Any]:
        iterator = iter(stream)
        while True:
            with self._leaving(line), self._transfers.under(order, stream):
                each = translated(lambda: next(iterator, None), line.address)
            if each is None:
                return
            yield each

    def _retrying(self) -> tenacity.Retrying:
        """Tries while the other end is away, until `stop`."""
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Unreachable),
            wait=pause,
            stop=tenacity.stop_when_event_set(self.stop),
            sleep=tenacity.sleep_using_event(self.stop),
            before_sleep=lambda state: self._away(state.outcome.exception() if state.outcome else None),
            reraise=True,
        )
