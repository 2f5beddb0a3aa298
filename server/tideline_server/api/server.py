"""The HTTP server. It bounds how many connections there are, how long a head may take, and for how long nobody reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tideline.core.errors import MEDIA_TYPE, TooMany, problem
from tideline_server.api.agents import Certificates
from tideline_server.api.handshakes import Handshakes, Listener
from tideline_server.limits import network_of
from tideline_server.settings import CoordinatorSettings

LOG = structlog.get_logger("tideline_server.api")
HEAD_BYTES = 32 << 10  # of a request's line and headers
HANDSHAKE_SECONDS = 10.0  # of TLS, as at the agents' door
HEAD_SECONDS = 20.0  # for a request's line and headers, from the connection's or the head's first byte on
BACKLOG = 64  # connections that are taken up before anybody else has a turn at the loop
IDLE_SECONDS = 15  # that a connection may rest; agents leave theirs sooner, so that none is closed under a request
STALLED_SECONDS = 60.0  # in which whoever is sent something takes some of it


@dataclass(frozen=True)
class Bounds:
    """Connections from one address (of IPv6: each /64) and in all (0: any number), and seconds: for the head of a request, and
    for a caller to read some of what was sent. opened: what is called with each connection's address and port. handshakes: of
    TLS, those under way. certificates: those that callers have shown. proxies: addresses from which any number may come.
    """

    from_one: int = 0
    in_all: int = 0
    head: float = HEAD_SECONDS
    stalled: float = STALLED_SECONDS
    opened: Callable[[tuple[str, int] | None], None] = lambda peer: None
    handshakes: Handshakes = field(default_factory=Handshakes)
    certificates: Certificates = field(default_factory=Certificates)
    proxies: frozenset[str] = frozenset()


def bounded(bounds: Bounds) -> type[asyncio.Protocol]:
    """The protocol of a server with these bounds."""
    open_from: Counter[str] = Counter()

    class Bounded(H11Protocol):
        """A connection that counts, and that is cut if it makes us wait for the head of a request, or reads nothing."""

        origin: str | None = None
        late: asyncio.TimerHandle | None = None
        full: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            line = transport.get_extra_info("socket")
            if line is not None:  # else head and body of an answer, two writes, are 40 ms apart
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                bounds.handshakes.end(line.fileno())
            bounds.opened(self.client)
            if (tls := transport.get_extra_info("ssl_object")) is not None:
                bounds.certificates.opened(self.client, tls.getpeercert())
            self.origin = network_of(self.client[0] if self.client else "")
            open_from[self.origin] += 1
            crowd = self.origin not in bounds.proxies and open_from[self.origin] > bounds.from_one
            if bounds.from_one and crowd:
                turn_away(transport, self.origin, bounds.from_one)
            elif bounds.in_all and open_from.total() > bounds.in_all:
                transport.abort()  # whoever it is: an answer would cost more than the rest
                LOG.warning("too_many_connections", address="any", limit=bounds.in_all)
            else:
                self.late = self.loop.call_later(bounds.head, transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            self.hurry(False)
            self.read_on()
            bounds.certificates.closed(self.client)
            if self.origin is not None:
                open_from[self.origin] -= 1
                if not open_from[self.origin]:
                    del open_from[self.origin]
                self.origin = None
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            self.hurry(self.cycle is None or self.cycle.response_complete)

        def hurry(self, waiting: bool) -> None:
            """Set the time for a head that is awaited, or stop it for one that is there."""
            if waiting and self.late is None:
                self.late = self.loop.call_later(bounds.head, self.transport.close)
            elif not waiting and self.late is not None:
                self.late.cancel()
                self.late = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self.full = self.full or self.loop.call_later(bounds.stalled, self.transport.abort)

        def resume_writing(self) -> None:
            self.read_on()
            super().resume_writing()

        def read_on(self) -> None:
            """Whoever read nothing reads again, or has gone."""
            if self.full is not None:
                self.full.cancel()
                self.full = None

    return Bounded


def turn_away(transport: asyncio.Transport, origin: str, most: int) -> None:
    """Answer before anything was asked, and close."""
    LOG.warning("too_many_connections", address=origin, limit=most)
    what = f"More than {most} connections are open from {origin or 'one place'}"
    error = TooMany(what, "Close some; the coordinator's --connections sets the limit")
    body = json.dumps(problem(error) | {"status": 429}).encode()
    head = ("HTTP/1.1 429 Too Many Requests", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}", "Connection: close")
    transport.write("".join(f"{line}\r\n" for line in (*head, "")).encode() + body)
    transport.close()


class QuietServer(uvicorn.Server):
    """Uvicorn without signal handlers of its own: the coordinator closes its servers in order.

    A handshake of TLS has an end: until then there is no protocol that could count the connection, and the event loop's own limit
    is a minute.
    """

    def __init__(self, config: uvicorn.Config, handshakes: Handshakes) -> None:
        super().__init__(config)
        self._handshakes = handshakes

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        assert not self.lifespan.should_exit and sockets is not None, "the door has no work of its own at its start"
        config = self.config
        state = {"config": config, "server_state": self.server_state, "app_state": self.lifespan.state}
        protocol = partial(config.http_protocol_class, **state)
        self._protocol, self._sockets = protocol, sockets
        self.servers = await self._opened(config.ssl)
        self.started = True

    async def renew(self, tls: ssl.SSLContext) -> None:
        """Show another certificate from now on, to who connects. Connections that are there go on, and so does the port."""
        before, self.servers = self.servers, await self._opened(tls)
        loop = asyncio.get_running_loop()
        for each in before:
            for listening in each.sockets:
                loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)  # a connection that was accepted is its server's only now, and a closed one takes none
        for each in before:
            each.close()

    async def _opened(self, tls: ssl.SSLContext | None) -> list[asyncio.Server]:
        loop, seconds = asyncio.get_running_loop(), HANDSHAKE_SECONDS if tls else None
        return [
            await loop.create_server(
                self._protocol, sock=each, backlog=self.config.backlog, ssl=tls, ssl_handshake_timeout=seconds
            )
            for each in ([Listener.of(each, self._handshakes) for each in self._sockets] if tls else self._sockets)
        ]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_config(settings: CoordinatorSettings, app: ASGIApp, bounds: Bounds) -> uvicorn.Config:
    asked = settings.tls_client_ca if settings.agents_over_http else None
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        http=bounded(bounds),
        backlog=BACKLOG,
        h11_max_incomplete_event_size=HEAD_BYTES,
        ws="none",
        timeout_graceful_shutdown=2,
        timeout_keep_alive=IDLE_SECONDS,
        ssl_certfile=None if settings.tls_cert is None else str(settings.tls_cert),
        ssl_keyfile=None if settings.tls_key is None else str(settings.tls_key),
        # Users have none, and are let in by their keys: who shows one is an agent.
        ssl_ca_certs=None if asked is None else str(asked),
        ssl_cert_reqs=ssl.CERT_NONE if asked is None else ssl.CERT_OPTIONAL,
        # Without the option: this machine's, or as uvicorn's own variable says.
        forwarded_allow_ips=None if settings.trusted_proxies is None else list(settings.proxies),
    )
