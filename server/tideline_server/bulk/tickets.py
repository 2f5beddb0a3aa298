"""Tickets for transfers over the bulk lane. One opens some parts of one order, each from a place on, to one client, once.

A ticket is a secret that is kept here alone, and whoever shows it signs with the client's key: found in a log or on the line it
opens nothing.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tideline.archive.digests import check_digest
from tideline.core.errors import IdentityRefused, Malformed
from tideline.core.run import OrderId
from tideline.core.signing import bulk_bytes
from tideline.engine.model.accounts import Client
from tideline.engine.model.orders import Arrivals

TICKET_BYTES = 24
SECONDS = 60.0  # within which a transfer begins
MOST_OF_ONE = 64  # tickets of one client; the oldest goes


class TicketRefused(IdentityRefused):
    """A ticket that opens nothing: it is used up, too old, or another's. An agent asks for another."""

    @property
    def kind(self) -> str:
        """Known by its base to whoever is told."""
        return IdentityRefused.__name__


@dataclass(frozen=True)
class Ticket:
    """What a ticket opens: the client as it was when it asked, and the parts, (digest, bytes, offset), up or down."""

    client: Client
    order: OrderId
    up: bool
    parts: Arrivals
    until: float

    @property
    def bytes(self) -> int:
        return sum(size - offset for _, size, offset in self.parts)


class Tickets:
    """The tickets of this process. Any number of threads. verify: whether a signature is by a key, of a message."""

    def __init__(
        self, verify: Callable[[str, bytes, bytes], bool], clock: Callable[[], float] = time.monotonic, seconds: float = SECONDS
    ) -> None:
        self._verify, self._clock, self._seconds = verify, clock, seconds
        self._lock = threading.Lock()
        self._known: dict[str, Ticket] = {}

    def issue(self, client: Client, order: OrderId, up: bool, parts: Arrivals) -> str:
        """A ticket for parts that the client may send or have. Raises Malformed for ranges that are none."""
        check_ranges(parts)
        secret, now = secrets.token_urlsafe(TICKET_BYTES), self._clock()
        ticket = Ticket(client=client, order=order, up=up, parts=parts, until=now + self._seconds)
        with self._lock:
            self._known = {name: each for name, each in self._known.items() if each.until > now}
            own = [name for name, each in self._known.items() if each.client.name == client.name]
            for name in own[: max(len(own) + 1 - MOST_OF_ONE, 0)]:
                del self._known[name]
            self._known[secret] = ticket
        return secret

    def use(self, secret: str, up: bool, nbytes: int | None, signature: bytes) -> Ticket:
        """What a ticket opens, which is used up. nbytes: of the body that comes with it. Raises TicketRefused, Malformed."""
        ticket = self._known.get(secret)
        if ticket is None or ticket.until <= self._clock():
            raise TicketRefused("The ticket is unknown here, used up or too old", "Ask for another; an agent does by itself")
        if ticket.up != up:
            raise TicketRefused("The ticket is for the other direction", "Send with PUT, and have with GET")
        message = bulk_bytes(secret, ticket.up, ticket.client.name, ticket.bytes)
        if not self._verify(ticket.client.keys.sign, signature, message):
            raise TicketRefused("The ticket is another's: its client has not signed the request", "Ask for one of your own")
        if up and nbytes != ticket.bytes:
            raise Malformed(f"A body of {nbytes} bytes comes; the ticket is for {ticket.bytes}", "Send what was announced")
        with self._lock:
            if self._known.pop(secret, None) is None:
                raise TicketRefused("The ticket was used a moment ago", "Ask for another; an agent does by itself")
        return ticket


@dataclass(frozen=True)
class Lane:
    """The lane as agents are told of it. address: HOST:PORT, or :PORT at the host by which they know the gRPC port."""

    tickets: Tickets
    address: str


def check_ranges(parts: Arrivals) -> None:
    """Raises Malformed for a part that is named twice, is no part, or begins behind its end."""
    if not parts:
        raise Malformed("The ticket is for no part", "Name the parts")
    if len({digest for digest, _, _ in parts}) < len(parts):
        raise Malformed("A part is named twice: its ranges overlap", "Name each part once, from where the other end stops")
    for digest, size, offset in parts:
        check_digest(digest)
        if not 0 <= offset <= size or size <= 0:
            raise Malformed(f"Part {digest[:12]} of {size} bytes is to begin at {offset}", "Begin within the part")
