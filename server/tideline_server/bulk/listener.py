"""The port of the bulk lane: takes connections, each for one transfer, on a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from tideline.archive.parts import blocks
from tideline.core.errors import FederationError, TooMany
from tideline.core.run import ClientId
from tideline.engine.coordinator.agent_service import AgentService
from tideline.engine.model.accounts import Client
from tideline_server.bulk.requests import Request, Silent, head_of, read_request, refusal
from tideline_server.bulk.tickets import Ticket, TicketRefused, Tickets
from tideline_server.limits import network_of

log = structlog.get_logger()
BUFFER = 1 << 16  # bytes that are read at once of what nobody wants
CHECK_SECONDS = 0.25  # between two looks for connections that prove nothing
LINGER_BYTES, LINGER_SECONDS = 4 << 20, 2.0  # that are read, and not looked at, of a body that was refused


@dataclass(frozen=True)
class Bounds:
    """Connections in all, those of one place that have shown no good ticket yet, and transfers of one client; seconds for
    handshake and head together, and for which nothing moves in a transfer.
    """

    lines: int = 256
    strangers: int = 32
    transfers: int = 16
    greeting: float = 10.0
    stalled: float = 120.0


@dataclass(eq=False)
class Line:
    """A connection: its socket, which TLS replaces; its place, as long as it is a stranger's; and until when it may be one."""

    socket: socket.socket
    place: str
    until: float

    def shut(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Listener:
    """Serves the bulk lane.

    listening: agents that hear orders now. still: raises for a client that is let in no more. certified: only with a certificate
    of the client's name. proven: told of a connection over which a good ticket came.
    """

    def __init__(
        self,
        tickets: Tickets,
        agent_service: AgentService,
        still: Callable[[Client], None],
        listening: Callable[[], int] = lambda: 1,
        tls: ssl.SSLContext | None = None,
        certified: bool = False,
        proven: Callable[[tuple[str, int]], None] = lambda peer: None,
        bounds: Bounds | None = None,
    ) -> None:
        self.tickets, self.agent_service, self.still, self.listening = tickets, agent_service, still, listening
        self._tls, self._certified, self._proven, self.bounds = tls, certified, proven, bounds or Bounds()
        self._lock = threading.Lock()
        self._lines: set[Line] = set()
        self._strangers: Counter[str] = Counter()
        self._transfers: Counter[ClientId] = Counter()
        self._closed = threading.Event()

    def open(self, bound: socket.socket) -> None:
        """Serve who connects, from now on and until `close`."""
        bound.listen(128)
        bound.settimeout(CHECK_SECONDS)
        self._bound = bound
        self._thread = threading.Thread(target=self._accept, name="bulk", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take nobody in any more, and end what is under way: both ends know how far it came."""
        self._closed.set()
        self._thread.join()
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            line.shut()

    def renew(self, tls: ssl.SSLContext | None) -> None:
        """Show another certificate from now on, to who connects."""
        self._tls = tls

    @property
    def lines(self) -> int:
        """Connections now."""
        return len(self._lines)

    def _accept(self) -> None:
        looked = 0.0
        while not self._closed.is_set():
            if (now := time.monotonic()) >= looked + CHECK_SECONDS:
                looked = now
                self._end_late(now)
            try:
                accepted, peer = self._bound.accept()
            except TimeoutError:
                continue
            except OSError as error:
                log.warning("bulk_lane_full", reason=error.strerror)
                self._closed.wait(0.5)
                continue
            line = Line(accepted, network_of(str(peer[0])), now + self.bounds.greeting)
            if self._enter(line):
                threading.Thread(target=self._live, args=(line, peer), name="transfer", daemon=True).start()
            else:
                accepted.close()

    def _end_late(self, now: float) -> None:
        """End the connections that have been strangers' for too long, whatever comes over them in small pieces."""
        with self._lock:
            late = [line for line in self._lines if line.place and now >= line.until]
        for line in late:
            line.shut()

    def _enter(self, line: Line) -> bool:
        """Whether there is room for a connection, which is a stranger's until it has shown a ticket."""
        with self._lock:
            if len(self._lines) >= self.bounds.lines or self._strangers[line.place] >= self.bounds.strangers:
                return False
            self._lines.add(line)
            self._strangers[line.place] += 1
            return True

    def _known(self, line: Line) -> None:
        """A connection is a stranger's no more, as it has shown a ticket or has ended."""
        with self._lock:
            if line.place:
                self._strangers[line.place] -= 1
                if not self._strangers[line.place]:
                    del self._strangers[line.place]
                line.place = ""

    def _live(self, line: Line, peer: tuple[str, int]) -> None:
        """A connection's life."""
        try:
            line.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._wrap(line)
            request = read_request(line.socket, self.bounds.greeting)
            line.socket.settimeout(self.bounds.stalled)
            self._answer(line, request, peer)
        except FederationError as error:
            refuse(line.socket, error)
        except (Silent, OSError):
            pass  # who is gone hears nothing; what came of a part stays
        except Exception:
            log.exception("transfer_failed")
        finally:
            self._known(line)
            with self._lock:
                self._lines.discard(line)
            line.socket.close()

    def _wrap(self, line: Line) -> None:
        """Agree on TLS, where it is spoken. Raises OSError."""
        if (tls := self._tls) is not None:
            line.socket.settimeout(self.bounds.greeting)
            line.socket = made = tls.wrap_socket(line.socket, server_side=True, do_handshake_on_connect=False)
            made.do_handshake()

    def _answer(self, line: Line, request: Request, peer: tuple[str, int]) -> None:
        ticket = self.tickets.use(request.ticket, request.up, request.nbytes, request.signature)
        if self._certified:
            certify(line.socket, ticket.client.name)
        self._known(line)
        self._proven(peer)
        structlog.contextvars.bind_contextvars(client=ticket.client.name, order=ticket.order)
        with self._turn(ticket.client.name):
            self.still(ticket.client)
            (self._take if ticket.up else self._send)(line.socket, ticket, request.begun)

    @contextlib.contextmanager
    def _turn(self, client: ClientId) -> Iterator[None]:
        """One of a client's transfers. Raises TooMany."""
        with self._lock:
            if self._transfers[client] >= self.bounds.transfers:
                what = f"{client} has {self.bounds.transfers} transfers under way"
                raise TooMany(what, "Call again in 1 s; an agent does by itself", retry_after=1)
            self._transfers[client] += 1
        try:
            yield
        finally:
            with self._lock:
                self._transfers[client] -= 1
                if not self._transfers[client]:
                    del self._transfers[client]

    def _send(self, line: socket.socket, ticket: Ticket, begun: bytes) -> None:
        """The parts of an order, one after the other."""
        wanted = [(digest, offset) for digest, _, offset in ticket.parts]
        chunks = self.agent_service.fetch(ticket.client.name, ticket.order, wanted, self.listening())
        first, left = next(chunks, memoryview(b"")), ticket.bytes
        line.sendall(head_of(200, left))
        while first and left:
            sent = first[:left]  # a file that is longer than it is told to be is damaged, and found to be by who takes it
            line.sendall(sent)
            left -= len(sent)
            self.agent_service.sent(ticket.order, len(sent))
            self.still(ticket.client)
            first = next(chunks, memoryview(b""))

    def _take(self, line: socket.socket, ticket: Ticket, begun: bytes) -> None:
        """The parts of a reply, one after the other. Answered when all of them are on disk."""
        client, order = ticket.client.name, ticket.order

        def receive(room: memoryview) -> int:
            self.still(ticket.client)
            return line.recv_into(room)

        with self.agent_service.push(client, order, ticket.parts) as intake:
            intake.write(begun)
            for block in blocks(receive, ticket.bytes - intake.came):
                intake.write(block)
            if intake.came < ticket.bytes:
                raise Silent
            self.agent_service.received(client, order, intake)
        line.sendall(head_of(200, 0))


def refuse(line: socket.socket, error: FederationError) -> None:
    """Say why, and read for a while what still comes: a line that is closed with bytes unread loses the answer, too."""
    until, room, left = time.monotonic() + LINGER_SECONDS, bytearray(BUFFER), LINGER_BYTES
    with contextlib.suppress(OSError):
        line.settimeout(LINGER_SECONDS)
        line.sendall(refusal(error))
        line.shutdown(socket.SHUT_WR)
        while left > 0 and time.monotonic() < until and (came := line.recv_into(room)):
            left -= came


def certify(line: socket.socket, name: str) -> None:
    """Raises TicketRefused for who shows a certificate of another name."""
    shown = line.getpeercert() if isinstance(line, ssl.SSLSocket) else None
    names: list[Any] = [field[1] for group in (shown or {}).get("subject", ()) for field in group]
    names += [each[1] for each in (shown or {}).get("subjectAltName", ())]
    if name not in names:
        raise TicketRefused(f"The certificate is not that of {name[:80]!r}", "Give the agent a certificate of its own name")
