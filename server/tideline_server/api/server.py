"""The HTTP server. It bounds how many connections one address has, and how long a request's head may take."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections import Counter
from collections.abc import Iterator

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tideline.core.errors import MEDIA_TYPE, TooMany, problem
from tideline_server.limits import network_of
from tideline_server.settings import CoordinatorSettings

LOG = structlog.get_logger("tideline_server.api")
HEAD_BYTES = 32 << 10  # of a request's line and headers
HEAD_SECONDS = 20.0  # for a request's line and headers, from the connection's or the head's first byte on


def bounded(most: int, seconds: float = HEAD_SECONDS) -> type[asyncio.Protocol]:
    """The protocol of a server that takes so many connections from one address (of IPv6: each /64); 0: any number."""
    open_from: Counter[str] = Counter()

    class Bounded(H11Protocol):
        """A connection that counts, and that is cut if it keeps us waiting for the head of a request."""

        origin: str | None = None
        late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            line = transport.get_extra_info("socket")
            if line is not None:  # else head and body of an answer, two writes, are 40 ms apart
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.origin = network_of(self.client[0] if self.client else "")
            open_from[self.origin] += 1
            if most and open_from[self.origin] > most:
                turn_away(transport, self.origin, most)
            else:
                self.late = self.loop.call_later(seconds, transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            self.hurry(False)
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
                self.late = self.loop.call_later(seconds, self.transport.close)
            elif not waiting and self.late is not None:
                self.late.cancel()
                self.late = None

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
    """Uvicorn without signal handlers of its own: the coordinator closes its servers in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_config(settings: CoordinatorSettings, app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        http=bounded(settings.connections),
        h11_max_incomplete_event_size=HEAD_BYTES,
        ws="none",
        timeout_graceful_shutdown=2,
        ssl_certfile=None if settings.tls_cert is None else str(settings.tls_cert),
        ssl_keyfile=None if settings.tls_key is None else str(settings.tls_key),
    )
