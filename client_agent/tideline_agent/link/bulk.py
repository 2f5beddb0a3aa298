"""The agent's end of the bulk lane: parts over HTTP, a connection for each transfer. Where it is not there, gRPC carries them."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h11
import structlog

from tideline.archive.parts import MAX_CHUNK, Intake, Parts, blocks, chunks, commit
from tideline.core.errors import FederationError, IdentityRefused, Unreachable
from tideline.core.tokens import split_address
from tideline.engine.model.orders import Arrivals
from tideline.engine.process.pipe import from_plain
from tideline_agent.link.lines import Endpoints

log = structlog.get_logger()
LEAST_BYTES = 1 << 18  # of a transfer: for less, a call of gRPC takes less than a connection
AWAY_SECONDS = 60.0  # for which the lane is left alone, where there is none or it failed
MOST_FAILURES = 3  # one behind the other
CONNECT_SECONDS, SILENCE_SECONDS, KEEPING_SECONDS = 10.0, 45.0, 120.0
MOST_ANSWER = 1 << 14


class LaneAway(Exception):
    """The lane cannot be had: nothing was moved."""


@dataclass(frozen=True)
class Ticket:
    """A ticket, what it is signed with, and where it is good."""

    secret: str
    signature: str
    up: bool
    parts: Arrivals
    address: str

    @property
    def bytes(self) -> int:
        return sum(size - offset for _, size, offset in self.parts)


class Lane:
    """Whether the lane is used now, and lines over it. Any number of threads."""

    def __init__(self, endpoints: Endpoints, on: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._endpoints, self._on, self._clock = endpoints, on, clock
        self._away_until, self._failures = 0.0, 0
        self._tls = tls_of(endpoints) if on else None

    def renew(self, endpoints: Endpoints) -> None:
        """Believe, and show, something else from now on."""
        self._endpoints, self._tls = endpoints, tls_of(endpoints) if self._on else None

    def carries(self, nbytes: int) -> bool:
        """Whether so many bytes are to go over the lane."""
        return self._on and nbytes >= LEAST_BYTES and self._clock() >= self._away_until

    def leave(self, why: str = "") -> None:
        """Use gRPC for a while. why: told, if there is a reason to tell."""
        self._away_until, self._failures = self._clock() + AWAY_SECONDS, 0
        if why:
            log.warning("bulk_lane_away", reason=why, instead="parts travel over gRPC", again_in_seconds=AWAY_SECONDS)

    @contextlib.contextmanager
    def line(self, ticket: Ticket) -> Iterator[LaneLine]:
        """A line for one transfer. Raises LaneAway where there is none, and Unreachable where it ends in the middle."""
        try:
            made = LaneLine(self._connected(ticket.address), ticket)
        except (OSError, FederationError) as error:
            self.leave(f"{ticket.address}: {error}")
            raise LaneAway from None
        try:
            yield made
            self._failures = 0
        except IdentityRefused as error:  # a ticket that is known no more, as after a restart, is no reason to end
            raise self._failed(ticket, str(error)) from None
        except OSError as error:
            raise self._failed(ticket, str(error)) from None
        finally:
            made.close()

    def _failed(self, ticket: Ticket, why: str) -> Unreachable:
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            self.leave(f"{ticket.address}: {why}")
        return Unreachable(f"The bulk lane at {ticket.address} was cut: {why}", "It is tried again from there")

    def _connected(self, address: str) -> socket.socket:
        host, port = split_address(address)
        line = socket.create_connection((host, int(port)), CONNECT_SECONDS)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return line
        try:
            return self._tls.wrap_socket(line, server_hostname=host)
        except BaseException:
            line.close()
            raise


class LaneLine:
    """One transfer. `cancel` ends it from another thread."""

    def __init__(self, line: socket.socket, ticket: Ticket) -> None:
        self._line, self._ticket = line, ticket
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._line.close()

    def fetch(self, parts: Parts) -> None:
        """Take in the ticket's parts. Raises what the coordinator says, OSError where it is cut, and as intakes do."""
        self._line.settimeout(SILENCE_SECONDS)
        self._line.sendall(self._head())
        left, begun = self._answer()
        if left != self._ticket.bytes:
            raise OSError(f"{left} bytes are sent, and not {self._ticket.bytes}")
        with Intake([(digest, size) for digest, size, _ in self._ticket.parts], parts.upload, commit) as intake:
            intake.write(begun)
            for block in blocks(self._line.recv_into, left - intake.came):
                intake.write(block)
            if intake.came < left:
                raise OSError("it ended too early")
            intake.end()

    def push(self, parts: Parts) -> None:
        """Send the ticket's parts. They are on disk there when this returns. Raises as `fetch` does."""
        self._line.settimeout(KEEPING_SECONDS)
        wanted = [(digest, offset) for digest, _, offset in self._ticket.parts]
        try:
            self._line.sendall(self._head())
            for chunk in chunks(parts, wanted, MAX_CHUNK):
                self._line.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):
            self._answer()  # which says why; or it is cut
            raise
        self._answer()

    def _head(self) -> bytes:
        ticket = self._ticket
        lines = [
            f"{'PUT' if ticket.up else 'GET'} /parts HTTP/1.1",
            f"Host: {ticket.address}",
            f"Authorization: Tideline {ticket.secret}",
            f"Tideline-Signature: {ticket.signature}",
            *([f"Content-Length: {ticket.bytes}"] if ticket.up else []),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def _answer(self) -> tuple[int, bytes]:
        """The bytes of the answer's body, and those that came with its head. Raises what the answer says, and OSError."""
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_ANSWER)
        http.send(h11.Request(method="GET", target="/parts", headers=[("Host", "lane")]))
        http.send(h11.EndOfMessage())
        try:
            head = self._event(http)
            if not isinstance(head, h11.Response):
                raise OSError("it answers no HTTP")
            length = dict(head.headers).get(b"content-length", b"")
            if head.status_code != 200:
                raise error_in(self._body(http))
            if not length.isdigit():
                raise OSError("it does not say how much comes")
            begun = http.next_event() if int(length) else None
            return int(length), bytes(begun.data) if isinstance(begun, h11.Data) else b""
        except h11.RemoteProtocolError as cause:
            raise OSError(f"it answers no HTTP: {cause}") from None

    def _body(self, http: h11.Connection) -> bytes:
        body = b""
        while isinstance(event := self._event(http), h11.Data) and len(body) <= MOST_ANSWER:
            body += bytes(event.data)
        return body

    def _event(self, http: h11.Connection) -> object:
        while (event := http.next_event()) is h11.NEED_DATA:
            received = self._line.recv(MOST_ANSWER)
            http.receive_data(received)
            if not received and http.their_state is h11.SEND_RESPONSE:
                raise OSError("it hung up without an answer")
        return event


def error_in(body: bytes) -> FederationError:
    """The error that an answer carries. Raises OSError where it carries none."""
    try:
        return from_plain(json.loads(body))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise OSError("it refused, and not in words of ours") from None


def tls_of(endpoints: Endpoints) -> ssl.SSLContext | None:
    """TLS that believes what the gRPC line believes; None where that has none."""
    if endpoints.roots is None and not endpoints.system:
        return None
    context = ssl.create_default_context(cadata=endpoints.roots.decode() if endpoints.roots else None)
    if endpoints.own is not None:
        with tempfile.TemporaryDirectory() as folder:  # of this user alone; ssl takes files
            path = Path(folder) / "own.pem"
            path.touch(0o600)
            path.write_bytes(endpoints.own[0] + b"\n" + endpoints.own[1])
            context.load_cert_chain(path)
    return context
