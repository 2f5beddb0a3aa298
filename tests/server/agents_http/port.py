"""The agents' calls over HTTP: a federation in this process behind such a port, and a client that shares no code with ours."""

from __future__ import annotations

import asyncio
import http.client
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import uvicorn
from starlette.types import Receive, Scope, Send

from tests.acceptance.raw import SERVICE, Metadata
from tests.server.loops import LONG
from tests.synthetic import sites
from tideline.algorithms import METHODS
from tideline.engine.simulation.federation import Federation
from tideline_server.api.agents import AgentsOverHttp
from tideline_server.api.server import Bounds, bounded
from tideline_server.bell import LocalBell
from tideline_server.limits import UNLIMITED, Limits
from tideline_server.rpc import Servicer

SERVICERS: dict[int, Servicer] = {}  # by their ports


def until_polled(port: int, times: int = 1) -> None:
    """Wait until so many polls wait at a port."""
    end, pause, most = time.monotonic() + LONG, threading.Event(), 0
    while (found := SERVICERS[port].listening) < times:
        most = max(most, found)
        assert time.monotonic() < end, f"{most} of {times} polls came"
        pause.wait(0.01)


async def nobody(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that knows no address."""
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def http_port_of(
    limits: Limits = UNLIMITED, bounds: Bounds | None = None, seen: Callable[..., None] = lambda *request: None
) -> Iterator[tuple[Federation, int]]:
    """A federation whose clock stands at the time of day, and the port of its HTTP side."""
    federation, loop = Federation(METHODS, sites()), asyncio.new_event_loop()
    federation.clock.advance(time.time())
    federation.run_service.bell = bell = LocalBell(loop)
    opened: queue.Queue[Any] = queue.Queue()
    bound = socket.create_server(("127.0.0.1", 0))

    async def serve() -> None:
        servicer = Servicer(federation.agent_service, federation.run_service, bell, "1.2.3", limits)
        app = AgentsOverHttp(nobody, servicer, None, seen)
        config = uvicorn.Config(app, log_config=None, http=bounded(bounds or Bounds()), lifespan="off", ws="none")
        server = uvicorn.Server(config)
        opened.put((server, servicer))
        await server.serve([bound])

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    server, servicer = opened.get()
    SERVICERS[port := bound.getsockname()[1]] = servicer
    try:
        yield federation, port
    finally:
        loop.call_soon_threadsafe(servicer.close)
        server.should_exit = True
        thread.join()
        loop.close()
        bound.close()


class HttpRefused(grpc.RpcError):
    """A refusal, as a client of gRPC meets one."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status, self.body = status, body

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        """The error's own form."""
        return (("tideline-error-bin", self.body),)

    def details(self) -> str:
        """Its words."""
        return str(json.loads(self.body)["what"])


class Channel:
    """A channel of gRPC to those who use it, and requests of HTTP on the wire, a connection for each."""

    def __init__(self, port: int, prefix: str = "/agents/v1/") -> None:
        self.port, self.prefix = port, prefix

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def unary_unary(self, method: str, serializer: None, reader: Callable[[bytes], Any] | None) -> Any:
        """A call with one message and one reply."""

        def call(body: bytes, metadata: Metadata = (), timeout: float = LONG) -> Any:
            content = self.request(method, body, metadata, timeout)
            return reader(content) if reader else content

        return call

    def unary_stream(self, method: str, serializer: None, reader: None) -> Any:
        """A call whose reply is bytes."""
        return lambda body, metadata=(), timeout=LONG: iter([self.request(method, body, metadata, timeout)])

    def stream_unary(self, method: str, serializer: None, reader: Any = None) -> Any:
        """A push. `future` begins it on a thread."""

        def call(messages: Iterator[bytes], metadata: Metadata = (), timeout: float = LONG) -> Any:
            return self.request(method, framed(messages), metadata, timeout)

        def future(messages: Iterator[bytes], metadata: Metadata = (), timeout: float = LONG) -> Future[Any]:
            made: Future[Any] = Future()

            def work() -> None:
                try:
                    made.set_result(call(messages, metadata, timeout))
                except BaseException as error:  # noqa: BLE001 - whoever asks for the result has it
                    made.set_exception(error)

            threading.Thread(target=work, daemon=True).start()
            return made

        call.future = future  # type: ignore[attr-defined]
        return call

    def request(self, method: str, body: Any, metadata: Metadata, timeout: float) -> bytes:
        """Send a request and read the answer. Raises HttpRefused."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Content-Type": "application/x-protobuf", **dict(metadata)}
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                line.request("POST", self.prefix + method.removeprefix(SERVICE), body, headers)
            answer = line.getresponse()
            content = answer.read()
        finally:
            line.close()
        assert answer.headers["Tideline-Agents"] == "1"
        if answer.status != 200:
            raise HttpRefused(answer.status, content)
        return content


def framed(messages: Iterator[bytes]) -> Iterator[bytes]:
    """A push as a body: the length of its first message, that message, and the rest."""
    head = next(messages, b"")
    yield len(head).to_bytes(4) + head
    yield from messages
