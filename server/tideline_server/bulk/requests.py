"""Requests on the bulk lane: one head, read in bounds; and answers. Bodies are not seen here."""

from __future__ import annotations

import base64
import binascii
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import h11

from tideline.archive.errors import TooLarge
from tideline.core.errors import FederationError, Malformed
from tideline.engine.process.pipe import to_plain
from tideline_server.bulk.tickets import TicketRefused
from tideline_server.errors import code_of

MOST_HEAD = 8 << 10
TARGET = b"/parts"
MAX_WORDS = 2000
SCHEME = "Tideline "


class Silent(Exception):
    """The other end said nothing in time, or hung up."""


@dataclass(frozen=True)
class Request:
    """What stands in a head. nbytes: of the body, None where it is not said; begun: what of the body came with the head."""

    up: bool
    ticket: str
    signature: bytes
    nbytes: int | None
    begun: bytes


def read_request(line: socket.socket, seconds: float, clock: Callable[[], float] = time.monotonic) -> Request:
    """The request that comes over a line within so many seconds. Raises Silent, Malformed, TooLarge, TicketRefused."""
    http, until, came = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD), clock() + seconds, 0
    try:
        while (event := http.next_event()) is h11.NEED_DATA:
            left = until - clock()
            if left <= 0:
                raise Silent
            line.settimeout(left)
            received = line.recv(MOST_HEAD)
            came += len(received)
            if not received:
                raise Silent
            http.receive_data(received)
        if not isinstance(event, h11.Request):
            raise Silent
        return request_in(event, http)
    except h11.RemoteProtocolError as cause:
        if came > MOST_HEAD:
            raise TooLarge(f"The head of the request has more than {MOST_HEAD} bytes", "Send less") from None
        raise Malformed(f"What came is no HTTP request: {cause}", "Use an agent of this version") from None
    except OSError:
        raise Silent from None


def request_in(event: h11.Request, http: h11.Connection) -> Request:
    """A head's content. Raises Malformed, TicketRefused."""
    names = [name for name, _ in event.headers]
    headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
    if event.method not in (b"GET", b"PUT") or event.target != TARGET:
        raise Malformed("The bulk lane answers GET and PUT of /parts alone", "Use an agent of this version")
    if b"transfer-encoding" in names:
        raise Malformed("A body must say its length beforehand", "Send Content-Length")
    up, length = event.method == b"PUT", headers.get("content-length")
    if not up and length not in (None, "0"):
        raise Malformed("A GET brings no body", "Send PUT")
    begun = http.next_event() if up and length not in (None, "0") else None
    return Request(
        up=up,
        ticket=headers.get("authorization", "").removeprefix(SCHEME),
        signature=signature_in(headers.get("tideline-signature", "")),
        nbytes=None if length is None else int(length),
        begun=bytes(begun.data) if isinstance(begun, h11.Data) else b"",
    )


def signature_in(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise TicketRefused("The request's signature is no base64", "Use an agent of this version") from None


def head_of(status: int, nbytes: int) -> bytes:
    """The head of an answer whose body has so many bytes. Each answer is the last of its connection."""
    reason = "OK" if status == 200 else "Error"
    return f"HTTP/1.1 {status} {reason}\r\nContent-Length: {nbytes}\r\nConnection: close\r\n\r\n".encode()


def refusal(error: FederationError) -> bytes:
    """An answer that the other end can make the error of again."""
    plain = {key: value[:MAX_WORDS] for key, value in to_plain(error).items() if key != "context"}
    body = json.dumps(plain).encode()
    return head_of(code_of(error).http, len(body)) + body
