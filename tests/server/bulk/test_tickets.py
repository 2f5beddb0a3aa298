"""A ticket opens what it is for: once, to its client, and for a while."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.server.bulk.lanes import public
from tideline.archive.digests import digest_of
from tideline.archive.errors import BadName
from tideline.core.errors import Malformed
from tideline.core.run import ClientId, Digest, OrderId
from tideline.engine.model.accounts import Client
from tideline.engine.model.orders import Arrivals
from tideline.engine.simulation.adapters import ManualClock
from tideline_agent.home.identity import Keys
from tideline_server.bulk.tickets import MOST_OF_ONE, SECONDS, TicketRefused, Tickets
from tideline_server.rpc import verified

ONE, TWO = digest_of([b"one"]), digest_of([b"two"])
ORDER = OrderId("order")
KEYS = Keys.made()
PARTS: Arrivals = ((ONE, 100, 0), (TWO, 50, 20))


def client(name: str = "ann", keys: Keys = KEYS) -> Client:
    known = public(keys)
    return Client(ClientId(name), ("source",), {}, "1", 0.0, 0.0, sign_key=known.sign, receive_key=known.receive)


def signed(secret: str, up: bool = True, name: str = "ann", nbytes: int = 130, keys: Keys = KEYS) -> bytes:
    return base64.b64decode(keys.bulk_signature(secret, up, name, nbytes))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tickets(clock: ManualClock) -> Tickets:
    return Tickets(verified, clock.now)


def test_a_ticket_is_good_once(tickets: Tickets) -> None:
    """It says what it opens, and nobody finds it again."""
    secret = tickets.issue(client(), ORDER, True, PARTS)
    ticket = tickets.use(secret, True, 130, signed(secret))
    assert (ticket.client.name, ticket.order, ticket.parts, ticket.bytes) == ("ann", ORDER, PARTS, 130)
    with pytest.raises(TicketRefused, match="used up"):
        tickets.use(secret, True, 130, signed(secret))


OTHERWISE: tuple[tuple[Callable[[str], tuple[str, bytes]], str], ...] = (
    (lambda secret: (secret, signed(secret, keys=Keys.made())), "another's"),
    (lambda secret: (secret, signed(secret, name="bob")), "another's"),
    (lambda secret: (secret, signed(secret, nbytes=131)), "another's"),
    (lambda secret: (secret, signed(secret, up=False)), "another's"),
    (lambda secret: (secret, signed("other")), "another's"),
    (lambda secret: (secret, b""), "another's"),
    (lambda secret: (secret + "x", signed(secret)), "unknown"),
    (lambda secret: ("", signed("")), "unknown"),
)


def test_who_has_not_its_key_does_not_use_it_up(tickets: Tickets) -> None:
    """Whoever reads a ticket somewhere neither uses it nor takes it from its client."""
    for otherwise, words in OTHERWISE:
        secret = tickets.issue(client(), ORDER, True, PARTS)
        shown, signature = otherwise(secret)
        with pytest.raises(TicketRefused, match=words):
            tickets.use(shown, True, 130, signature)
        assert tickets.use(secret, True, 130, signed(secret)).order == ORDER


def test_a_ticket_is_for_one_direction_and_one_length(tickets: Tickets) -> None:
    """A body that is longer or shorter, or has no length, is not looked at."""
    secret = tickets.issue(client(), ORDER, True, PARTS)
    with pytest.raises(TicketRefused, match="direction"):
        tickets.use(secret, False, None, signed(secret))
    for nbytes in (None, 129, 131, 1 << 62):
        with pytest.raises(Malformed, match="the ticket is for 130"):
            tickets.use(secret, True, nbytes, signed(secret))


def test_a_ticket_does_not_wait_for_long(tickets: Tickets, clock: ManualClock) -> None:
    """A transfer that has begun goes on."""
    secret = tickets.issue(client(), ORDER, True, PARTS)
    clock.advance(SECONDS)
    with pytest.raises(TicketRefused, match="too old"):
        tickets.use(secret, True, 130, signed(secret))
    tickets.issue(client(), ORDER, True, PARTS)
    assert len(tickets._known) == 1


def test_of_one_client_a_few_wait(tickets: Tickets) -> None:
    """The oldest goes; another client's stay."""
    other = tickets.issue(client("bob"), ORDER, True, PARTS)
    secrets = [tickets.issue(client(), ORDER, True, PARTS) for _ in range(MOST_OF_ONE + 3)]
    assert set(tickets._known) == {other, *secrets[3:]}


def test_new_keys_do_not_use_old_tickets(tickets: Tickets) -> None:
    """The ticket is bound to the keys with which it was asked for."""
    secret = tickets.issue(client(), ORDER, True, PARTS)
    fresh = Keys.made()
    with pytest.raises(TicketRefused, match="another's"):
        tickets.use(secret, True, 130, signed(secret, keys=fresh))
    assert replace(client(keys=fresh), sign_key=client().sign_key).sign_key == client().sign_key


NO_RANGES: dict[str, Arrivals] = {
    "for no part": (),
    "named twice": ((ONE, 100, 0), (ONE, 100, 50)),
    "to begin at 101": ((ONE, 100, 101),),
    "to begin at -1": ((ONE, 100, -1),),
    "of 0 bytes": ((ONE, 0, 0),),
    "of -5 bytes": ((ONE, -5, -5),),
}


def test_ranges_that_are_none(tickets: Tickets) -> None:
    """They overlap, go backwards or lie behind the end."""
    for words, parts in NO_RANGES.items():
        with pytest.raises(Malformed, match=words):
            tickets.issue(client(), ORDER, True, parts)
    with pytest.raises(BadName):
        tickets.issue(client(), ORDER, True, ((Digest("../../etc"), 1, 0),))
