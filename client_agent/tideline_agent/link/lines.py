"""The agent's connections to its coordinators: one is in use, and the next takes over when it does not answer."""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote

import grpc
from google.protobuf.message import Message

from tideline.core.errors import Cancelled
from tideline.core.run import OrderId
from tideline.core.tokens import place_of
from tideline_agent.link.proxies import Proxy, proxy_for
from tideline_protos.v1 import federation_pb2 as pb

T = TypeVar("T")
L = TypeVar("L", bound="Closable")


class Watchdog:
    """Calls `bark` when `reset` was not called for so many seconds."""

    def __init__(self, bark: Callable[[], object], seconds: float) -> None:
        self._bark, self._seconds = bark, seconds
        self._fed = threading.Event()
        self._done = False

    def __enter__(self) -> Watchdog:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def reset(self) -> None:
        self._fed.set()

    def fed(self, given: T) -> T:
        """Somebody is alive, and this is what he gave."""
        self.reset()
        return given

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


class Cancellable(Protocol):
    """A call, or a line of another kind."""

    def cancel(self) -> object: ...


class Closable(Protocol):
    """A line, whatever it goes over."""

    address: str

    def close(self) -> None: ...


class Transfers:
    """Any number of threads; at most one transfer for each order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[OrderId, Cancellable] = {}
        self._given_up: set[OrderId] = set()

    def give_up(self, order: OrderId) -> None:
        """Nothing is transferred for an order any more."""
        with self._lock:
            self._given_up.add(order)
            call = self._calls.get(order)
        if call is not None:
            call.cancel()

    def forget(self, order: OrderId) -> None:
        """An order's life is over."""
        with self._lock:
            self._given_up.discard(order)

    def check(self, order: OrderId) -> None:
        if order in self._given_up:
            raise Cancelled(f"Order {order[:8]} was withdrawn")

    @contextlib.contextmanager
    def under(self, order: OrderId | None, call: Cancellable) -> Iterator[None]:
        """A call that transfers for an order, as long as the block lasts. Whatever giving it up looks like is Cancelled."""
        if order is None:
            yield
            return
        with self._lock:
            self._calls[order] = call
        try:
            self.check(order)
            yield
        except Exception:
            if order in self._given_up:
                call.cancel()
            self.check(order)
            raise
        finally:
            with self._lock:
                self._calls.pop(order, None)


SERVICE = "/tideline.v1.Federation/"
MOST_RECEIVED = 64 << 20  # as at the coordinator; the largest order, of 200 000 parts, has a quarter of it, a chunk 1 MiB
OPTIONS = (
    ("grpc.max_receive_message_length", MOST_RECEIVED),
    ("grpc.max_send_message_length", -1),
    # A coordinator that is frozen, or whose machine has vanished, is found out by a ping: after twenty seconds at most.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Between two tries to connect; calls meanwhile fail at once.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 800),
    # A fixed window, widened to a chunk when one is awaited: a bound on what a busy agent buffers.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2 << 20),
)
REPLIES: dict[str, type[Message]] = {
    "Hello": pb.HelloReply,
    "Enrol": pb.EnrolReply,
    "Rotate": pb.RotateReply,
    "Orders": pb.OrderOrTick,
    "Push": pb.PushReply,
    "Ticket": pb.TicketReply,
    "Report": pb.Receipt,
    "Beat": pb.BeatReply,
    "SendNotes": pb.SendNotesReply,
    "Check": pb.EnrolReply,
    "Probe": pb.ProbeReply,
    "Poll": pb.PollReply,
}


@dataclass(frozen=True)
class Endpoints:
    """The ports of a federation's coordinators, and how they are known.

    roots   the certificates of their authorities (PEM)
    system  whether this machine's authorities vouch for them
    own     the agent's own key and certificate (PEM), where it has some
    proxy   URL of the proxy on the way, which may hold a password; `off` for none; nothing: the environment's
    """

    addresses: tuple[str, ...]
    roots: bytes | None = None
    system: bool = False
    own: tuple[bytes, bytes] | None = None
    proxy: str = field(default="", repr=False)


@dataclass(frozen=True)
class Greeting:
    """A coordinator's time, and when it told it by a clock that nobody sets; its version, and the protocols that it speaks."""

    time_ms: int
    heard: float
    version: str = ""
    protocols: tuple[int, int] = (0, 0)
    ahead: float = 0.0  # seconds, of this machine's clock

    @property
    def now_ms(self) -> int:
        """The coordinator's time by now, as far as this machine did not sleep."""
        return self.time_ms + int((time.monotonic() - self.heard) * 1000)


class Line:
    """One coordinator's endpoint and its calls: bytes go out as they were signed."""

    polls = False  # orders come as a stream

    def __init__(self, address: str, endpoints: Endpoints) -> None:
        self.address = address
        self.greeting: Greeting | None = None
        self._channel = open_channel(address, endpoints)
        unary, down, up = self._channel.unary_unary, self._channel.unary_stream, self._channel.stream_unary
        kinds = {"Orders": down, "Fetch": down, "Push": up}
        # The chunks of a Fetch are raw.
        readers = {"Fetch": None, **{name: reply.FromString for name, reply in REPLIES.items()}}
        self.calls = {name: kinds.get(name, unary)(SERVICE + name, None, read) for name, read in readers.items()}

    def close(self) -> None:
        self._channel.close()


class Lines(Generic[L]):
    """Lines to all coordinators, one in use, for any number of threads. Agents begin at different ones, by their names."""

    def __init__(self, lines: Sequence[L], name: str) -> None:
        self._lines, self._left = list(lines), list[L]()
        self._used = self._lines[zlib.crc32(name.encode()) % len(self._lines)]
        self._lock = threading.Lock()
        self.lost = threading.Event()  # set while calls fail

    @property
    def now(self) -> L:
        return self._used

    def leave(self, line: L) -> None:
        """A line's other end does not answer. Of several calls that find it out, the first changes to the next line."""
        with self._lock:
            if line is self.now:
                self._used = self._lines[(self._lines.index(line) + 1) % len(self._lines)]
                self.lost.set()

    def found(self, line: L) -> None:
        """A line's other end answers."""
        if self.lost.is_set() and line is self.now:
            self.lost.clear()

    @property
    def all(self) -> tuple[L, ...]:
        return tuple(self._lines)

    def turn(self, lines: Sequence[L], first: str = "") -> None:
        """Other lines, for calls that begin from now on. first: the address of the next; else that which is in use, if it can be.

        Lines that are gone stay open for the calls that are under way over them, until there are others again.
        """
        with self._lock:
            over, known = self._left, {each.address: each for each in lines}
            self._left = [each for each in self._lines if each not in lines]
            self._lines, self._used = list(lines), known.get(first or self._used.address, lines[0])
        for each in over:
            if each not in lines:
                each.close()

    def close(self) -> None:
        for line in (*self._lines, *self._left):
            line.close()


def open_channel(address: str, endpoints: Endpoints) -> grpc.Channel:
    """A channel, over TLS where somebody vouches for the coordinator, and through the proxy on the way."""
    options = (*OPTIONS, *tunnel(proxy_for(place_of(address), endpoints.proxy)))
    if endpoints.roots is None and not endpoints.system:
        return grpc.insecure_channel(address, options)
    key, chain = endpoints.own or (None, None)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(endpoints.roots, key, chain), options)


def tunnel(proxy: Proxy | None) -> tuple[tuple[str, str | int], ...]:
    """Options of a channel that goes through a proxy. Without one gRPC does not look for one of its own."""
    if proxy is None:
        return (("grpc.enable_http_proxy", 0),)
    user = f"{quote(proxy.user, '')}:{quote(proxy.password, '')}@" if proxy.user else ""
    return (("grpc.http_proxy", f"http://{user}{proxy.name}"),)
