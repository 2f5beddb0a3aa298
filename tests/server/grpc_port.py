"""The gRPC port over a federation in this process, on a loop and a port of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc.aio

from tests.synthetic import sites
from tideline.algorithms import METHODS
from tideline.engine.simulation.federation import Federation
from tideline_server.bell import LocalBell
from tideline_server.limits import UNLIMITED, Limits
from tideline_server.rpc import Servicer
from tideline_server.rpc.announcing import Announcement


@contextmanager
def grpc_port_of(
    limits: Limits = UNLIMITED,
    tls: tuple[bytes, bytes] | None = None,
    said: Callable[[], Announcement] = Announcement,
    of: Federation | None = None,
) -> Iterator[tuple[Federation, int]]:
    """A federation whose clock stands at the time of day, and the port of its door. tls: key and certificate chain (PEM).

    said: what is announced to its agents. of: a federation that has another door already.
    """
    federation, loop, closing = of or Federation(METHODS, sites()), asyncio.new_event_loop(), asyncio.Event()
    if of is None:
        federation.clock.advance(time.time())
    federation.run_service.bell = bell = LocalBell(loop)
    opened: queue.Queue[int] = queue.Queue()

    async def serve() -> None:
        server = grpc.aio.server()
        door = Servicer(federation.agent_service, federation.run_service, bell, "1.2.3", limits)
        door.announcing.current = said
        server.add_generic_rpc_handlers((door.handler(),))
        at = "127.0.0.1:0"
        port = server.add_secure_port(at, grpc.ssl_server_credentials([tls])) if tls else server.add_insecure_port(at)
        await server.start()
        opened.put(port)
        await closing.wait()
        door.close()
        await server.stop(None)
        await door.living.ended()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield federation, opened.get()
    finally:
        loop.call_soon_threadsafe(closing.set)
        thread.join()
        loop.close()
