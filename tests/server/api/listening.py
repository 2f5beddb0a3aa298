"""A coordinator's door on a socket of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn
from api_world import Coordinator

from tideline_server.api.server import HEAD_BYTES, Bounds, bounded

LONG = 20.0  # nothing here takes so long; what does has failed


@contextlib.contextmanager
def listening(most: int, seconds: float = LONG, door: Coordinator | None = None) -> Iterator[tuple[str, int]]:
    """A door on a free port, for so many connections from one address (0: any number); heads may take so many seconds."""
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started.set()

    options = {"log_config": None, "access_log": False, "h11_max_incomplete_event_size": HEAD_BYTES, "ws": "none"}
    app = (door or Coordinator()).app
    with socket.create_server(("127.0.0.1", 0)) as line:
        bounds = Bounds(most, head=seconds)
        server = Server(uvicorn.Config(app, http=bounded(bounds), timeout_graceful_shutdown=1, **options))  # type: ignore[arg-type]
        thread = threading.Thread(target=server.run, args=([line],))
        thread.start()
        assert started.wait(LONG)
        try:
            yield line.getsockname()
        finally:
            server.should_exit = True
            thread.join()
