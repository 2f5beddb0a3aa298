"""A coordinator's door on a socket of its own."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from functools import cache

import httpx
import uvicorn
from api_world import Coordinator
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.server.loops import LONG
from tideline_server.api.server import HEAD_BYTES, Bounds, bounded


class Port:
    """A server for tests that come one after the other: it serves the app that it was given last."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None
        self.url = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.app is not None, "no test has given an app"
        await self.app(scope, receive, send)

    @contextlib.contextmanager
    def browser(self, app: ASGIApp, **headers: str) -> Iterator[httpx.Client]:
        """Serve an app, and call it as a browser does, with these headers."""
        self.app = app
        with httpx.Client(base_url=self.url, trust_env=False, verify=trust(), timeout=LONG, headers=headers) as client:
            yield client


@cache
def trust() -> ssl.SSLContext:
    """One context for all clients: to read the certificates of this machine takes longer than a test."""
    return ssl.create_default_context()


@contextlib.contextmanager
def open_port() -> Iterator[Port]:
    """A port without an app."""
    made = Port()
    with listening(0, app=made) as (host, number):
        made.url = f"http://{host}:{number}"
        yield made


@contextlib.contextmanager
def listening(most: int, seconds: float = LONG, app: ASGIApp | None = None) -> Iterator[tuple[str, int]]:
    """An app, or a new coordinator's, on a free port.

    most: connections from one address at a time (0: any number). seconds: in which the head of a request has to come.
    """
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started.set()

    options = {"log_config": None, "access_log": False, "h11_max_incomplete_event_size": HEAD_BYTES, "ws": "none"}
    with socket.create_server(("127.0.0.1", 0)) as line:
        protocol = bounded(Bounds(most, head=seconds))
        config = uvicorn.Config(
            app or Coordinator().app,
            http=protocol,
            lifespan="off",
            timeout_graceful_shutdown=1,
            **options,  # type: ignore[arg-type]
        )
        server = Server(config)
        thread = threading.Thread(target=server.run, args=([line],))
        thread.start()
        assert started.wait(LONG)
        try:
            yield line.getsockname()
        finally:
            server.should_exit = True
            thread.join()
