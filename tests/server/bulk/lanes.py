"""The bulk lane over a stage in this process: a port of its own, and agents that use it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.engine.toys import METHODS
from tests.laws.stage import Stage
from tests.server.loops import LONG
from tests.synthetic import NAMES, sites
from tideline.archive.parts import Parts
from tideline.core.run import ClientId
from tideline.engine.model import accounts
from tideline.engine.model.accounts import Client
from tideline.engine.model.orders import Arrivals, Files, Order
from tideline.engine.simulation.adapters import LocalLink
from tideline.engine.site.agent import Agent
from tideline_agent.home.identity import Keys
from tideline_agent.link import Endpoints
from tideline_agent.link.bulk import Lane, Ticket
from tideline_server.bulk.listener import Bounds, Listener
from tideline_server.bulk.tickets import Tickets
from tideline_server.rpc import verified


@dataclass
class Lanes:
    """A stage and its listener."""

    on: Stage
    listener: Listener
    port: int
    keys: dict[ClientId, Keys] = field(default_factory=dict)
    endpoints: Endpoints = field(default_factory=lambda: Endpoints(("127.0.0.1:1",)))
    moved: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, name: ClientId) -> Client:
        """A client with keys that are known here."""
        known, keys = self.on.journal.client(name), self.keys.setdefault(name, Keys.made())
        assert known is not None
        return replace(known, sign_key=keys.public[0].hex(), receive_key=keys.public[1].hex())

    def ticket(self, name: ClientId, order: Order, up: bool, parts: Arrivals) -> Ticket:
        """A ticket, as the gRPC port gives it, with its client's signature."""
        client = self.client(name)
        self.on.agent_service.may_move(name, order.id, up, parts)
        secret = self.listener.tickets.issue(client, order.id, up, parts)
        nbytes = sum(size - offset for _, size, offset in parts)
        signature = self.keys[name].bulk_signature(secret, up, name, nbytes)
        return Ticket(secret=secret, signature=signature, up=up, parts=parts, address=self.address)

    def say(self, request: bytes, more: bytes = b"", ends: bool = False) -> bytes:
        """Send bytes over a line of its own, and read all that comes. ends: hang up first."""
        with socket.create_connection(("127.0.0.1", self.port), LONG) as line:
            line.sendall(request + more)
            if ends:
                line.shutdown(socket.SHUT_WR)
            came = b""
            while some := line.recv(1 << 16):
                came += some
            return came


def head(ticket: Ticket, **other: Any) -> bytes:
    """A request for a ticket, some of it otherwise."""
    said = {"method": "PUT" if ticket.up else "GET", "target": "/parts", "secret": ticket.secret} | other
    lines = [f"{said['method']} {said['target']} HTTP/1.1", "Host: there", f"Authorization: Tideline {said['secret']}"]
    lines.append(f"Tideline-Signature: {said.get('signature', ticket.signature)}")
    if ticket.up or "length" in said:
        lines.append(f"Content-Length: {said.get('length', ticket.bytes)}")
    return ("\r\n".join([*lines, *said.get("more", ())]) + "\r\n\r\n").encode()


class BulkLink(LocalLink):
    """A link whose parts go over the lane; all else as in one process."""

    def __init__(self, client: ClientId, there: Lanes) -> None:
        super().__init__(client, there.on.agent_service)
        self.there, self.lane = there, Lane(there.endpoints)

    def fetch(self, order: Order, files: Files, parts: Parts) -> None:
        wanted = tuple((digest, size, parts.arrived(digest)) for digest, size in files)
        if wanted:
            with self.lane.line(self.there.ticket(self.client, order, False, wanted)) as line:
                line.fetch(parts)
                self.there.moved += 1

    def push(self, order: Order, arrivals: Arrivals, parts: Parts) -> None:
        with self.lane.line(self.there.ticket(self.client, order, True, arrivals)) as line:
            line.push(parts)
            self.there.moved += 1


class BulkStage(Stage):
    """A stage whose agents use the lane, once there is one."""

    there: Lanes | None = None

    def agent(self, name: ClientId) -> Agent:
        agent = super().agent(name)
        if self.there is not None:
            agent.link = BulkLink(name, self.there)
        return agent


@contextmanager
def lanes(bounds: Bounds | None = None, tls: ssl.SSLContext | None = None, **more: Any) -> Iterator[Lanes]:
    """Three sites of the toys, and a port that is closed at the end, as soon as its thread looks up."""
    on, bound = BulkStage(METHODS, sites(NAMES[:3])), socket.create_server(("127.0.0.1", 0))
    listener = Listener(
        Tickets(verified), on.agent_service, more.pop("still", lambda client: None), bounds=bounds, tls=tls, **more
    )
    with bound, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tideline_server.bulk.listener.CHECK_SECONDS", 0.02)
        listener.open(bound)
        on.there = Lanes(on, listener, bound.getsockname()[1])
        on.rebuild()
        listener.agent_service = on.agent_service
        try:
            yield on.there
        finally:
            listener.close()


def public(keys: Keys) -> accounts.Keys:
    return accounts.Keys(*(key.hex() for key in keys.public))
